"""How many pixels each neuron of a raster gets."""

from collections.abc import Sequence
from typing import NamedTuple

MOST_PIXELS = 10  # per neuron


class Rows(NamedTuple):
    every: int  # of so many neurons one is shown
    shown: int  # so many are shown
    pixels: int  # per neuron shown

    @property
    def height(self) -> int:
        return self.shown * self.pixels


def plan_rows(neurons: Sequence[int], budget: int) -> list[Rows]:
    """Whole pixels for every neuron, at most ``budget`` in all; small layers are drawn larger.

    Where there are more neurons than pixels, every second, third, ... neuron of the largest layers is shown.
    """
    if budget < len(neurons):
        raise ValueError(f"{len(neurons)} layers need more than {budget} pixels")
    rows = [Rows(1, n, 1) for n in neurons]
    while sum(row.height for row in rows) > budget:
        tallest = max(row.height for row in rows)
        for i, row in enumerate(rows):
            if row.height == tallest:  # layers of one size are treated alike
                rows[i] = Rows(row.every + 1, -(-neurons[i] // (row.every + 1)), 1)
    while True:
        left = budget - sum(row.height for row in rows)
        fitting = [i for i, row in enumerate(rows) if row.shown <= left and row.pixels < MOST_PIXELS]
        if not fitting:
            return rows
        lowest = min(fitting, key=lambda i: rows[i].height)
        rows[lowest] = rows[lowest]._replace(pixels=rows[lowest].pixels + 1)

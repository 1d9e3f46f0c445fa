"""When the output of a converted network has settled, and from which step on it is read."""

import pytest
import torch
from test_thresholds import IDENTITY, column

from carebn.conversion.delay import delay, delayed_start


def test_the_delay_by_hand() -> None:
    """θ/2 ÷ mean activation: 4/2 ÷ 2 = 1 in the first layer; its output clipped to 4, 3/2 ÷ 2 = 0.75 in the second."""
    layers = [*IDENTITY, *IDENTITY]
    thresholds = [torch.tensor([4.0]), torch.tensor([3.0])]
    assert delay(layers, thresholds, column(0, 4)) == 1.75
    assert delay(layers, thresholds, column(0, 8)) == 0.5 + 0.75
    assert delay(layers, thresholds, column(-1, -1)) == 0  # silence has no beginning


@pytest.mark.parametrize(
    ("settled", "steps", "start"),
    [
        (0.0, 100, 0),
        (2.1, 100, 3),
        (2.1, 7, 3),
        (2.1, 6, 2),
        (2.1, 4, 0),
        (2.1, 1, 0),
        (96.0, 100, 96),
        (1e30, 100, 96),
    ],
)
def test_the_read_out_keeps_four_steps(settled: float, steps: int, start: int) -> None:
    assert delayed_start(settled, steps) == start

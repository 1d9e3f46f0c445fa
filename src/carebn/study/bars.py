"""Bars that a run has to clear on its way: one that has not yet been as good, by the step of a bar, is given up.

They are known before the run begins, so that it ends the same wherever and however often it is started.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

Bars = Sequence[tuple[int, float]]  # (step of an evaluation, least mean return that one until then must have had)


def is_below(step: int, best: float | None, bars: Bars) -> bool:
    return best is not None and any(step == at and best < least for at, least in bars)


def given_up_at(directory: Path, bars: Bars) -> int | None:
    """The step at which a run was, or will be when it has resumed, given up; None: as far as it is, it is not."""
    if not bars:
        return None
    from carebn.training.record import read_rows  # heavy; a node that only starts runs does without

    best: float | None = None
    for row in read_rows(directory / "metrics.jsonl"):
        if "eval/mean_return" in row:
            best = row["eval/mean_return"] if best is None else max(best, row["eval/mean_return"])
            if is_below(row["step"], best, bars):
                return int(row["step"])
    return None


class StopBelow:
    """A callback of a run in training."""

    def __init__(self, bars: Bars) -> None:
        self.bars = bars

    def on_evaluation(self, event: Any) -> bool:
        return not is_below(event.step, event.best_return, self.bars)

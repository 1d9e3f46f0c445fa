"""The score of a run: one number for all of its evaluations, by the names that ``--score`` knows."""

from collections.abc import Callable
from typing import NamedTuple

from carebn.study.evidence.runs import RunRecord
from carebn.study.evidence.statistics import LAST, area_under_curve, final_return, max_average_return, mean_of_last


class Score(NamedTuple):
    title: str
    of: Callable[[RunRecord], float]


SCORES = {
    "max": Score("max average return", lambda run: max_average_return(run.returns)),
    "last": Score(f"mean of the last {LAST} evaluations", lambda run: mean_of_last(run.returns)),
    "final": Score("last evaluation", lambda run: final_return(run.returns)),
    "area": Score("mean height of the learning curve", lambda run: area_under_curve(run.steps, run.returns)),
}

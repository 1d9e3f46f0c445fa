"""One row beside another, and one cell by itself: every score of every seed, and how sure one can be of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from carebn.paper.facts import IDP
from carebn.paper.records import Row
from carebn.study.cells import Budget
from carebn.study.evidence.gather import CellRuns, Gathered
from carebn.study.evidence.scores import SCORES
from carebn.study.evidence.statistics import (
    Estimate,
    iqm,
    mean_and_std,
    normalised,
    performance_gain,
    probability_of_improvement,
)


@dataclass(frozen=True)
class Comparison:
    """Over environments together. None: an environment has no run, or (but for ``better``) theirs is not above zero."""

    gain: float | None  # the mean over environments of our mean / theirs − 1, in per cent
    gain_without_idp: float | None
    iqm: Estimate | None  # of our scores, each relative to their mean in its environment
    better: Estimate | None  # the probability that a run of ours is better than one of theirs


def compare(
    gathered: Gathered, row: Row, other: Row, score: str = "max", envs: Sequence[str] | None = None
) -> Comparison:
    """``row`` beside ``other`` in those environments; by default in all of the row that were gathered."""
    envs = gathered.envs_of(row) if envs is None else envs
    ours, theirs = gathered.comparable(row, other, score)
    our_means, their_means = mean_of_each(ours), mean_of_each(theirs)
    return Comparison(
        gain=performance_gain(our_means, their_means, envs),
        gain_without_idp=performance_gain(our_means, their_means, envs, without=(IDP,)),
        iqm=iqm(normalised(ours, their_means), envs),
        better=probability_of_improvement(ours, theirs, envs),
    )


def mean_of_each(scores: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Over seeds, by environment."""
    return {env: mean_and_std(values)[0] for env, values in scores.items()}


@dataclass(frozen=True)
class CellScore:
    """A score over the seeds of a cell. One seed has no interval: its ends are the value itself."""

    by_seed: dict[int, float]
    mean: float
    std: float
    iqm: Estimate


@dataclass(frozen=True)
class CellView:
    """One row in one environment, by itself."""

    row: Row
    env_id: str
    budget: Budget
    scores: dict[str, CellScore]  # by the names in SCORES


def view_cells(gathered: Gathered) -> list[CellView]:
    """Every cell of the study that has a complete run, in the order of its rows."""
    views = []
    for row in gathered.study.all_rows():
        for env in gathered.envs_of(row):
            cell = gathered.cell(row, env)
            if cell.budget is not None:
                views.append(CellView(row, env, cell.budget, {name: _cell_score(cell, name) for name in SCORES}))
    return views


def _cell_score(cell: CellRuns, name: str) -> CellScore:
    by_seed = {run.seed: SCORES[name].of(run) for run in cell.complete}
    values = list(by_seed.values())
    middle = iqm({"": values}, [""])
    assert middle is not None  # there is a run
    return CellScore(by_seed, *mean_and_std(values), middle)

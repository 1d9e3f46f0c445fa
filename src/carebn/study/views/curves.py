"""Learning curves over seeds: mean, spread and interval at every step, thinned to what a screen can show."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from carebn.study.evidence.quantities import episodes_by_stretch
from carebn.study.evidence.runs import RunRecord
from carebn.study.evidence.statistics import CONFIDENCE, SEED

REPETITIONS = 1000  # bootstrap samples of the mean
Array = NDArray[np.float64]
Trace = tuple[Sequence[float], Sequence[float]]  # steps and values of one run


@dataclass(frozen=True)
class Curve:
    """At every step of ``x``: over runs the mean, its bootstrap interval, the standard deviation, and how many."""

    x: list[float]
    mean: list[float]
    low: list[float]
    high: list[float]
    std: list[float]
    runs: list[int]


def mean_curve(traces: Sequence[Trace], points: int) -> Curve | None:
    """The mean of all runs that have a value at a step; None if no run has any."""
    return stratified_curve([traces], points, partial=True)


def stratified_curve(strata: Sequence[Sequence[Trace]], points: int, partial: bool = False) -> Curve | None:
    """The mean over strata (environments) of the mean over their runs, at steps that every stratum has.

    ``partial``: a step counts as soon as one run of a stratum has it; otherwise all of its runs must.
    """
    present = any if partial else all
    values = [[dict(zip(*trace, strict=True)) for trace in traces] for traces in strata]
    if not values or not all(values):
        return None
    known = sorted({step for runs in values for run in runs for step in run})
    kept = [step for step in known if all(present(step in run for run in runs) for runs in values)]
    if not kept:
        return None
    x = thinned(kept, points)
    mean, std = np.zeros(len(x)), np.zeros(len(x))
    drawn = np.zeros((REPETITIONS, len(x)))
    counts = np.zeros(len(x), int)
    for number, runs in enumerate(values):
        table = np.array([[run.get(step, np.nan) for step in x] for run in runs])
        there = ~np.isnan(table)
        count = there.sum(0)
        middle = np.where(there, table, 0).sum(0) / count
        mean += middle / len(values)
        std += np.sqrt(np.where(there, (table - middle) ** 2, 0).sum(0) / count) / len(values)
        counts = count if number == 0 else np.minimum(counts, count)
        for mask in np.unique(there, axis=1).T:  # steps that the same runs have are resampled together
            columns = (there == mask[:, None]).all(0)
            drawn[:, columns] += _draws(int(mask.sum()), number) @ table[mask][:, columns] / len(values)
    tail = 100 * (1 - CONFIDENCE) / 2
    low, high = np.percentile(drawn, [tail, 100 - tail], axis=0)
    return Curve(list(x), mean.tolist(), low.tolist(), high.tolist(), std.tolist(), counts.tolist())


@lru_cache(maxsize=256)
def _draws(runs: int, stratum: int) -> Array:
    """``[REPETITIONS, runs]``: each row holds how often each run is drawn, divided by their number."""
    rng = np.random.default_rng((SEED, stratum))
    return rng.multinomial(runs, np.full(runs, 1 / runs), REPETITIONS) / runs


def thinned(steps: Sequence[float], points: int) -> list[float]:
    """At most ``points`` of the steps, evenly, with the first and the last."""
    if len(steps) <= points:
        return list(steps)
    return [steps[i] for i in np.linspace(0, len(steps) - 1, points).round().astype(int)]


def evaluation_traces(runs: Sequence[RunRecord]) -> list[Trace]:
    return [(run.steps, run.returns) for run in runs if run.steps]


def exploration_traces(runs: Sequence[RunRecord], bins: int) -> list[Trace]:
    """Returns of training episodes, averaged over ``bins`` equal stretches of training; an empty stretch is absent."""
    return [episodes_by_stretch(run, bins) for run in runs if run.episode_steps]


def wasserstein_traces(runs: Sequence[RunRecord], layer: int, when: str) -> list[Trace]:
    """Distances of one layer, ``before`` or ``after`` re-calibration."""
    traces: list[Trace] = []
    for run in runs:
        rows = run.measures.get("wasserstein", [])
        found = [(row["step"], float(row[when][layer])) for row in rows if layer < len(row[when])]
        finite = [(step, value) for step, value in found if np.isfinite(value)]
        if finite:
            steps, values = zip(*finite, strict=True)
            traces.append((steps, values))
    return traces

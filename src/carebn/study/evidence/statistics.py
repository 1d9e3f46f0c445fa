"""Statistics over runs. Scores are given per environment, one number per seed; what is missing stays missing.

A table of scores maps an environment to its array of scores, one per seed (numbers of seeds may differ). A statistic
over several environments is ``None`` as soon as one of them has no score: it would be a statistic of something else.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Scores = Mapping[str, ArrayLike]

REPETITIONS = 2000  # bootstrap samples
CONFIDENCE = 0.95
SEED = 0  # of the bootstrap: the same runs, the same intervals
LAST = 10  # evaluations that make the final return
_CHUNK = 200_000  # resampled scores held at once
_PAIRS = 2_000  # of runs, beyond which they are not compared one by one


class Estimate(NamedTuple):
    """A statistic and its bootstrap interval."""

    value: float
    low: float
    high: float


# --- one run: from its evaluations to a score -------------------------------------------------------------------------


def max_average_return(evaluations: ArrayLike) -> float:
    """The paper's score of a run: the best of its evaluations, each a mean over episodes."""
    return float(np.max(_some(evaluations)))


def final_return(evaluations: ArrayLike) -> float:
    """The last evaluation: the return of the final policy."""
    return float(_some(evaluations)[-1])


def mean_of_last(evaluations: ArrayLike, last: int = LAST) -> float:
    """Mean of the last ``last`` evaluations (of all, if there are fewer): not a maximum, so not flattered by noise."""
    return float(np.mean(_some(evaluations)[-last:]))


def area_under_curve(steps: ArrayLike, evaluations: ArrayLike) -> float:
    """The area under the learning curve, divided by the steps it spans: its mean height. Straight lines between
    evaluations, from the first to the last; a single one is as high as it is."""
    x, y = np.asarray(steps, float), _some(evaluations)
    if len(x) != len(y) or np.any(np.diff(x) <= 0):
        raise ValueError("every evaluation needs a step of its own, in ascending order")
    if len(x) == 1:
        return float(y[0])
    return float(np.sum(np.diff(x) * (y[1:] + y[:-1]) / 2) / (x[-1] - x[0]))


def _some(evaluations: ArrayLike) -> Array:
    values = np.asarray(evaluations, float)
    if values.ndim != 1 or not len(values):
        raise ValueError("a run needs at least one evaluation to have a score")
    return values


# --- over seeds and environments --------------------------------------------------------------------------------------


def mean_and_std(scores: ArrayLike) -> tuple[float, float]:
    """Over seeds: mean and population standard deviation √(Σ(x − x̄)²/n), 0 for a single seed."""
    values = np.asarray(scores, float)
    return float(values.mean()), float(values.std())


def performance_gain(
    performance: Mapping[str, float], baseline: Mapping[str, float], envs: Iterable[str], without: Sequence[str] = ()
) -> float | None:
    """APG in per cent: (mean over environments of performance/baseline − 1) · 100.

    ``without=(IDP,)`` leaves out InvertedDoublePendulum, on which the paper's baseline fails."""
    envs = [env for env in envs if env not in without]
    if not envs or any(env not in performance or env not in baseline for env in envs):
        return None
    if any(baseline[env] <= 0 for env in envs):  # "relative to" means nothing then
        return None
    return float(np.mean([performance[env] / baseline[env] for env in envs]) - 1) * 100


def normalised(scores: Scores, baseline: Mapping[str, float]) -> dict[str, Array]:
    """Scores relative to the baseline's mean in the same environment; without one above zero it drops out."""
    return {
        env: np.asarray(values, float) / baseline[env] for env, values in scores.items() if baseline.get(env, 0) > 0
    }


def relative_variance(scores: Scores, envs: Iterable[str]) -> float | None:
    """The spread over seeds in per cent: mean over environments of standard deviation / |mean| of the final returns.
    One seed has no spread, so nothing follows from it."""
    table = _complete(scores, envs)
    if table is None or any(len(values) < 2 for values in table):
        return None
    pairs = [mean_and_std(values) for values in table]
    if any(mean == 0 for mean, _ in pairs):
        return None
    return float(np.mean([std / abs(mean) for mean, std in pairs])) * 100


def interquartile_mean(values: ArrayLike) -> float:
    """The mean of the middle half: ⌊n/4⌋ values dropped at either end."""
    return float(_interquartile_means(np.asarray(values, float).reshape(1, -1))[0])


def iqm(scores: Scores, envs: Iterable[str], seed: int = SEED, repetitions: int = REPETITIONS) -> Estimate | None:
    """Interquartile mean over all runs of all environments, with a stratified bootstrap interval."""
    table = _complete(scores, envs)
    if table is None:
        return None
    resampled = _bootstrap([table], lambda drawn: _interquartile_means(drawn[0]), seed, repetitions)
    return _estimate(interquartile_mean(np.concatenate(table)), resampled)


def probability_of_improvement(
    scores: Scores, other: Scores, envs: Iterable[str], seed: int = SEED, repetitions: int = REPETITIONS
) -> Estimate | None:
    """P(X > Y) + P(X = Y)/2 for a run X of ours and a run Y of theirs in the same environment, averaged over
    environments."""
    return _between(scores, other, envs, _wins, seed, repetitions)


def difference_of_iqm(
    scores: Scores, other: Scores, envs: Iterable[str], seed: int = SEED, repetitions: int = REPETITIONS
) -> Estimate | None:
    """Our interquartile mean less theirs, averaged over environments, which have to be alike for that to mean much."""
    return _between(scores, other, envs, lambda x, y: _interquartile_means(x) - _interquartile_means(y), seed,
                    repetitions)  # fmt: skip


def ratio_of_iqm(
    scores: Scores, other: Scores, envs: Iterable[str], seed: int = SEED, repetitions: int = REPETITIONS
) -> Estimate | None:
    """Our interquartile mean divided by theirs, averaged over environments. Of scores that are all above zero."""
    envs = list(envs)
    if any(np.any(np.asarray(other.get(env, ()), float) <= 0) for env in envs):
        return None
    return _between(scores, other, envs, lambda x, y: _interquartile_means(x) / _interquartile_means(y), seed,
                    repetitions)  # fmt: skip


def difference_of_spread(
    scores: Scores, other: Scores, envs: Iterable[str], seed: int = SEED, repetitions: int = REPETITIONS
) -> Estimate | None:
    """By how much we spread less over seeds than they do: their standard deviation / |mean| less ours, in per cent,
    averaged over environments. Above zero we spread less. One seed has no spread, so nothing follows from it."""
    envs = list(envs)
    if any(len(np.atleast_1d(table.get(env, ()))) < 2 for table in (scores, other) for env in envs):
        return None
    return _between(scores, other, envs, lambda x, y: _spreads(y) - _spreads(x), seed, repetitions)


class Profile(NamedTuple):
    """How large a share of runs scores above each threshold, with a pointwise bootstrap band."""

    thresholds: Array
    share: Array
    low: Array
    high: Array


def performance_profile(
    scores: Scores, envs: Iterable[str], thresholds: ArrayLike, seed: int = SEED, repetitions: int = REPETITIONS
) -> Profile | None:
    """Share of all runs with a score above τ, for every τ in ``thresholds``."""
    table = _complete(scores, envs)
    if table is None:
        return None
    edges = np.asarray(thresholds, float)

    def shares(drawn: list[Array]) -> Array:
        return np.stack([(drawn[0] > edge).mean(axis=1) for edge in edges], axis=1)

    low, high = _interval(_bootstrap([table], shares, seed, repetitions))
    return Profile(edges, shares([np.concatenate(table)[None]])[0], low, high)


# --- how they are computed --------------------------------------------------------------------------------------------


def _complete(scores: Scores, envs: Iterable[str]) -> list[Array] | None:
    """The scores of every environment in order, or None if one has none."""
    table = [np.asarray(scores.get(env, ()), float) for env in envs]
    return table if table and all(len(values) for values in table) else None


def _between(
    scores: Scores,
    other: Scores,
    envs: Iterable[str],
    statistic: Callable[[Array, Array], Array],
    seed: int,
    repetitions: int,
) -> Estimate | None:
    """A statistic of two samples of one environment, given row by row and averaged over environments."""
    envs = list(envs)
    ours, theirs = _complete(scores, envs), _complete(other, envs)
    if ours is None or theirs is None:
        return None

    def averaged(drawn: list[Array]) -> Array:
        sides = [np.split(side, np.cumsum([len(values) for values in table])[:-1], axis=1)
                 for side, table in zip(drawn, (ours, theirs), strict=True)]  # fmt: skip
        return np.asarray(np.mean([statistic(x, y) for x, y in zip(*sides, strict=True)], axis=0))

    value = averaged([np.concatenate(table)[None] for table in (ours, theirs)])[0]
    return _estimate(float(value), _bootstrap([ours, theirs], averaged, seed, repetitions))


def _spreads(rows: Array) -> Array:
    """Of every row, standard deviation / |mean| in per cent; of nothing but zeros, none."""
    std, mean = rows.std(axis=1), np.abs(rows.mean(axis=1))
    return np.asarray(100 * np.divide(std, mean, out=np.zeros_like(std), where=mean > 0))


def _interquartile_means(rows: Array) -> Array:
    """Of every row."""
    cut = rows.shape[1] // 4
    return np.asarray(np.sort(rows, axis=1)[:, cut : rows.shape[1] - cut].mean(axis=1))


def _wins(ours: Array, theirs: Array) -> Array:
    """Per row, the share of pairs that we win; a tie is half a win."""
    pairs = ours.shape[1] * theirs.shape[1]
    if pairs > _PAIRS:  # counted in order, which is the same number: halves are exact
        beaten = [
            sum(np.searchsorted(y, x, side).sum() for side in ("left", "right"))
            for x, y in zip(ours, np.sort(theirs, axis=1), strict=True)
        ]
        return np.asarray(np.asarray(beaten) / 2 / pairs)
    x, y = ours[:, :, None], theirs[:, None, :]
    return np.asarray(((x > y) + 0.5 * (x == y)).mean(axis=(1, 2)))


def _bootstrap(
    tables: list[list[Array]], statistic: Callable[[list[Array]], Array], seed: int, repetitions: int
) -> Array:
    """The statistic of ``repetitions`` samples. Stratified: each environment keeps its number of runs, and its runs are
    drawn with replacement from its own."""
    rng = np.random.default_rng(seed)
    size = sum(len(values) for table in tables for values in table)
    chunk = max(1, _CHUNK // size)
    parts = []
    for start in range(0, repetitions, chunk):
        n = min(chunk, repetitions - start)
        drawn = [
            np.concatenate([values[rng.integers(len(values), size=(n, len(values)))] for values in table], axis=1)
            for table in tables
        ]
        parts.append(statistic(drawn))
    return np.concatenate(parts)


def _interval(resampled: Array) -> Array:
    """The percentile interval: low and high; for a profile, of every threshold."""
    tail = 100 * (1 - CONFIDENCE) / 2
    return np.percentile(resampled, [tail, 100 - tail], axis=0)


def _estimate(value: float, resampled: Array) -> Estimate:
    low, high = _interval(resampled)
    return Estimate(value, float(low), float(high))

"""Statistics against numbers worked out by hand, and against slow independent versions of the same definitions."""

import itertools
import math
import random
import statistics as python_statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carebn.study.evidence import statistics

A, B = "a", "b"
numbers = st.floats(-1e3, 1e3, allow_subnormal=False)


# --- by hand ----------------------------------------------------------------------------------------------------------


def test_scores_of_one_run() -> None:
    curve = [1.0, 7.0, 3.0, 5.0]
    assert statistics.max_average_return(curve) == 7
    assert statistics.final_return(curve) == 5
    assert statistics.mean_of_last(curve, 2) == 4
    assert statistics.mean_of_last(curve) == 4  # fewer than ten: all
    assert statistics.mean_of_last([100.0, *range(1, 11)]) == 5.5
    with pytest.raises(ValueError, match="at least one evaluation"):
        statistics.max_average_return([])


def test_area_under_the_curve_by_hand() -> None:
    # from 10 to 20 on average 2, from 20 to 50 on average 6: (10 · 2 + 30 · 6) / 40
    assert statistics.area_under_curve([10, 20, 50], [1.0, 3.0, 9.0]) == 5
    assert statistics.area_under_curve([5, 10, 15], [4.0, 4.0, 4.0]) == 4
    assert statistics.area_under_curve([5], [-7.0]) == -7  # a single evaluation is as high as it is
    for steps in ([10, 10, 20], [20, 10, 30], [10, 20]):
        with pytest.raises(ValueError, match="a step of its own"):
            statistics.area_under_curve(steps, [1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="at least one evaluation"):
        statistics.area_under_curve([], [])


def test_mean_and_std() -> None:
    assert statistics.mean_and_std([2, 4, 4, 4, 5, 5, 7, 9]) == (5, 2)
    assert statistics.mean_and_std([3]) == (3, 0)


def test_performance_gain() -> None:
    # 3/2 and 5/10: mean 1
    assert statistics.performance_gain({A: 3, B: 5}, {A: 2, B: 10}, [A, B]) == pytest.approx(0)
    assert statistics.performance_gain({A: 3, B: 5}, {A: 2, B: 10}, [A, B], without=[B]) == pytest.approx(50)


def test_a_gain_over_a_missing_or_failed_baseline_is_missing() -> None:
    assert statistics.performance_gain({A: 3}, {A: 2, B: 10}, [A, B]) is None
    assert statistics.performance_gain({A: 3, B: 1}, {A: 2}, [A, B]) is None
    assert statistics.performance_gain({A: 3, B: 1}, {A: 2, B: 0}, [A, B]) is None
    assert statistics.performance_gain({A: 3, B: 1}, {A: 2, B: -5}, [A, B]) is None
    assert statistics.performance_gain({}, {}, []) is None


def test_normalised() -> None:
    table = statistics.normalised({A: [1, 2], B: [3]}, {A: 2})
    assert table.keys() == {A}
    assert list(table[A]) == [0.5, 1]


def test_relative_variance() -> None:
    # a: mean 3, std 1; b: mean 10, std 2: (1/3 + 1/5) / 2
    scores = {A: [2, 4], B: [8, 12]}
    assert statistics.relative_variance(scores, [A, B]) == pytest.approx(100 * (1 / 3 + 1 / 5) / 2)
    assert statistics.relative_variance({A: [-2, -4], B: [8, 12]}, [A, B]) == pytest.approx(100 * (1 / 3 + 1 / 5) / 2)
    assert statistics.relative_variance({A: [2, 4]}, [A, B]) is None
    assert statistics.relative_variance({A: [-1, 1]}, [A]) is None
    assert statistics.relative_variance({A: [2, 4], B: [8]}, [A, B]) is None  # one seed has no spread


def test_interquartile_mean() -> None:
    assert statistics.interquartile_mean([1, 2, 3, 1000]) == 2.5
    assert statistics.interquartile_mean([5, 1, 9, 3, 7, -100, 100, 4]) == (3 + 4 + 5 + 7) / 4
    assert statistics.interquartile_mean([1, 2, 6]) == 3  # a quarter of three is no value
    assert statistics.interquartile_mean([0, 1, 2, 3, 4]) == 2


def test_probability_of_improvement_by_hand() -> None:
    # in a: 2 > 1, 2 = 2, 5 > 1, 5 > 2: 3.5 of 4; in b: 0 of 1
    found = statistics.probability_of_improvement({A: [2, 5], B: [0]}, {A: [1, 2], B: [1]}, [A, B])
    assert found is not None
    assert found.value == pytest.approx((3.5 / 4 + 0) / 2)
    assert statistics.probability_of_improvement({A: [1]}, {A: [1], B: [2]}, [A, B]) is None


def test_performance_profile_by_hand() -> None:
    profile = statistics.performance_profile({A: [1, 2], B: [3, 4]}, [A, B], [0, 1, 2.5, 4])
    assert profile is not None
    assert list(profile.share) == [1, 0.75, 0.5, 0]
    # b never falls to 2.5 and a never rises above it: no doubt at all
    assert (profile.low[2], profile.high[2]) == (0.5, 0.5)
    assert statistics.performance_profile({A: [1]}, [A, B], [0]) is None


# --- the bootstrap ----------------------------------------------------------------------------------------------------


def test_the_interval_of_two_runs_in_two_environments_by_enumeration() -> None:
    """Each environment draws 2 of its own 2: all 16 samples are equally likely, so the quantiles can be counted."""
    a, b = [0.0, 1.0], [10.0, 30.0]
    every = sorted(
        statistics.interquartile_mean([*x, *y])
        for x in itertools.product(a, repeat=2)
        for y in itertools.product(b, repeat=2)
    )
    found = statistics.iqm({A: a, B: b}, [A, B], repetitions=20_000)
    assert found is not None
    assert found.value == 5.5
    # 2.5 % of the weight lies inside the first and the last of 16 equally likely samples
    assert (found.low, found.high) == (every[0], every[-1])
    assert every[0] == 5
    assert every[-1] == 15.5


def test_stratified_means_that_an_environment_keeps_its_own_runs() -> None:
    """Two environments far apart, runs within each the same: whatever is drawn, the answer is the same."""
    found = statistics.iqm({A: [1.0] * 5, B: [9.0] * 5}, [A, B])
    assert found == (5, 5, 5)


def test_intervals_are_seeded() -> None:
    rng = np.random.default_rng(3)
    scores = {A: rng.normal(size=5), B: rng.normal(size=5)}
    assert statistics.iqm(scores, [A, B]) == statistics.iqm(scores, [A, B])
    assert statistics.iqm(scores, [A, B], seed=1) != statistics.iqm(scores, [A, B], seed=2)


def slow_iqm(values: list[float]) -> float:
    ordered = sorted(values)
    cut = math.floor(0.25 * len(ordered))
    return python_statistics.fmean(ordered[cut : len(ordered) - cut])


def slow_improvement(ours: list[list[float]], theirs: list[list[float]]) -> float:
    shares = []
    for xs, ys in zip(ours, theirs, strict=True):
        won = sum(1.0 if x > y else 0.5 if x == y else 0.0 for x in xs for y in ys)
        shares.append(won / (len(xs) * len(ys)))
    return python_statistics.fmean(shares)


def slow_quantile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def slow_bootstrap(table: list[list[float]], statistic, seed: int, repetitions: int) -> tuple[float, float]:
    """One run at a time, with Python's own generator."""
    rng = random.Random(seed)
    drawn = [statistic([[rng.choice(runs) for _ in runs] for runs in table]) for _ in range(repetitions)]
    return slow_quantile(drawn, 0.025), slow_quantile(drawn, 0.975)


def test_intervals_agree_with_a_slow_bootstrap() -> None:
    rng = np.random.default_rng(0)
    ours = [list(rng.normal(1 + i, 0.5, 5)) for i in range(4)]
    theirs = [list(rng.normal(0.8 + i, 0.5, 4)) for i in range(4)]
    names = [str(i) for i in range(4)]
    scores, other = dict(zip(names, ours, strict=True)), dict(zip(names, theirs, strict=True))

    fast = statistics.iqm(scores, names, repetitions=4000)
    assert fast is not None
    assert fast.value == pytest.approx(slow_iqm([x for runs in ours for x in runs]))
    low, high = slow_bootstrap(ours, lambda t: slow_iqm([x for runs in t for x in runs]), 1, 4000)
    assert (fast.low, fast.high) == pytest.approx((low, high), abs=0.03)

    better = statistics.probability_of_improvement(scores, other, names, repetitions=4000)
    assert better is not None
    assert better.value == pytest.approx(slow_improvement(ours, theirs))
    low, high = slow_bootstrap(ours + theirs, lambda t: slow_improvement(t[:4], t[4:]), 2, 4000)
    assert (better.low, better.high) == pytest.approx((low, high), abs=0.03)

    profile = statistics.performance_profile(scores, names, [1.5, 3.0], repetitions=4000)
    assert profile is not None
    for i, edge in enumerate((1.5, 3.0)):
        low, high = slow_bootstrap(ours, lambda t, e=edge: np.mean([x > e for r in t for x in r]), 3, 4000)
        assert (profile.low[i], profile.high[i]) == pytest.approx((low, high), abs=0.051)  # one run of twenty


def test_a_nominal_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    """Ten runs in each of five environments, 200 times over: a percentile interval of so few runs is a little short."""
    rng = np.random.default_rng(5)
    truth, hits = 0.0, 0
    names = [str(i) for i in range(5)]
    for trial in range(200):
        found = statistics.iqm({n: rng.normal(size=10) for n in names}, names, seed=trial, repetitions=300)
        assert found is not None
        hits += found.low <= truth <= found.high
    assert 0.88 <= hits / 200 <= 0.99


def slow_area(steps: list[int], values: list[float]) -> float:
    """The height of the line at the middle of every single step, averaged."""
    heights = []
    for (a, x), (b, y) in itertools.pairwise(zip(steps, values, strict=True)):
        heights += [x + (y - x) * (step + 0.5 - a) / (b - a) for step in range(a, b)]
    return python_statistics.fmean(heights)


@given(st.lists(st.tuples(st.integers(1, 30), numbers), min_size=2, max_size=12))
@settings(deadline=None)
def test_the_area_is_the_slow_one(parts: list[tuple[int, float]]) -> None:
    steps, values = list(itertools.accumulate(width for width, _ in parts)), [value for _, value in parts]
    assert statistics.area_under_curve(steps, values) == pytest.approx(slow_area(steps, values), abs=1e-9)


# --- whatever is given ------------------------------------------------------------------------------------------------


@given(st.lists(numbers, min_size=1, max_size=40))
@settings(deadline=None)
def test_the_interquartile_mean_is_the_slow_one(values: list[float]) -> None:
    assert statistics.interquartile_mean(values) == pytest.approx(slow_iqm(values), abs=1e-9)


@given(st.lists(numbers, min_size=1, max_size=6), st.lists(numbers, min_size=1, max_size=6))
@settings(deadline=None, max_examples=50)
def test_either_we_improve_or_they_do(ours: list[float], theirs: list[float]) -> None:
    forward = statistics.probability_of_improvement({A: ours}, {A: theirs}, [A], repetitions=50)
    backward = statistics.probability_of_improvement({A: theirs}, {A: ours}, [A], repetitions=50)
    assert forward is not None
    assert backward is not None
    assert forward.value + backward.value == pytest.approx(1)
    assert 0 <= forward.low <= forward.high <= 1


def test_a_missing_environment_leaves_everything_missing() -> None:
    assert statistics.iqm({A: [1.0]}, [A, B]) is None
    assert statistics.iqm({A: [1.0], B: []}, [A, B]) is None
    assert statistics.iqm({}, []) is None

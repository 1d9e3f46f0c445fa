"""Curves over seeds: against hand-worked numbers and a slow bootstrap."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fake_runs import write_run

from carebn.study.evidence.runs import read_run, read_runs
from carebn.study.views.curves import (
    exploration_traces,
    mean_curve,
    stratified_curve,
    thinned,
    wasserstein_traces,
)
from carebn.study.views.explorer import explore, with_most_data


def test_mean_std_and_number_of_runs() -> None:
    curve = mean_curve([([10, 20], [1.0, 2.0]), ([10, 20, 30], [3.0, 6.0, 9.0])], 100)
    assert curve is not None
    assert curve.x == [10, 20, 30]
    assert curve.mean == [2.0, 4.0, 9.0]
    assert curve.std == [1.0, 2.0, 0.0]
    assert curve.runs == [2, 2, 1]
    # Of two runs a resample is (1, 1), (1, 3), (3, 1) or (3, 3): 2.5 and 97.5 % are the ends.
    assert (curve.low[0], curve.high[0]) == (1.0, 3.0)
    assert curve.low[2] == curve.high[2] == 9.0  # one run has no interval


def test_interval_against_a_slow_bootstrap() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(8, 3))
    curve = mean_curve([([1, 2, 3], list(row)) for row in values], 100)
    assert curve is not None
    for column in range(3):
        means = [np.mean([values[rng.integers(8), column] for _ in range(8)]) for _ in range(4_000)]
        low, high = np.percentile(means, [2.5, 97.5])
        assert curve.low[column] == pytest.approx(low, abs=0.08)
        assert curve.high[column] == pytest.approx(high, abs=0.08)


def test_strata_count_equally_and_only_where_all_have_values() -> None:
    first = [([1, 2, 3], [0.0, 0.0, 0.0])] * 3
    second = [([2, 3, 4], [4.0, 8.0, 9.0]), ([2, 3], [6.0, 8.0])]
    curve = stratified_curve([first, second], 100)
    assert curve is not None
    assert curve.x == [2, 3]
    assert curve.mean == [2.5, 4.0]  # not weighed by the number of runs
    assert (curve.low[0], curve.high[0]) == (2.0, 3.0)
    assert stratified_curve([first, []], 100) is None
    assert stratified_curve([], 100) is None
    assert mean_curve([], 100) is None


def test_thinning_keeps_the_ends_and_real_steps() -> None:
    steps = list(range(5, 1005, 5))
    kept = thinned(steps, 40)
    assert len(kept) == 40
    assert (kept[0], kept[-1]) == (5, 1000)
    assert set(kept) <= set(steps)
    assert thinned(steps, 500) == steps


def test_exploration_is_averaged_over_stretches_of_training(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "a", total=100))
    run = replace(run, episode_steps=[10, 25, 26, 100], episode_returns=[1.0, 3.0, 10.0, 7.0])
    [(steps, values)] = exploration_traces([run], 4)
    assert steps == [25, 50, 100]  # nothing ended between 50 and 75
    assert values == [2.0, 10.0, 7.0]
    assert exploration_traces([read_run(write_run(tmp_path / "b"))], 4) == []


def test_wasserstein_skips_what_is_not_a_number(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "a"))
    run.measures["wasserstein"] = [
        {"step": 1, "before": [0.5, float("nan")], "after": [0.1, 0.2]},
        {"step": 2, "before": [0.4, 0.3], "after": [0.1, 0.2]},
    ]
    assert wasserstein_traces([run], 0, "before") == [((1, 2), (0.5, 0.4))]
    assert wasserstein_traces([run], 1, "before") == [((2,), (0.3,))]
    assert wasserstein_traces([run], 2, "before") == []


def test_lines_are_told_apart(tmp_path: Path) -> None:
    write_run(tmp_path / "a", seed=0)
    write_run(tmp_path / "b", seed=1)
    write_run(tmp_path / "c", seed=0, total=25_000)
    write_run(tmp_path / "d", seed=0, method="ann", neuron="none")
    write_run(tmp_path / "e", seed=0, env_id="My-v0", method="mine", done=0)
    found = explore(read_runs([tmp_path], episodes=True).records)
    labels = {env: [line.label for line in lines] for env, lines in found.items()}
    assert labels == {
        "Hopper-v4": ["CaRe-BN, 20,000 steps", "CaRe-BN, 25,000 steps", "ANN"],
        "My-v0": ["mine"],
    }
    first = found["Hopper-v4"][0]
    assert (first.seeds, first.complete) == (2, 2)
    unfinished = found["My-v0"][0]
    assert (unfinished.seeds, unfinished.evaluation, unfinished.best) == (0, None, None)
    assert (unfinished.begun, unfinished.complete) == (1, 0)


def labels_of(directory: Path) -> list[str]:
    [lines] = explore(read_runs([directory]).records).values()
    return [line.label for line in lines]


def test_a_legend_names_what_a_reader_compares(tmp_path: Path) -> None:
    """Of a budget its steps, not the intervals that follow from it; how a run was carried out never."""
    write_run(tmp_path / "short", learning_starts=750, eval_interval=1537, checkpoint_interval=1537, log_interval=1000)
    write_run(tmp_path / "long", total=40_000, learning_starts=975, eval_interval=2000, checkpoint_interval=2000)
    assert labels_of(tmp_path) == ["CaRe-BN, 20,000 steps", "CaRe-BN, 40,000 steps"]
    write_run(tmp_path / "gamma", total=60_000, learning_starts=975, gamma=0.9, hidden=[16, 16], norm_init=None)
    labels = labels_of(tmp_path)
    assert labels[2] == "CaRe-BN, 60,000 steps, gamma 0.9, hidden 16 16"  # what changes the learning is always told
    assert labels[0] == "CaRe-BN, 20,000 steps, gamma none, hidden none"


def test_options_that_follow_the_budget_are_told_where_nothing_else_differs(tmp_path: Path) -> None:
    write_run(tmp_path / "a", learning_starts=750, random_steps=750)
    write_run(tmp_path / "b", learning_starts=500, random_steps=500)
    assert labels_of(tmp_path) == ["CaRe-BN, learning-starts 500", "CaRe-BN, learning-starts 750"]


def test_how_a_run_was_carried_out_makes_no_line_of_its_own(tmp_path: Path) -> None:
    options = [{"checkpoint_interval": 100}, {"log_interval": 10}, {"import_modules": ["mine"]}, {"device": "cuda"}]
    for seed, option in enumerate(options):
        write_run(tmp_path / f"{seed}", seed=seed, **option)
    [[line]] = explore(read_runs([tmp_path]).records).values()
    assert (line.label, line.seeds) == ("CaRe-BN", 4)


def test_a_copy_of_a_run_is_no_other_seed(tmp_path: Path) -> None:
    write_run(tmp_path / "begun", done=10_000)
    write_run(tmp_path / "done", threads=2)
    write_run(tmp_path / "other", seed=1)
    [[line]] = explore(read_runs([tmp_path]).records).values()
    assert (line.seeds, line.begun, line.complete) == (2, 2, 2)


def test_the_environment_with_the_most_data(tmp_path: Path) -> None:
    write_run(tmp_path / "a", env_id="Ant-v4", done=5_000)
    write_run(tmp_path / "h", env_id="Hopper-v4")
    assert with_most_data(explore(read_runs([tmp_path]).records)) == "Hopper-v4"
    write_run(tmp_path / "b", "bn", env_id="Ant-v4", done=5_000)
    found = explore(read_runs([tmp_path]).records)
    assert with_most_data(found) == "Ant-v4"  # two runs, however short
    assert list(found) == ["Ant-v4", "Hopper-v4"]

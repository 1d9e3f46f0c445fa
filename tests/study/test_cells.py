"""Cells become configurations at the paper's or a smaller budget, and runs find their cells again."""

import json
from pathlib import Path
from typing import Any

import pytest
from fake_runs import write_run

from carebn.paper import STUDIES
from carebn.paper.facts import IDP
from carebn.paper.records import Cell, Variant
from carebn.paper.tables import MAIN
from carebn.study.cells import Budget, belongs, config_of, lacks_method
from carebn.study.evidence.gather import Gathered, gather
from carebn.study.evidence.runs import RunRecord, read_runs
from carebn.study.evidence.timing import Timing
from carebn.training import TrainConfig

EXPLORATION = STUDIES["exploration"]
BN, CARE = EXPLORATION.rows


def test_every_cell_of_every_study_is_a_configuration_that_is_accepted() -> None:
    """Whatever methods this version has; those it lacks are told by name."""
    names: dict[str, Cell] = {}
    for study in STUDIES.values():
        for cell in study.cells(seeds=1):
            if lacks_method(cell.variant):
                assert repr(cell.variant.method) in lacks_method(cell.variant)
                continue
            name = config_of(cell, Budget.scaled(1)).name()
            assert names.setdefault(name, cell) == cell, "two cells, one run"
    assert len(names) > 100


def test_the_full_budget_is_the_papers() -> None:
    config = config_of(Cell(CARE.variant, "Hopper-v4", 3), Budget.scaled(1))
    assert config.as_json() == TrainConfig(env_id="Hopper-v4", neuron="clif", seed=3).checked().as_json()


def test_a_tenth_and_a_hundredth() -> None:
    assert Budget.scaled(0.1) == Budget(102_500, 2_500, 5_000)
    assert Budget.scaled(0.01) == Budget(10_250, 250, 512)
    assert Budget.scaled(0.01).options()["checkpoint_interval"] == 512
    for scale in (1e-9, 0.003, 0.5, 2.0):
        config_of(Cell(CARE.variant, "Hopper-v4", 0), Budget.scaled(scale))


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan"), float("inf")])
def test_a_scale_that_is_none_is_refused(scale: float) -> None:
    with pytest.raises(ValueError, match="--scale must be above zero and finite"):
        Budget.scaled(scale)


def test_a_cell_that_a_figure_measures_is_measured_in_every_study() -> None:
    pendulum, hopper = (config_of(Cell(CARE.variant, env, 0), Budget.scaled(1)) for env in (IDP, "Hopper-v4"))
    assert pendulum.measure == ("wasserstein",)
    assert hopper.measure == ()


def test_the_budget_is_part_of_the_name() -> None:
    cell = Cell(CARE.variant, "Hopper-v4", 0)
    names = {config_of(cell, Budget.scaled(scale)).name() for scale in (1, 0.1, 0.01)}
    assert len(names) == 3


def test_which_runs_belong_to_a_cell() -> None:
    variant = Variant("care-bn", neuron="clif")
    config = config_of(Cell(variant, "Hopper-v4", 4), Budget.scaled(0.1)).as_json()
    assert belongs(config, variant, "Hopper-v4")
    assert belongs(config | {"threads": 2, "seed": 9}, variant, "Hopper-v4")
    assert not belongs(config, variant, "Ant-v4")
    assert not belongs(config, Variant("bn", neuron="clif"), "Hopper-v4")
    for other in ({"gamma": 0.9}, {"hidden": [8]}, {"time_steps": 8}, {"neuron": "lif"}, {"unheard_of": 1}):
        assert not belongs(config | other, variant, "Hopper-v4"), other
    older = {name: value for name, value in config.items() if name != "raw_bytes"}
    assert belongs(older, variant, "Hopper-v4")


def gathered(runs: Path, **options: Any) -> Gathered:
    return gather(EXPLORATION, read_runs([runs]).records, **options)


def test_runs_are_sorted_into_cells(tmp_path: Path) -> None:
    for seed in range(3):
        write_run(tmp_path / f"care{seed}", "care-bn", "Hopper-v4", seed)
    write_run(tmp_path / "copy", "care-bn", "Hopper-v4", 0)
    write_run(tmp_path / "begun", "care-bn", "Hopper-v4", 3, done=10_000)
    write_run(tmp_path / "other", "care-bn", "Hopper-v4", 4, gamma=0.5)
    found = gathered(tmp_path)
    cell = found.cell(CARE, "Hopper-v4")
    assert [run.seed for run in cell.complete] == [0, 1, 2]
    assert [run.seed for run in cell.unfinished] == [3]
    assert cell.budget is not None
    assert cell.budget.total_timesteps == 20_000
    assert found.problems == []
    assert found.scores(CARE, "max").keys() == {"Hopper-v4"}
    assert found.scores(BN, "max") == {}
    assert len(gathered(tmp_path, seeds=2).cell(CARE, "Hopper-v4").complete) == 2
    assert gathered(tmp_path, envs=(IDP,)).cell(CARE, "Hopper-v4").complete == []


def test_mixed_budgets_are_told_and_not_averaged(tmp_path: Path) -> None:
    write_run(tmp_path / "short", seed=0, total=20_000)
    write_run(tmp_path / "long", seed=1, total=100_000)
    write_run(tmp_path / "bn", "bn", seed=0)
    found = gathered(tmp_path)
    assert found.cell(CARE, "Hopper-v4").mixed
    assert found.cell(CARE, "Hopper-v4").complete == []
    assert len(found.cell(BN, "Hopper-v4").complete) == 1  # the rest is still there
    assert found.problems == [
        "CaRe-BN on Hopper-v4 has runs at several budgets (20,000 steps and 100,000 steps), which are not averaged: "
        "keep those of one budget in a directory of their own"  # their intervals are those of no --scale
    ]
    write_run(tmp_path / "short-bn", "bn", seed=0, total=100_000)
    write_run(tmp_path / "a", seed=0, env_id="Ant-v4")
    write_run(tmp_path / "b", seed=1, env_id="Ant-v4", total=100_000)
    [problem] = gathered(tmp_path).problems  # one sentence for all
    assert problem.startswith("BN on Hopper-v4, CaRe-BN on Ant-v4 and Hopper-v4 have runs at several budgets (20,000 ")


def test_a_scale_chooses_among_budgets(tmp_path: Path) -> None:
    for scale in (0.2, 1.0):
        budget = Budget.scaled(scale)
        options = {"learning_starts": budget.learning_starts, "eval_interval": budget.eval_interval}
        write_run(tmp_path / str(scale), total=budget.total_timesteps, **options)
    [problem] = gathered(tmp_path).problems
    assert problem.endswith("which are not averaged: choose one with --scale 0.2 or --scale 1")
    found = gathered(tmp_path, scale=0.2)
    assert found.problems == []
    assert [run.total for run in found.cell(CARE, "Hopper-v4").complete] == [205_000]


def test_a_method_that_this_version_lacks_is_one_sentence() -> None:
    study = MAIN
    lacking = [row.label for row in study.rows if lacks_method(row.variant)]
    problems = gather(study, []).problems
    assert len(problems) == len(lacking)
    assert all("this version has no method" in problem for problem in problems)


def test_gathering_reads_what_was_written(tmp_path: Path) -> None:
    """Not through the fake: the configuration of a real cell, written as a run writes it."""
    config = config_of(Cell(CARE.variant, "Hopper-v4", 0), Budget.scaled(0.01))
    written = json.loads(json.dumps(config.as_json()))
    run = RunRecord(tmp_path, written, [10_250], [5.0], [1.0], 10_250, True, Timing(), "", {})
    assert gather(EXPLORATION, [run], scale=0.01).cell(CARE, "Hopper-v4").complete == [run]
    assert gather(EXPLORATION, [run], scale=0.02).cell(CARE, "Hopper-v4").complete == []

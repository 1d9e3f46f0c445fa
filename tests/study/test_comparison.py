"""A row beside another and a cell by itself: against numbers worked by hand and a slow bootstrap."""

import itertools
from pathlib import Path

import pytest
from fake_runs import write_converted_run, write_run

from carebn.paper import STUDIES
from carebn.paper.facts import IDP
from carebn.paper.tables import MAIN
from carebn.study.cells import Budget
from carebn.study.evidence.gather import Gathered, gather
from carebn.study.evidence.runs import RunRecord, read_run
from carebn.study.evidence.scores import SCORES
from carebn.study.views.comparison import compare, view_cells

ANN, CARE, TDBN, CONVERTED = (MAIN.row(label) for label in ("ANN", "CaRe-BN", "tdBN", "ANN-SNN"))


def run_of(directory: Path, method: str, env: str, seed: int, returns: list[float], **options: object) -> RunRecord:
    neuron = "none" if method.startswith("ann") else "clif"
    record = read_run(write_run(directory / f"{method}{env}{seed}", method, env, seed, neuron=neuron, **options))
    record.returns[:] = returns
    return record


def gathered(records: list[RunRecord], *envs: str) -> Gathered:
    return gather(MAIN, records, envs=envs)


def test_two_rows_by_hand(tmp_path: Path) -> None:
    """On the pendulum 10 and 30 beside 20 and 20, on Hopper 60 and 60 beside 20 and 20."""
    records = []
    for env, ours in ((IDP, (10.0, 30.0)), ("Hopper-v4", (60.0, 60.0))):
        for seed, value in enumerate(ours):
            records.append(run_of(tmp_path, "care-bn", env, seed, [0.0, value, 1.0, 2.0]))
            records.append(run_of(tmp_path, "ann", env, seed, [0.0, 20.0, 1.0, 2.0]))
    found = gathered(records, IDP, "Hopper-v4")
    beside = compare(found, CARE, ANN)
    assert beside.gain == pytest.approx(100)  # of 1 and 3
    assert beside.gain_without_idp == pytest.approx(200)
    assert beside.iqm is not None
    assert beside.iqm.value == pytest.approx(2.25)  # of 0.5, 1.5, 3, 3 the middle two
    assert beside.better is not None
    assert beside.better.value == pytest.approx(0.75)  # half of the pairs on the pendulum, all on Hopper
    assert (beside.better.low, beside.better.high) == (0.5, 1.0)
    hopper = compare(found, CARE, ANN, envs=("Hopper-v4",))
    assert hopper.gain == pytest.approx(200)
    assert hopper.better == (1, 1, 1)
    back = compare(found, ANN, CARE)
    assert back.better is not None
    assert back.better.value == pytest.approx(0.25)
    assert back.gain == pytest.approx((20 / 20 + 20 / 60) / 2 * 100 - 100)
    final = compare(found, CARE, ANN, "final")
    assert (final.gain, final.better) == (pytest.approx(0), (0.5, 0.5, 0.5))
    assert compare(found, TDBN, ANN).better is None  # no run


def test_below_zero_there_is_no_ratio_but_better_is_better(tmp_path: Path) -> None:
    records = [run_of(tmp_path, "care-bn", "Hopper-v4", 0, [-9.0, -5.0, -6.0, -7.0])]
    records.append(run_of(tmp_path, "ann", "Hopper-v4", 0, [-9.0, -8.0, -8.5, -9.0]))
    beside = compare(gathered(records, "Hopper-v4"), CARE, ANN)
    assert (beside.gain, beside.gain_without_idp, beside.iqm) == (None, None, None)
    assert beside.better == (1, 1, 1)


def test_what_may_not_be_compared(tmp_path: Path) -> None:
    """Other budgets; and maxima with the final policies that a conversion leaves, from whichever side one looks."""
    longer = [run_of(tmp_path, "ann", "Hopper-v4", 0, [1.0, 2.0, 3.0, 4.0])]
    longer.append(read_run(write_run(tmp_path / "longer", "care-bn", "Hopper-v4", total=40_000)))
    assert compare(gathered(longer, "Hopper-v4"), CARE, ANN).better is None
    records = [run_of(tmp_path / "b", "ann", "Hopper-v4", 0, [10.0, 100.0, 50.0, 80.0])]
    records.append(read_run(write_converted_run(tmp_path / "converted", "Hopper-v4", 72.0)))
    found = gathered(records, "Hopper-v4")
    assert compare(found, CONVERTED, ANN).gain == pytest.approx(72 / 80 * 100 - 100)
    assert compare(found, ANN, CONVERTED).gain == pytest.approx(80 / 72 * 100 - 100)


def test_a_cell_has_every_score_of_every_seed(tmp_path: Path) -> None:
    curves = {0: [10.0, 40.0, 20.0, 30.0], 2: [0.0, 0.0, 60.0, 30.0], 3: [4.0, 8.0, 8.0, 6.0]}
    records = [run_of(tmp_path, "care-bn", "Hopper-v4", seed, curve) for seed, curve in curves.items()]
    records.append(read_run(write_run(tmp_path / "begun", "care-bn", "Hopper-v4", 1, done=10_000)))
    [cell] = view_cells(gather(MAIN, records))
    assert (cell.row, cell.env_id, cell.budget) == (CARE, "Hopper-v4", Budget.of(records[0].config))
    assert cell.scores.keys() == SCORES.keys()
    assert {name: score.by_seed for name, score in cell.scores.items()} == {
        "max": {0: 40, 2: 60, 3: 8},
        "last": {0: 25, 2: 22.5, 3: 6.5},
        "final": {0: 30, 2: 30, 3: 6},
        "area": {0: pytest.approx(80 / 3), 2: 25, 3: 7},  # of four evaluations the ends count half
    }
    final = cell.scores["final"]
    assert (final.mean, final.std) == (22, pytest.approx(128**0.5))
    # Three runs: their mean, because a quarter of three is no value. Of 27 samples one is 6, 6, 6 and eight are 30s.
    every = sorted(sum(drawn) / 3 for drawn in itertools.product((30.0, 30.0, 6.0), repeat=3))
    assert final.iqm == (22, every[0], every[-1]) == (22, 6, 30)


def test_the_baseline_of_a_study_is_a_cell_too(tmp_path: Path) -> None:
    records = [run_of(tmp_path, "ann", "Hopper-v4", 0, [1.0, 2.0, 3.0, 2.0])]
    [cell] = view_cells(gather(STUDIES["ablation"], records))
    assert cell.row.label == "ANN"
    assert cell.scores["max"].iqm == (3, 3, 3)
    assert view_cells(gather(MAIN, [])) == []

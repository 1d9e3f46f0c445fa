"""Studies from runs: the numbers beside the paper's, worked by hand; missing stays missing."""

from pathlib import Path

import pytest
from fake_runs import write_run

from carebn.study.paper import STUDIES
from carebn.study.records import Published
from carebn.study.report.views import Number, view_studies, view_study
from carebn.study.runs import RunRecord, read_run

ENVS = ("InvertedDoublePendulum-v4", "Ant-v4", "HalfCheetah-v4", "Hopper-v4", "Walker2d-v4")


def run_of(directory: Path, method: str, env: str, seed: int, returns: list[float], **options: object) -> RunRecord:
    neuron = "none" if method.startswith("ann") else "clif"
    record = read_run(write_run(directory / f"{method}{env}{seed}", method, env, seed, neuron=neuron, **options))
    record.returns[:] = returns
    return record


def test_difference_and_mark() -> None:
    number = Number((110.0, 3.0), 5, 0, Published(100.0, 4.0))
    assert number.difference == pytest.approx(10.0)
    assert number.mark == "above"  # 10 > √(3² + 4²) = 5
    assert Number((95.5, 3.0), 5, 0, Published(100.0, 4.0)).mark == ""
    assert Number((94.9, 3.0), 5, 0, Published(100.0, 4.0)).mark == "below"
    assert Number(None, 0, 1, Published(100.0, 4.0)).difference is None
    assert Number(None, 0, 1, Published(100.0, 4.0)).mark == ""
    assert Number((1.0, 0.0), 1, 0, None).difference is None


def test_main_table(tmp_path: Path) -> None:
    records = []
    for env in ENVS:
        for seed in range(2):
            records.append(run_of(tmp_path, "ann", env, seed, [10.0, 100.0, 50.0, 90.0]))
            records.append(run_of(tmp_path, "care-bn", env, seed, [10.0, 50.0, 120.0 + 20 * seed, 90.0]))
    records.append(run_of(tmp_path, "tdbn", ENVS[0], 0, [5.0, 4.0, 3.0, 2.0]))
    records.append(read_run(write_run(tmp_path / "half", "tdbn", ENVS[1], 0, done=10_000)))
    view = view_study(STUDIES["main"], records)
    assert view is not None
    assert view.reduced
    assert view.budgets == [20_000]
    table = view.table
    assert table is not None
    assert [row.label for row in table.rows] == [row.label for row in STUDIES["main"].rows]
    rows = {row.label: row for row in table.rows}
    care = rows["CaRe-BN"]
    assert all(number.ours == (130.0, 10.0) and number.seeds == 2 for number in care.numbers)  # the best evaluations
    assert care.numbers[0].published == Published(9348, 2)
    (apg, paper), (without, paper_without), (iqm, _) = care.summaries
    assert apg == pytest.approx(30.0)
    assert without == pytest.approx(30.0)
    assert paper == 5.90
    assert paper_without == pytest.approx(1.22, abs=0.005)
    assert iqm == pytest.approx(1.30)  # of ten scores 1.2 and 1.4 by turns, the middle six
    tdbn = rows["tdBN"]
    assert tdbn.numbers[0].ours == (5.0, 0.0)
    assert tdbn.numbers[1].ours is None  # unfinished runs are mentioned, not counted
    assert tdbn.numbers[1].unfinished == 1
    assert tdbn.summaries[0] == (None, -2.28)  # an APG over one environment would be of something else


def test_ablation_and_relative_variance(tmp_path: Path) -> None:
    records = []
    for env in ENVS:
        for seed in range(2):
            records.append(run_of(tmp_path, "ann", env, seed, [100.0, 90.0, 80.0, 90.0 + 20 * seed]))
            records.append(run_of(tmp_path, "care-bn", env, seed, [0.0, 220.0, 0.0, 0.0]))
    ablation = view_study(STUDIES["ablation"], records)
    assert ablation is not None
    bars = {bar.label: bar for bar in ablation.bars}
    assert bars["CaRe-BN"].value == pytest.approx(220 / 105 * 100)  # the ANN's best: 100 and 110
    assert bars["BN"].value is None
    variance = view_study(STUDIES["relative-variance"], records)
    assert variance is not None
    ann = next(bar for bar in variance.bars if bar.label == "TD3 ANN")
    assert ann.value == pytest.approx(10.0)  # of 90 and 110
    assert ann.published == 21.24


def test_curves_exploration_and_wasserstein(tmp_path: Path) -> None:
    records = []
    for method in ("bn", "care-bn"):
        where = write_run(tmp_path / method, method, ENVS[0], wasserstein=True)
        records.append(read_run(where, episodes=True, measures=True))
    exploration = view_study(STUDIES["exploration"], records)
    assert exploration is not None
    assert [panel.title for panel in exploration.panels] == [ENVS[0]]
    assert [label for label, _ in exploration.panels[0].lines] == ["BN", "CaRe-BN"]
    curves = view_study(STUDIES["td3-curves"], records)
    assert curves is not None
    assert [label for label, _ in curves.panels[0].lines] == ["CLIF + CaRe-BN"]
    assert "ANN" in curves.panels[0].missing
    distances = view_study(STUDIES["wasserstein"], records)
    assert distances is not None
    assert len(distances.panels) == 3
    first = dict(distances.panels[0].lines)
    assert set(first) == {"BN", "BN, re-calibrated", "CaRe-BN", "CaRe-BN, re-calibrated"}
    assert set(first["BN"].mean) == {0.2}
    assert set(first["CaRe-BN, re-calibrated"].mean) == {0.1}


def test_normalised_curves(tmp_path: Path) -> None:
    records = [
        run_of(tmp_path, "ann", env, 0, [10.0 * i, 20.0 * i, 40.0 * i, 20.0 * i]) for i, env in enumerate(ENVS, 1)
    ]
    view = view_study(STUDIES["normalised-curves"], records)
    assert view is not None
    [(label, curve)] = view.panels[0].lines
    assert label == "ANN"
    assert curve.x == [0.25, 0.5, 0.75, 1.0]
    assert curve.mean == pytest.approx([0.25, 0.5, 1.0, 0.5])
    assert len(view.panels[0].missing) == 3


def test_cost_from_whole_runs(tmp_path: Path) -> None:
    view = view_study(STUDIES["training-cost"], [read_run(write_run(tmp_path / "a", "tdbn", "Ant-v4"))])
    assert view is not None
    assert view.table is not None
    time, memory = view.table.rows[0].numbers
    assert time.ours == (50.0, 0.0)  # at 100 steps/s
    assert time.published == Published(242)
    assert memory.ours is None


def test_every_study_is_shown_or_said_to_be_absent(tmp_path: Path) -> None:
    views, absent = view_studies([read_run(write_run(tmp_path / "a"))])
    assert len(views) + len(absent) == len(STUDIES)
    assert {view.study.name for view in views} >= {"main", "td3-curves"}
    assert view_studies([])[0] == []

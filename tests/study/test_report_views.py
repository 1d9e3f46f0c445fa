"""Studies from runs: the numbers beside the paper's, worked by hand; missing stays missing."""

import json
from pathlib import Path

import pytest
from fake_runs import write_converted_run, write_costs, write_energy, write_run

from carebn.paper import STUDIES
from carebn.paper.records import Published
from carebn.study.cells import Budget
from carebn.study.evidence.measured import read_measured
from carebn.study.evidence.runs import RunRecord, read_run
from carebn.study.views.explorer import explore
from carebn.study.views.parts import Number
from carebn.study.views.studies import view_studies, view_study

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
    assert (number.difference_told, Number((95.5, 3.0), 5, 0, Published(100.0, 4.0)).difference_told) == (
        "+10.0 %",
        "−4.5 %",
    )


def test_what_cannot_be_told_is_not_marked() -> None:
    """One seed has no standard deviation, some published numbers have none, and 0.0 % is no difference."""
    one = Number((9343.48, 0.0), 1, 0, Published(9345.0, 1.0))
    assert (one.mark, one.difference_told) == ("", "−0.02 %")
    assert Number((9343.48, 0.1), 2, 0, Published(9345.0, 1.0)).mark == "below"
    assert Number((70.0, 0.1), 2, 0, Published(242.0)).mark == ""
    equal = Number((9344.9, 0.01), 5, 0, Published(9345.0, 0.01))
    assert (equal.mark, equal.difference_told) == ("", "0.0 %")


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
    assert [row.label.split(" (")[0] for row in table.rows] == [row.label for row in STUDIES["main"].rows]
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


def test_cost_from_its_own_measurement(tmp_path: Path) -> None:
    """Not from the speed of whole runs, which evaluate as well and do not know their memory."""
    runs = [read_run(write_run(tmp_path / "a", "tdbn", "Ant-v4"))]
    assert view_study(STUDIES["training-cost"], runs) is None
    write_costs(tmp_path, {"tdbn": (70.25, 812.5), "care-bn": (71.0, 820.0), "bn": (69.0, 810.0)})
    view = view_study(STUDIES["training-cost"], runs, read_measured([tmp_path]))
    assert view is not None
    assert view.table is not None
    time, memory = view.table.rows[0].numbers
    assert (time.ours, time.published) == ((70.25, 0.0), Published(242))
    assert (memory.ours, memory.published) == ((812.5, 0.0), Published(437))
    assert [[n.ours for n in row.numbers] for row in view.table.rows[1:4]] == [[None, None]] * 3
    assert view.table.rows[4].numbers[1].ours == (820.0, 0.0)
    assert "400 steps of each" in view.made
    for other in ({"env_id": "Hopper-v4"}, {"algo": "sac"}, {"neuron": "lif"}):  # of something else than the table
        write_costs(tmp_path, {"tdbn": (70.25, 812.5)}, **other)
        assert view_study(STUDIES["training-cost"], runs, read_measured([tmp_path])) is None


def test_energy_of_counted_policies(tmp_path: Path) -> None:
    """Synapses at the paper's prices, mean over the seeds that were counted; the average needs every environment."""
    study, records = STUDIES["energy"], []
    for i, env in enumerate(study.envs):
        for seed in (0, 1):
            directory = write_run(tmp_path / f"{env}-{seed}", env_id=env, seed=seed)
            records.append(read_run(directory))
            if env != "Hopper-v4" or seed == 0:
                write_energy(directory, 10.0 + i + 2 * seed)
    view = view_study(study, records)
    assert view is not None
    assert view.table is not None
    ann, care = view.table.rows
    assert all(number.ours is None for number in ann.numbers)
    assert ann.summaries == [(None, 1775.36)]
    assert [number.ours for number in care.numbers] == [(11.0, 1.0), (12.0, 1.0), (13.0, 1.0), (13.0, 0.0), (15.0, 1.0)]
    assert [number.seeds for number in care.numbers] == [2, 2, 2, 1, 2]
    assert care.numbers[0].published == Published(12.94)
    [(average, published)] = care.summaries
    assert average == pytest.approx((11 + 12 + 13 + 13 + 15) / 5)
    assert published == 16.48
    assert "1 of 10 runs have no energy.json" in " ".join(view.problems)
    (tmp_path / "Ant-v4-0" / "policy.safetensors").write_bytes(b"another")
    for seed in (0, 1):
        (tmp_path / f"Walker2d-v4-{seed}" / "energy.json").write_text("[]")
    view = view_study(study, records)
    assert view is not None
    assert view.table is not None
    numbers = view.table.rows[1].numbers
    assert (numbers[1].ours, numbers[4].ours) == ((13.0, 0.0), None)
    assert view.table.rows[1].summaries[0][0] is None
    assert any("Ant-v4-0/energy.json is about another policy" in problem for problem in view.problems)
    assert any("Walker2d-v4-1/energy.json is damaged: it holds a list" in problem for problem in view.problems)
    for path in tmp_path.glob("*/energy.json"):
        path.unlink()
    assert view_study(study, records) is None


def test_distributions_that_were_measured(tmp_path: Path) -> None:
    study = STUDIES["input-distributions"]
    runs = [read_run(write_run(tmp_path / m, m, study.envs[0])) for m in ("bn", "care-bn")]
    assert view_study(study, runs) is None
    config = runs[0].config
    moment = {"edges": [0.0, 1.0, 3.0], "density": [0.6, 0.2], "mean": 1.0, "var": 0.25}
    moments = [moment | {"updates": 0, "distance": 0.125}, moment | {"updates": 25, "distance": 0.5}]
    stranger = {"run": "c", "config": config | {"env_id": "Hopper-v4"}, "layer": 1, "most": moments, "least": moments}
    ours = stranger | {"run": "bn", "config": config, "layer": 2, "least": moments[:1]}
    (tmp_path / "input-distributions.json").write_text(json.dumps({"runs": [stranger, ours]}))
    view = view_study(study, runs, read_measured([tmp_path]))
    assert view is not None
    assert "one run each, after 20,000 steps; not measured: CaRe-BN" in view.made
    most, least = view.panels
    assert most.title == "BN, layer 2, the feature that moves most: W1 0.125, 0.500"
    assert least.title == "BN, layer 2, the feature that moves least: W1 0.125"
    assert [label for label, _ in most.lines] == [
        "after 0 updates, true", "after 0 updates, believed", "after 25 updates, true", "after 25 updates, believed"
    ]  # fmt: skip
    true, believed = (curve for _, curve in least.lines)
    assert (true.x, true.mean) == ([0.5, 2.0], [0.6, 0.2])
    assert believed.mean == pytest.approx([0.48394, 0.10798], abs=1e-5)  # N(1, 0.25) there


def test_a_converted_policy_is_compared_with_final_ones(tmp_path: Path) -> None:
    """ANN: best 100, last 80 everywhere; converted: 72. That is 10 % below what was converted, not 28 %."""
    study, records = STUDIES["main"], []
    for env in study.envs:
        records.append(run_of(tmp_path, "ann", env, 0, [10.0, 100.0, 50.0, 80.0]))
        records.append(run_of(tmp_path, "care-bn", env, 0, [10.0, 20.0, 90.0, 50.0]))
        records.append(read_run(write_converted_run(tmp_path / f"converted-{env}", env, 72.0)))
    view = view_study(study, records)
    assert view is not None
    assert view.table is not None
    rows = {row.label: row for row in view.table.rows}
    converted = rows["ANN-SNN (ours: final policy, T = 100)"]
    assert converted.numbers[0].ours == (72.0, 0.0)
    (gain, paper), (without, _), (ratio, _) = converted.summaries
    assert (gain, without, ratio) == (pytest.approx(-10), pytest.approx(-10), pytest.approx(0.9))
    assert paper == -21.11
    assert rows["CaRe-BN"].summaries[0][0] == pytest.approx(-10)  # best to best
    assert rows["ANN"].summaries[0][0] == 0
    line = next(line for line in explore(records)["Ant-v4"] if "ANN-SNN" in line.label)
    assert line.label == "ANN-SNN, final policy converted, T = 100"
    assert (line.best, line.last) == (None, (72.0, 0.0))


def test_every_study_is_shown_or_said_to_be_absent(tmp_path: Path) -> None:
    views, absent = view_studies([read_run(write_run(tmp_path / "a"))])
    assert len(views) + len(absent) == len(STUDIES)
    assert {view.study.name for view in views} >= {"main", "td3-curves"}
    assert view_studies([])[0] == []


def test_a_study_without_a_number_is_absent_and_says_why(tmp_path: Path) -> None:
    """Not a card, a table or a picture in which everything is missing."""
    views, absent = view_studies([read_run(write_run(tmp_path / "a"))])
    assert [view.study.name for view in views] == ["main", "clif-td3", "time-steps", "td3-curves"]
    assert all(len(view.labels) == 1 for view in views)
    why = {one.study.name: one.why for one in absent}
    assert why["relative-variance"] == "1 complete run is not enough for a number of it"
    assert why["normalised-curves"] == why["ablation"] == why["relative-variance"]
    assert why["sac"] == ""  # no run of it at all
    table = views[0].table
    assert table is not None
    assert table.begun() == ([len(table.rows) - 1], [3])  # CaRe-BN on Hopper


def test_several_budgets_are_told_and_one_can_be_chosen(tmp_path: Path) -> None:
    for scale in (0.2, 1.0):
        budget = Budget.scaled(scale)
        options = {"learning_starts": budget.learning_starts, "eval_interval": budget.eval_interval}
        write_run(tmp_path / str(scale), total=budget.total_timesteps, **options)
    records = [read_run(tmp_path / name) for name in ("0.2", "1.0")]
    views, absent = view_studies(records)
    assert views == []
    assert "choose one with --scale 0.2 or --scale 1" in next(one.why for one in absent if one.study.name == "main")
    views, _ = view_studies(records, scale=0.2)
    assert views[0].budgets == [205_000]


def test_nothing_is_relative_to_a_baseline_of_another_budget(tmp_path: Path) -> None:
    records = []
    for env in ENVS:
        records.append(run_of(tmp_path, "ann", env, 0, [10.0, 100.0, 50.0, 80.0]))
        records.append(read_run(write_run(tmp_path / f"longer{env}", "care-bn", env, total=40_000)))
        records.append(run_of(tmp_path, "bn", env, 0, [10.0, 50.0, 50.0, 40.0]))
    view = view_study(STUDIES["main"], records)
    assert view is not None
    assert view.table is not None
    care = view.table.rows[-1]
    assert care.numbers[0].ours is not None
    assert [ours for ours, _ in care.summaries] == [None, None, None]
    ablation = view_study(STUDIES["ablation"], records)
    assert ablation is not None
    assert {bar.label: bar.value for bar in ablation.bars} == {
        "BN": pytest.approx(50), "Re-BN": None, "Ca-BN": None, "CaRe-BN": None
    }  # fmt: skip

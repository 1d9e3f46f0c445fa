"""``carebn study``: what it prints, and that mistakes are one sentence while the rest is still shown."""

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from abilities import reads_proc
from fake_runs import PROBE, write_converted_run, write_costs, write_energy, write_run
from forked import Warm
from said import Said

from carebn.paper import STUDIES
from carebn.paper.facts import MUJOCO
from carebn.study.evidence.statistics import iqm, probability_of_improvement

pytestmark = pytest.mark.slow

TINY = ["ann-td3", "--envs", "IDP", "--scale", "0.0001", "--seeds", "1"]


@pytest.fixture
def study(carebn):
    """Runs ``carebn study`` in this process, in an empty directory."""

    def call(*words: str) -> Said:
        said = carebn("study", *words)
        assert "Traceback" not in said.err
        return said

    return call


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in re.split("[│┃]", line)[1:-1]]


def rows(text: str) -> list[list[str]]:
    return [cells(line) for line in text.splitlines() if line.startswith("│")]


def test_list_names_every_table_and_figure(tmp_path: Path, study) -> None:
    said = study("list")
    assert said.code == 0
    for one in STUDIES.values():
        assert re.search(rf"^{one.name} +{one.where} +{re.escape(one.title)} +\d+$", said.out, re.M), one.name
    assert "13 tables and 13 figures" in said.out


# The main table, typed off the paper once more.
PUBLISHED = """
ANN      7503 ± 3713  4770 ± 1014  10857 ± 475  3410 ± 164  4340 ± 383  0.00%
ANN-SNN  3859 ± 4440  3550 ± 963  8703 ± 658  3098 ± 281  4235 ± 354  -21.11%
pop-SAN  9351 ± 1  4590 ± 1006  9594 ± 689  2772 ± 1263  3307 ± 1514  -6.66%
MDC-SAN  9350 ± 1  4800 ± 994  9147 ± 231  3446 ± 131  3964 ± 1353  0.37%
ILC-SAN  9352 ± 1  5584 ± 272  9222 ± 615  3403 ± 148  4200 ± 717  4.64%
tdBN     9346 ± 2  4403 ± 1134  9402 ± 527  3592 ± 46  3464 ± 970  -2.28%
BNTT     9347 ± 1  4379 ± 941  9466 ± 659  3524 ± 161  3689 ± 1247  -1.62%
TEBN     9349 ± 1  4408 ± 1156  9452 ± 539  3472 ± 135  4235 ± 381  0.69%
TABN     9348 ± 2  4382 ± 753  9784 ± 169  3585 ± 83  4537 ± 398  3.25%
CaRe-BN  9348 ± 2  5373 ± 159  9563 ± 442  3586 ± 49  4296 ± 268  5.90%
"""


def test_the_main_table_without_any_run(tmp_path: Path, study) -> None:
    said = study("show", "main")
    assert said.code == 0
    shown = [[label, *numbers] for label, source, *numbers in rows(said.out) if source == "paper"]
    assert shown == [re.split(" {2,}", line) for line in PUBLISHED.strip().splitlines()]
    ours = [numbers for _, source, *numbers in rows(said.out) if source.startswith("ours")]
    assert ours == [["–"] * 6] * 10  # missing, and said to be
    assert "carebn: runs holds no run of main; make them with: carebn study run main\n" in said.err
    assert not (tmp_path / "runs").exists()


def exact_run(
    directory: Path, method: str, env_id: str, seed: int, best: float, last: float | None = None, **options: Any
) -> None:
    """A run whose best evaluation is ``best`` and whose last is ``last``, or one less."""
    write_run(directory, method, env_id, seed, total=10_000, **options)
    lines = [
        json.dumps({"step": step, "eval/mean_return": score, "eval/std_return": 0.0})
        for step, score in ((5_000, best), (10_000, best - 1 if last is None else last))
    ]
    (directory / "metrics.jsonl").write_text("\n".join(lines) + "\n")


def test_our_numbers_by_hand(tmp_path: Path, study) -> None:
    """CaRe-BN at 200 and 400 everywhere, the ANN at 100 and 300: mean 300 ± 100 and 200 ± 100, a gain of 50 %."""
    for env_id in MUJOCO:
        for seed, (care, ann) in enumerate([(200, 100), (400, 300)]):
            exact_run(tmp_path / "runs" / f"c{env_id}{seed}", "care-bn", env_id, seed, care)
            exact_run(tmp_path / "runs" / f"a{env_id}{seed}", "ann", env_id, seed, ann, neuron="none")
    exact_run(tmp_path / "runs" / "t", "tab", "Ant-v4", 0, 50)
    said = study("show", "main")
    table = rows(said.out)
    ours = {table[i - 1][0]: numbers for i, (_, source, *numbers) in enumerate(table) if source == "ours"}
    assert ours["CaRe-BN"] == ["300 ± 100 (2)"] * 5 + ["50.00%"]
    assert ours["ANN"] == ["200 ± 100 (2)"] * 5 + ["0.00%"]
    assert ours["TABN"] == ["–", "50 (1)", "–", "–", "–", "–"]  # no gain over some of the environments
    assert "ours at 10,000 steps (0.00976 × the paper's)" in said.out
    overall = next(row for row in table if row[0] == "CaRe-BN" and row[1] == "50.00%")
    scores = {env: [1.0, 2.0] for env in MUJOCO}
    middle, better = iqm(scores, MUJOCO), probability_of_improvement(scores, {e: [0.5, 1.5] for e in MUJOCO}, MUJOCO)
    assert middle is not None
    assert better is not None
    assert middle.value == 1.5
    assert better.value == 0.75
    assert overall[2] == "50.00%"  # without the pendulum
    assert overall[3].startswith("1.500 [")
    assert overall[4].startswith("0.750 [")
    assert overall[5] == f"{100 / 299:.2%}"  # of the last evaluations: 199 and 399
    last = study("show", "main", "--score", "final")
    assert "299 ± 100 (2)" in last.out
    area = study("show", "main", "--score", "area")
    assert "300 ± 100 (2)" in area.out  # 199.5 and 399.5
    assert "mean height of the learning curve; ours at 10,000 steps" in area.out


def test_problems_are_a_sentence_each_and_the_rest_is_shown(tmp_path: Path, study) -> None:
    runs = tmp_path / "runs"
    exact_run(runs / "good", "bn", "Hopper-v4", 0, 77)
    exact_run(runs / "short", "care-bn", "Hopper-v4", 0, 5)
    write_run(runs / "long", "care-bn", "Hopper-v4", 1, total=20_000)
    exact_run(runs / "corrupt", "care-bn", "Ant-v4", 0, 5)
    (runs / "corrupt" / "config.json").write_text("{")
    write_run(runs / "begun", "bn", "Ant-v4", 0, total=20_000, done=5_000)
    said = study("show", "exploration")
    assert said.code == 0
    complaints = said.err.splitlines()
    assert len(complaints) == 2
    assert "corrupt" in complaints[0]
    assert "CaRe-BN on Hopper-v4 has runs at several budgets (10,000 steps and 20,000 steps)" in complaints[1]
    table = {row[0]: row for row in rows(said.out)}
    assert table["BN"][5] == "77 (1)"
    assert table["BN"][3] == "– (begun, 25%)"
    assert table["CaRe-BN"][5] == "mixed budgets"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["show", "mian"], "unknown study 'mian': did you mean 'main'?"),
        (["show", "main", "--scale", "0"], "--scale must be above zero and finite, got 0"),
        (["run", "main", "--scale", "-1"], "--scale must be above zero and finite, got -1"),
        (["run", "--dry-run"], "name a study, as in: carebn study run main;"),
        (["run", "main", "--seeds", "0"], "--seeds must be at least 1, got 0"),
        (["run", "main", "--workers", "0"], "--workers must be at least 1, got 0"),
        (["run", "main", "--envs", "Hoper-v4"], "did you mean 'Hopper-v4'"),
    ],
)
def test_mistakes_are_one_sentence(words: list[str], told: str, tmp_path: Path, study) -> None:
    said = study(*words)
    assert said.code == 1
    assert said.err.startswith("carebn: ")
    assert said.err.count("\n") == 1
    assert told in said.err
    assert said.out == ""
    assert list(tmp_path.iterdir()) == []


def test_an_unreachable_cluster_is_one_sentence(tmp_path: Path, study) -> None:
    pytest.importorskip("ray")
    said = study("run", *TINY, "--on", "ray", "--address", "127.0.0.1:1")
    assert said.code == 1
    assert said.err.startswith("carebn: no Ray cluster answers at 127.0.0.1:1 (")
    assert said.err.count("\n") == 1


def test_plan_stop_and_go_on(warm: Warm, tmp_path: Path, study) -> None:
    """A dry run tells what there is to do; Ctrl-C leaves a sweep that the same command completes."""
    plan = study("run", *TINY, "--dry-run")
    assert plan.code == 0
    assert "2 runs, 0 complete, 2 to do" in plan.out
    assert re.search(r"about \d+ s of one core, \d+ s with \d at a time: \d+ steps/s, from a short run of", plan.out)
    assert not (tmp_path / "runs").exists()

    process = warm.start(["study", "run", *TINY, "--workers", "1"], tmp_path)
    deadline = time.monotonic() + 250
    while not list(tmp_path.glob("runs/*/config.json")):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    code, out, err = process.said(250)
    assert code == 130, err
    assert "stopped: the same command goes on from here" in out
    assert "Traceback" not in err

    done = study("run", *TINY)
    assert done.code == 0, done.err
    assert "2 runs: 2 done, at 102 steps each, in runs" in done.out
    assert len(list(tmp_path.glob("runs/*/policy.safetensors"))) == 2

    again = study("run", *TINY, "--dry-run")
    assert "2 runs, 2 complete, 0 to do" in again.out
    more = study("run", *TINY[:-1], "2", "--dry-run")
    assert "4 runs, 2 complete, 2 to do" in more.out
    assert "steps/s, from runs that exist" in more.out
    words = ("run", "ann-td3", *TINY[1:-2], "--dry-run")  # the paper's seeds
    long, longer = study(*words), study(*words, "--every-run")
    listed = [len(re.findall("__s[0-9]+__", said.out)) for said in (long, longer)]
    assert listed == [6, 10]
    assert re.search(r"__s\d+__.*\n… 4 more \(--every-run names them\)\n.*__s\d+__.*\n10 runs, 2 complete", long.out)
    shown = study("show", "ann-td3", "--scale", "0.0001")
    assert shown.err == ""
    assert [row[2].endswith("(1)") for row in rows(shown.out) if row[1] == "ours"] == [True, True]


def test_a_converted_policy_is_scored_as_what_it_is(tmp_path: Path, study) -> None:
    """The ANN's best is 1000, its last evaluation 800, and of that final policy the conversion keeps 720: 90 %."""
    for env in MUJOCO:
        exact_run(tmp_path / "runs" / f"ann-{env}", "ann", env, 0, 1000.0, last=800.0, neuron="none")
        write_converted_run(tmp_path / "runs" / f"snn-{env}", env, 720.0, total=10_000)
    for score in ("max", "last", "final"):
        said = study("show", "main", "--score", score)
        (ours,) = (row for row in rows(said.out) if row[1] == "ours, final")
        assert ours[2:8] == ["720 (1)"] * 5 + ["-10.00%"]
        overall = next(row for row in rows(said.out) if row[0] == "ANN-SNN" and "%" in row[1])
        assert overall[1:3] == ["-10.00%", "-10.00%"]
        assert overall[3].startswith("0.900")
    assert "converted with T = 100 and evaluated once" in " ".join(said.out.split())


def test_training_cost_is_its_own_measurement(tmp_path: Path, study) -> None:
    write_run(tmp_path / "runs" / "a", "tdbn", "Ant-v4")
    said = study("show", "training-cost")
    assert said.code == 0
    assert "runs holds no measurement of training-cost; make it with: carebn measure cost tdbn bntt" in said.err
    assert {tuple(row[2:]) for row in rows(said.out) if row[1] == "ours"} == {("–", "–")}
    write_costs(tmp_path / "runs", {"tdbn": (70.4, 812.0), "care-bn": (71.0, 820.0)})
    said = study("show", "training-cost")
    assert said.err == ""
    assert [tuple(row[2:]) for row in rows(said.out) if row[1] == "ours"] == [
        ("70", "812"), ("–", "–"), ("–", "–"), ("–", "–"), ("71", "820")
    ]  # fmt: skip
    (tmp_path / "runs" / "training-cost.json").write_text('{"costs": 3}')
    assert "training-cost.json cannot be read as a measurement" in study("show", "training-cost").err


def test_no_runs_at_all_are_told_once(tmp_path: Path, study) -> None:
    said = study("show", "all", "--runs", "nowhere")
    assert said.code == 0
    assert said.err.count("nowhere holds no run") == 1
    assert "nowhere holds no runs; make them with: carebn study run all --runs nowhere\n" in said.err


def test_a_measurement_of_another_shape_is_told_without_names_of_exceptions(tmp_path: Path, study) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "training-cost.json").write_text("{}")
    said = study("show", "training-cost")
    assert "training-cost.json" in said.err
    assert "Error" not in said.err


def test_training_cost_needs_no_runs(study) -> None:
    said = study("run", "training-cost", "--dry-run")
    assert said.code == 0
    assert "training-cost is made of more than runs: carebn measure cost tdbn bntt tebn tab care-bn" in said.err
    assert "0 runs" in said.out


def test_energy_of_the_counted(tmp_path: Path, study) -> None:
    for i, env in enumerate(MUJOCO):
        write_energy(write_run(tmp_path / "runs" / env, env_id=env), 12.0 + i)
    write_run(tmp_path / "runs" / "uncounted", env_id=MUJOCO[0], seed=1)
    said = study("show", "energy")
    assert "1 of 6 runs have no energy.json: carebn energy RUN makes it" in said.err
    ann, care = (row for row in rows(said.out) if row[1] == "ours")
    assert ann[2:] == ["–"] * 6
    assert care[2:] == ["12.00 (1)", "13.00 (1)", "14.00 (1)", "15.00 (1)", "16.00 (1)", "14.00"]
    one = study("show", "energy", "--envs", "Ant")
    assert [row[2:] for row in rows(one.out) if row[1] == "ours"] == [["–", "–"], ["13.00 (1)", "13.00"]]


def test_distributions_in_words(tmp_path: Path, study) -> None:
    run = write_run(tmp_path / "runs" / "bn", "bn", MUJOCO[0])
    said = study("show", "figure-1")
    assert "holds no measurement of input-distributions; make it with: carebn measure distributions RUN RUN" in said.err
    moment = {"edges": [0.0, 1.0], "density": [1.0], "mean": 0.0, "var": 1.0}
    moments = [moment | {"updates": 0, "distance": 0.25}, moment | {"updates": 25, "distance": 0.5}]
    entry = {"run": "bn", "config": json.loads((run / "config.json").read_bytes()), "layer": 1}
    data = {"runs": [entry | {"most": moments, "least": moments[:1]}]}
    (tmp_path / "runs" / "input-distributions.json").write_text(json.dumps(data))
    said = study("show", "figure-1")
    assert said.err == ""
    bn, care = (row for row in rows(said.out) if row[1] == "ours")
    assert bn == ["BN", "ours", "1", "0.250 (0), 0.500 (25)", "0.250 (0)"]
    assert care[2:] == ["–", "–", "–"]


@reads_proc
def test_two_thousand_runs(tmp_path: Path) -> None:
    """Within 1 GB."""
    methods = ["care-bn", "bn", "ca", "re", "tdbn", "tebn", "bntt", "tab", "pop-san", "ann"]
    for i in range(2_000):
        method, env_id, seed = methods[i % 10], MUJOCO[i // 10 % 5], i // 50
        neuron = "none" if method == "ann" else "clif"
        write_run(tmp_path / "runs" / f"{i:04d}", method, env_id, seed, total=100_000, episodes=200, neuron=neuron)
    command = [sys.executable, "-c", PROBE, "study", "show", "main"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "(40)" in done.stdout
    assert int(done.stderr.split("peak MiB")[1]) < 1000


def test_some_environments_are_compared_with_the_papers_same_ones(tmp_path: Path, study) -> None:
    """The printed APG is of five environments; of two it is worked out from the paper's own numbers for these."""
    for env_id in ("Ant-v4", "Hopper-v4"):
        exact_run(tmp_path / "runs" / f"c{env_id}", "care-bn", env_id, 0, 300)
        exact_run(tmp_path / "runs" / f"a{env_id}", "ann", env_id, 0, 200, neuron="none")
    said = study("show", "main", "--envs", "Ant", "Hopper")
    table = rows(said.out)
    paper = {label: numbers for label, source, *numbers in table if source == "paper"}
    worked_out = ((5373 / 4770 + 3586 / 3410) / 2 - 1) * 100
    assert paper["CaRe-BN"] == ["5373 ± 159", "3586 ± 49", f"{worked_out:.2f}%"]
    assert paper["ANN"][-1] == "0.00%"
    ours = [numbers for _, source, *numbers in table if source == "ours"]
    assert ours[-1] == ["300 (1)", "300 (1)", "50.00%"]
    assert "of these 2" in said.out
    assert [row[0] for row in table[20:]] == ["ANN", "CaRe-BN"]  # over both, only what there are runs of
    assert "Over Ant-v4 and Hopper-v4, relative to ANN" in said.out
    energy = rows(study("show", "energy", "--envs", "Ant", "Hopper").out)
    assert energy[0][2:] == ["1862.40", "1728.00", "1795.20"]
    variance = rows(study("show", "relative-variance", "--envs", "Ant").out)
    assert next(row for row in variance if row[0] == "TD3 ANN")[2] == "–"  # the paper has it of all alone
    assert next(row for row in rows(study("show", "relative-variance").out) if row[0] == "TD3 ANN")[2] == "21.24%"

"""What the runs say: the rule by hand and against a slow version, the plan, and docs/results.md as it is committed."""

import itertools
import json
import random
import statistics as python_statistics
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
from fake_runs import write_energy, write_planned_run, write_run

from carebn.study import claims
from carebn.study.claims import CLAIMS, NOT_SUPPORTED, OPEN, RULE, SUPPORTED, verdict, verdict_against_all
from carebn.study.evidence.measured import Measured
from carebn.study.evidence.quantities import QUANTITIES
from carebn.study.evidence.runs import read_run, read_runs
from carebn.study.evidence.statistics import (
    Estimate,
    difference_of_iqm,
    difference_of_spread,
    ratio_of_iqm,
)
from carebn.study.plan import LABELS, PLAN, Task
from carebn.study.report.svg import curves_svg
from carebn.study.results import BEGIN, END, make_results
from carebn.study.views.curves import evaluation_traces, mean_curve
from carebn.study.views.planned import full_budgets, take_inventory
from carebn.study.views.results import TaskCurve, view_results
from carebn.study.views.verdicts import judge, judge_all

ROOT = Path(__file__).parents[2]
HOPPER, WALKER, PENDULUM = PLAN[:3]
BY_NAME = {claim.name: claim for claim in CLAIMS}


# --- what is committed ------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not (ROOT / "results" / "runs").is_dir(), reason="the runs are in the repository")
def test_what_is_committed_is_what_the_committed_runs_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """Byte for byte: the text, the figures, the page and the README's part."""
    monkeypatch.chdir(ROOT)
    files, problems = make_results(
        [Path("results")], Path("docs/results.md"), Path("README.md"), Path("docs/algorithms")
    )
    assert problems == []
    assert Path("docs/results.md") in files
    assert Path("docs/results/page.html") in files
    different = [str(path) for path, data in files.items() if not path.exists() or path.read_bytes() != data]
    assert different == [], "make results"
    assert {path for path in files if path.suffix == ".svg"} == set(Path("docs/results").glob("*.svg"))


def test_the_same_runs_elsewhere_say_the_same(tmp_path: Path) -> None:
    said = []
    for place in ("a", "b/c"):
        for seed in range(5):
            write_planned_run(tmp_path / place, HOPPER, "bn", seed)
        files, _ = make_results([tmp_path / place], tmp_path / "docs" / "results.md")
        said.append(files)
    assert said[0] == said[1]


def test_the_page_of_an_algorithm_shows_the_curves_of_its_runs_alone(tmp_path: Path) -> None:
    pages = tmp_path / "docs" / "algorithms"
    pages.mkdir(parents=True)
    for name in ("td3", "ddpg"):
        (pages / f"{name}.md").write_text(f"above\n{BEGIN}\nold\n{END}\nbelow\n")
    (pages / "index.md").write_text("no marks")
    for seed in range(2):
        write_planned_run(tmp_path / "runs", HOPPER, "bn", seed)
    write_planned_run(tmp_path / "runs", HOPPER, "care-bn", 0)
    write_planned_run(tmp_path / "runs", WALKER, "bn", 0)
    files, _ = make_results([tmp_path / "runs"], tmp_path / "docs" / "results.md", None, pages)
    td3, ddpg = (files[pages / f"{name}.md"].decode() for name in ("td3", "ddpg"))
    assert pages / "index.md" not in files
    assert td3.startswith(f"above\n{BEGIN}\n")
    assert td3.endswith(f"\n{END}\nbelow\n")
    assert "old" not in td3
    for task in (HOPPER, WALKER):
        assert f"![Learning curves: {task.title}](../results/{task.file}.svg)" in td3
    assert "at 0.1 of the paper's budget; seeds: 2 of BN, 1 of CaRe-BN.*" in td3
    assert "on Walker2d-v4, at 0.1 of the paper's budget; one seed.*" in td3
    assert "](../results.md)" in td3
    assert "There are no committed runs of DDPG yet" in ddpg
    with pytest.raises(ValueError, match="no page with a place for results"):
        make_results([tmp_path / "runs"], tmp_path / "docs" / "results.md", None, tmp_path)


def test_energy_of_one_side_alone_is_not_called_none(tmp_path: Path) -> None:
    """It once said that no run had an energy.json where all spiking ones had."""
    for seed in range(5):
        write_planned_run(tmp_path, HOPPER, "ann", seed)
        write_energy(write_planned_run(tmp_path, HOPPER, "care-bn", seed), 16.0)
    files, _ = make_results([tmp_path], tmp_path / "docs" / "results.md")
    text = files[tmp_path / "docs" / "results.md"].decode()
    assert "No task has runs of both sides with an energy.json; carebn energy RUN makes it." in text
    assert "No run here has" not in text


# --- the rule ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0.51, 0.9, SUPPORTED), (0.5, 0.9, OPEN), (0.2, 0.8, OPEN), (0.1, 0.5, OPEN), (0.1, 0.49, NOT_SUPPORTED)],
)
def test_an_improvement_lies_wholly_on_one_side_of_a_half(low: float, high: float, expected: str) -> None:
    assert verdict(Estimate((low + high) / 2, low, high), "improvement") == expected


def test_spread_and_cost_have_their_own_middle() -> None:
    assert verdict(Estimate(1, 0.1, 2), "spread") == SUPPORTED
    assert verdict(Estimate(-1, -2, -0.1), "spread") == NOT_SUPPORTED
    assert verdict(Estimate(0, -1, 1), "spread") == OPEN
    assert verdict(Estimate(1, 0.99, 1.04), "ratio") == SUPPORTED  # less is better
    assert verdict(Estimate(1, 1.04, 1.06), "ratio") == OPEN
    assert verdict(Estimate(1, 1.06, 1.2), "ratio") == NOT_SUPPORTED
    assert verdict(None, "improvement") == OPEN


def test_against_several_others() -> None:
    assert verdict_against_all([SUPPORTED, SUPPORTED]) == SUPPORTED
    assert verdict_against_all([SUPPORTED, OPEN]) == OPEN
    assert verdict_against_all([NOT_SUPPORTED, OPEN]) == NOT_SUPPORTED
    assert verdict_against_all([]) == OPEN


def test_the_words_of_the_rule_have_its_numbers() -> None:
    assert f"at least {claims.FEWEST_SEEDS} complete runs" in RULE
    assert f"less than {claims.DEARER:g}" in RULE
    assert all(claim.theirs and set(claim.quantities) <= set(QUANTITIES) for claim in CLAIMS)
    assert all(any({claim.ours, *claim.theirs} <= set(task.names) for task in PLAN) for claim in CLAIMS)
    assert {name for task in PLAN for name in task.names} == set(LABELS)


def slow_middle(values: list[float]) -> float:
    cut = len(values) // 4
    return python_statistics.fmean(sorted(values)[cut : len(values) - cut])


def slow_spread(values: list[float]) -> float:
    return 100 * python_statistics.pstdev(values) / abs(python_statistics.fmean(values))


def slow_interval(
    ours: list[float], theirs: list[float], statistic: Callable[[list[float], list[float]], float]
) -> tuple[float, float]:
    """One draw at a time, with Python's own generator."""
    rng = random.Random(4)
    drawn = sorted(statistic(rng.choices(ours, k=len(ours)), rng.choices(theirs, k=len(theirs))) for _ in range(6000))
    return drawn[150], drawn[-151]


@pytest.mark.parametrize(
    ("fast", "slow"),
    [
        (difference_of_iqm, lambda x, y: slow_middle(x) - slow_middle(y)),
        (ratio_of_iqm, lambda x, y: slow_middle(x) / slow_middle(y)),
        (difference_of_spread, lambda x, y: slow_spread(y) - slow_spread(x)),
    ],
)
def test_statistics_of_two_samples_agree_with_a_slow_bootstrap(fast, slow) -> None:
    rng = random.Random(1)
    ours, theirs = [rng.gauss(12, 2) for _ in range(6)], [rng.gauss(10, 3) for _ in range(5)]
    found = fast({"a": ours}, {"a": theirs}, ["a"], repetitions=6000)
    assert found.value == pytest.approx(slow(ours, theirs))
    low, high = slow_interval(ours, theirs, slow)
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.06 * (high - low))
    double = fast({"a": ours, "b": ours}, {"a": theirs, "b": theirs}, ["a", "b"])
    assert double.value == pytest.approx(found.value)  # an average over environments
    assert double.high - double.low < found.high - found.low
    assert fast({"a": ours}, {}, ["a"]) is None


def test_what_cannot_be_compared_is_missing() -> None:
    assert difference_of_spread({"a": [1.0]}, {"a": [1.0, 2.0]}, ["a"]) is None  # one seed has no spread
    assert ratio_of_iqm({"a": [1.0]}, {"a": [0.0, 1.0]}, ["a"]) is None
    zeros = difference_of_spread({"a": [0.0, 0.0]}, {"a": [0.0, 0.0]}, ["a"])
    assert zeros == (0, 0, 0)


def slow_verdict(ours: list[float], theirs: list[float]) -> str:
    """The rule anew: every pair of five against five, and all seeds drawn again."""

    def share(x: list[float], y: list[float]) -> float:
        return python_statistics.fmean((a > b) + (a == b) / 2 for a, b in itertools.product(x, y))

    if min(len(ours), len(theirs)) < 5:
        return "open at this budget"
    low, high = slow_interval(ours, theirs, share)
    return "supported" if low > 0.5 else "not supported" if high < 0.5 else "open at this budget"


LEVELS = {"clear": (900.0, 600.0), "reversed": (600.0, 900.0), "equal": (800.0, 800.0)}


@pytest.mark.parametrize("case", [*LEVELS, "few"])
def test_verdicts_of_runs_agree_with_a_slow_version(tmp_path: Path, case: str) -> None:
    ours, theirs = LEVELS.get(case, (900.0, 600.0))
    for seed in range(4 if case == "few" else 5):
        write_planned_run(tmp_path, HOPPER, "care-bn", seed, level=ours)
    for seed in range(5):
        write_planned_run(tmp_path, HOPPER, "bn", seed, level=theirs)
    runs = take_inventory(read_runs([tmp_path]).records).complete()
    judged = judge(BY_NAME["plain-bn"], runs)
    best = {name: [max(run.returns) for run in runs[HOPPER, name]] for name in ("care-bn", "bn")}
    assert judged.verdict == slow_verdict(best["care-bn"], best["bn"])
    expected = {"clear": SUPPORTED, "reversed": NOT_SUPPORTED, "equal": OPEN, "few": OPEN}
    assert judged.verdict == expected[case]
    last = {name: [run.returns[-1] for run in runs[HOPPER, name]] for name in ("care-bn", "bn")}
    assert judged.verdicts["final"] == slow_verdict(last["care-bn"], last["bn"])


def test_a_claim_of_less_is_supported_by_less(tmp_path: Path) -> None:
    for name, energy in (("care-bn", 17.0), ("ann", 1700.0)):
        for seed in range(5):
            run = write_planned_run(tmp_path, PENDULUM, name, seed)
            write_energy(run, energy + seed)
            (run / "policy.safetensors").unlink()  # as it is committed: kept for its numbers alone
            for path in sorted((run / "checkpoint").rglob("*"), reverse=True):
                path.unlink() if path.is_file() else path.rmdir()
            (run / "checkpoint").rmdir()
    runs = take_inventory(read_runs([tmp_path]).records).complete()
    judged = {one.claim.name: one for one in judge_all(runs)}
    assert judged["energy"].verdicts == {"energy": SUPPORTED, "whole-energy": SUPPORTED}
    whole = judged["energy"].against["whole-energy"][0].tasks[-1].ours.by_seed
    assert whole == {seed: 30 * (17.0 + seed) for seed in range(5)}
    assert judged["cost"].verdict == OPEN  # nobody recorded the processor's time


def test_processor_time_decides_the_cost(tmp_path: Path) -> None:
    for name, cost in (("care-bn", 0.0101), ("bn", 0.0100)):
        for seed in range(5):
            run = write_planned_run(tmp_path, PENDULUM, name, seed)
            rows = [json.loads(line) for line in (run / "timing.jsonl").read_text().splitlines()]
            used = [{"time/processor": row["step"] * cost * (1 + seed / 1000), "memory/peak": 400.5,
                     "processor": "a fast one"} for row in rows]  # fmt: skip
            lines = [json.dumps(row | more) + "\n" for row, more in zip(rows, used, strict=True)]
            (run / "timing.jsonl").write_text("".join(lines))
    records = read_runs([tmp_path]).records
    assert {(run.timing.mebibytes, run.timing.processor) for run in records} == {(400.5, "a fast one")}
    [against] = judge(BY_NAME["cost"], take_inventory(records).complete()).against["processor-seconds"]
    assert against.estimate is not None
    assert against.estimate.value == pytest.approx(1.01, rel=1e-3)
    assert against.verdict == SUPPORTED


def test_time_at_every_evaluation_counts_earlier_sittings(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a")
    rows = [{"step": 5_000, "charts/SPS": 100.0, "time/elapsed": 50.0, "time/evaluation": 1.0},
            {"step": 10_000, "charts/SPS": 100.0, "time/elapsed": 100.0, "time/evaluation": 1.0},
            {"step": 15_000, "charts/SPS": 50.0, "time/elapsed": 100.0, "time/evaluation": 1.0}]  # fmt: skip
    (run / "timing.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    timing = read_run(run).timing
    assert timing.at == {5_000: 50.0, 10_000: 100.0, 15_000: 200.0}
    assert (timing.processor_seconds, timing.mebibytes, timing.processor) == (None, None, "")


# --- the plan ---------------------------------------------------------------------------------------------------------


def test_every_name_of_the_plan_finds_its_own_runs_only(tmp_path: Path) -> None:
    for task in PLAN:
        for name in task.names:
            write_planned_run(tmp_path, task, name, 0)
    inventory = take_inventory(read_runs([tmp_path]).records)
    assert [len(one.complete) for one in inventory.found] == [1] * sum(len(task.names) for task in PLAN)
    assert inventory.others == []


def test_no_normaliser_with_clif_is_pop_san(tmp_path: Path) -> None:
    ddpg = PLAN[3]
    write_planned_run(tmp_path, ddpg, "pop-san", 0)
    path = write_planned_run(tmp_path, ddpg, "pop-san", 1) / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"method": "vanilla"}))
    inventory = take_inventory(read_runs([tmp_path]).records)
    assert [len(one.complete) for one in inventory.of(ddpg)] == [2, 0]


def test_other_budgets_decide_nothing_and_are_told(tmp_path: Path, said_of) -> None:
    for seed in range(5):
        for name in ("bn", "care-bn"):
            write_planned_run(tmp_path / "runs", HOPPER, name, seed)
        write_run(tmp_path / "runs" / f"other-{seed}", "care-bn", HOPPER.env_id, seed, total=50_000)
    write_run(tmp_path / "runs" / "copy" / "care-bn-0", "care-bn", HOPPER.env_id, 0, total=1_025_000, done=300_000)
    inventory = take_inventory(read_runs([tmp_path]).records)
    assert len(inventory.complete()[HOPPER, "care-bn"]) == 5
    assert len(inventory.others) == 6
    text, told = said_of(tmp_path / "runs")
    assert told == ""
    assert "6 runs besides the plan" in text
    assert "care-bn, Hopper-v4, 50,000 steps" in text
    assert "after 300,000 of 1,025,000 steps" in text


def test_a_copy_of_a_run_is_not_another_seed(tmp_path: Path) -> None:
    for place in ("a", "b"):
        write_planned_run(tmp_path / place, HOPPER, "bn", 3)
    inventory = take_inventory(read_runs([tmp_path]).records)
    assert [run.seed for run in inventory.complete()[HOPPER, "bn"]] == [3]


@pytest.mark.parametrize("task", PLAN, ids=lambda task: task.file)
def test_the_command_of_a_missing_run_makes_one_that_counts(task: Task, tmp_path: Path) -> None:
    from carebn.commands import train
    from carebn.commands.config_file import with_file
    from carebn.options import parse

    for name in task.names:
        words = task.command(name).replace("SEED", "0").split()
        assert words[:2] == ["carebn", "train"]
        config = with_file(parse(train, "carebn train", words[2:]), words[2:]).checked()
        assert task.holds(config.as_json(), name)


def test_the_full_budget_follows_from_the_clock(tmp_path: Path) -> None:
    for name in PENDULUM.names:
        write_planned_run(tmp_path, PENDULUM, name, 0)  # 100 steps a second
    budgets = {one.task: one for one in full_budgets(read_runs([tmp_path]).records)}
    assert budgets[PENDULUM].hours == pytest.approx(6 * 5 * 1_025_000 / 100 / 3600, rel=0.01)
    assert not budgets[PENDULUM].guessed
    assert budgets[PLAN[3]].hours is None  # nobody has run DDPG


# --- the text ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def said_of(carebn, tmp_path: Path) -> Callable[[Path], tuple[str, str]]:
    """The text that ``carebn study results`` writes, and what it says on the way."""

    def call(runs: Path) -> tuple[str, str]:
        said = carebn("study", "results", runs, "--out", tmp_path / "said" / "results.md")
        assert said.code == 0
        return (tmp_path / "said" / "results.md").read_text(), said.err

    return call


def test_a_contradiction_is_said_plainly(tmp_path: Path, said_of) -> None:
    for seed in range(5):
        write_planned_run(tmp_path / "runs", HOPPER, "care-bn", seed, level=500.0)
        write_planned_run(tmp_path / "runs", HOPPER, "ann", seed, level=900.0)
        write_planned_run(tmp_path / "runs", HOPPER, "bn", seed, level=100.0)
    text = said_of(tmp_path / "runs")[0]
    assert "**Not supported.** This contradicts the paper (Table 1: +5.9 % over five tasks)" in text
    assert "1 is not, and" in text
    supported = text.split("### 4. ")[1].split("###")[0]
    assert "**Supported.**" in supported
    assert "1.00 (1.00 … 1.00)" in supported
    for seed in range(5):
        assert f"| CaRe-BN | {seed} |" in text
    assert "5 of pop-SAN" in text.split("## What is missing")[1]
    assert "carebn train --env-id Hopper-v4 --algo td3 --method pop-san" in text
    assert text.count("\n### ") == len(CLAIMS) + 1


def test_a_difference_that_is_sure_and_small_is_called_small(tmp_path: Path, said_of) -> None:
    for seed in range(5):
        for name, level in (("care-bn", 9340.0), ("ann", 9350.0)):
            run = write_planned_run(tmp_path / "runs", HOPPER, name, seed)
            rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
            flat = [row | {"eval/mean_return": level + seed} if "eval/mean_return" in row else row for row in rows]
            (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in flat))
    part = said_of(tmp_path / "runs")[0].split("### 5. ")[1].split("###")[0]
    assert "This contradicts the paper" in part
    assert "Interquartile means differ by −0.1 % beside ANN on Hopper. None is as much as 1 %" in part


def test_the_headline_is_of_the_task_with_the_most_steps(tmp_path: Path) -> None:
    for seed in range(3):
        write_planned_run(tmp_path, PENDULUM, "care-bn", seed)  # 3 times 30,750
    assert headline(tmp_path) == PENDULUM
    write_planned_run(tmp_path, HOPPER, "bn", 0, done=100_000)  # not complete
    assert headline(tmp_path) == PENDULUM
    write_planned_run(tmp_path, WALKER, "bn", 0)  # 102,500
    assert headline(tmp_path) == WALKER


def headline(runs: Path) -> Task:
    found = view_results(read_runs([runs]), Measured()).headline
    assert found is not None
    return found.task


def test_scores_that_disagree_are_told(tmp_path: Path, said_of) -> None:
    for seed in range(5):
        write_planned_run(tmp_path / "runs", HOPPER, "bn", seed, level=600.0)
        run = write_planned_run(tmp_path / "runs", HOPPER, "care-bn", seed, level=500.0)
        lines = (run / "metrics.jsonl").read_text().splitlines()
        place = next(i for i, line in enumerate(lines) if '"eval/mean_return"' in line)
        lines[place] = json.dumps(
            json.loads(lines[place]) | {"eval/mean_return": 2000.0 + seed}
        )  # one lucky evaluation
        (run / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    part = said_of(tmp_path / "runs")[0].split("### 4. ")[1].split("###")[0]
    assert "**Supported.**" in part
    assert "The scores disagree: by the maximum: supported; by the final return: not supported" in part


def test_a_diverged_run_is_a_sentence(tmp_path: Path, said_of) -> None:
    for seed in range(5):
        for name in ("bn", "care-bn"):
            run = write_planned_run(tmp_path / "runs", HOPPER, name, seed, level=900.0 if name == "bn" else 500.0)
    metrics = run / "metrics.jsonl"
    lines = metrics.read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    last = rows.index([row for row in rows if "eval/mean_return" in row][-1])
    lines[last] = json.dumps(rows[last] | {"eval/mean_return": float("nan")})
    metrics.write_text("\n".join(lines) + "\n")
    text, told = said_of(tmp_path / "runs")
    assert "care-bn-4 is damaged: its records cannot be read (an evaluation is not a finite number)" in text
    assert "an evaluation is not a finite number" in told
    assert "It takes 5 seeds of either side; there are 4 of CaRe-BN and 5 of BN on Hopper." in text


def test_the_readme_keeps_all_but_its_part(tmp_path: Path, carebn) -> None:
    for seed in range(3):
        write_planned_run(tmp_path / "runs", HOPPER, "care-bn", seed)
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    words = ["study", "results", str(tmp_path / "runs"), "--out", str(tmp_path / "docs" / "r.md")]
    for _ in range(2):  # the second time changes nothing
        assert carebn(*words, "--readme", readme).code == 0
        text = readme.read_text()
        picture = '<a href="docs/r.md"><img src="docs/r/Hopper-v4-td3-102500.svg" '
        assert text.startswith(f"before\n{BEGIN}\n{picture}")
        assert text.endswith(f"{END}\nafter\n")
        assert "old" not in text
    assert (tmp_path / "docs" / "r" / "page.html").exists()


@pytest.mark.parametrize(
    ("case", "sentence"),
    [
        ("nothing", "there is no run in"),
        ("nowhere", "is not a directory"),
        ("unmarked", "has no place for the results; put the marks"),
        ("ending", "has no ending; name the Markdown file"),
        ("directory", "cannot write"),
    ],
)
def test_mistakes_are_one_sentence(tmp_path: Path, case: str, sentence: str, carebn) -> None:
    runs, out, more = tmp_path / "runs", tmp_path / "r.md", []
    if case not in ("nothing", "nowhere"):
        write_planned_run(runs, HOPPER, "bn", 0)
    elif case == "nothing":
        runs.mkdir()
    if case == "unmarked":
        (tmp_path / "README.md").write_text("no marks")
        more = ["--readme", str(tmp_path / "README.md")]
    elif case == "ending":
        out = tmp_path / "r"
    elif case == "directory":
        out.mkdir()
    said = carebn("study", "results", runs, "--out", out, *more)
    assert said.code == 1
    assert sentence in said.err
    assert said.err.count("\n") == 1


def test_guessed_hours_say_so(tmp_path: Path, said_of) -> None:
    for name in PENDULUM.names:
        write_planned_run(tmp_path / "runs", PENDULUM, name, 0)
    text, _ = said_of(tmp_path / "runs")
    assert "Hours of tasks without runs are guessed:" in text
    assert "–: there is no run yet to tell the speed." in text


# --- the picture ------------------------------------------------------------------------------------------------------


def test_the_picture_has_every_seed_and_is_only_text(tmp_path: Path) -> None:
    runs = [read_run(write_run(tmp_path / f"{seed}", seed=seed)) for seed in range(3)]
    traces = evaluation_traces(runs)
    mean = mean_curve(traces, 100)
    assert mean is not None
    text = curves_svg("<script>&", [TaskCurve('CaRe-BN "<b>"', mean, traces)])
    root = ElementTree.fromstring(text)  # well formed, whatever names say
    tag = "{http://www.w3.org/2000/svg}"
    kinds = [line.get("class") for line in root.iter(f"{tag}polyline")]
    assert kinds == ["seed c0"] * 3 + ["mean c0"]
    assert len(list(root.iter(f"{tag}polygon"))) == 1
    assert root.find(f"{tag}script") is None
    assert 'CaRe-BN "<b>", 3 seeds' in [element.text for element in root.iter(f"{tag}text")]
    assert "0" in [element.text for element in root.iter(f"{tag}text")]  # the axis begins where training did


@pytest.mark.parametrize("total", [190_000, 200_000, 201_000, 210_000])
def test_no_number_of_the_axis_leaves_the_picture(tmp_path: Path, total: int) -> None:
    traces = evaluation_traces([read_run(write_run(tmp_path / "a", total=total))])
    mean = mean_curve(traces, 100)
    assert mean is not None
    texts = list(ElementTree.fromstring(curves_svg("one", [TaskCurve("BN", mean, traces)])).iter())
    share = {"middle": 0.5, "end": 0.0}  # of its width that lies to the right of its place
    ends = [
        float(t.get("x", 0)) + share[t.get("text-anchor", "")] * 7 * len(t.text or "")
        for t in texts
        if t.get("text-anchor")
    ]
    assert len(ends) > 5
    assert max(ends) <= 760


def test_one_evaluation_is_a_dot(tmp_path: Path) -> None:
    traces = evaluation_traces([read_run(write_run(tmp_path / "a", total=5_000))])
    mean = mean_curve(traces, 100)
    assert mean is not None
    assert "<circle" in curves_svg("one", [TaskCurve("BN", mean, traces)])

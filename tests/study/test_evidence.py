"""The committed runs: all of them are shown, from their small files alone; what is missing is said."""

import ast
import json
import shutil
from pathlib import Path

import pytest
from fake_runs import write_costs, write_run

from carebn.commands.report import Config, run
from carebn.paper import STUDIES
from carebn.study.evidence.measured import read_measured
from carebn.study.evidence.runs import find_runs, read_runs
from carebn.study.views.explorer import explore
from carebn.study.views.studies import view_studies

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"
SMALL = {"config.json", "versions.json", "metrics.jsonl", "timing.jsonl", "measure-wasserstein.jsonl", "command.txt"}


@pytest.fixture
def evidence(tmp_path: Path) -> Path:
    """A copy of the small files, in case there is more beside them."""
    for directory in find_runs([RESULTS]):
        place = tmp_path / "results" / directory.relative_to(RESULTS)
        place.mkdir(parents=True)
        for name in SMALL:
            if (directory / name).exists():
                shutil.copy(directory / name, place)
    return tmp_path / "results"


def test_every_committed_run_is_read_and_shown(evidence: Path, tmp_path: Path) -> None:
    committed = find_runs([evidence])
    assert committed
    runs = read_runs([evidence], episodes=True, measures=True)
    assert runs.problems == runs.gaps() == []
    assert [record.directory for record in runs.records] == committed
    for record in runs.records:
        assert record.steps
        assert record.complete == (record.step == record.total)
        assert len(record.episode_steps) > 0
        assert ("--measure wasserstein" in record.command) == ("wasserstein" in record.measures)
    lines = [line for group in explore(runs.records).values() for line in group]
    assert sum(line.begun for line in lines) == len(committed)  # no two of them are the same run
    views, absent = view_studies(runs.records)
    assert len(views) + len(absent) == len(STUDIES)
    assert {"main", "wasserstein", "td3-curves"} <= {view.study.name for view in views}


@pytest.mark.slow
def test_the_report_of_the_committed_runs(evidence: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for kind in ("html", "md"):
        assert run(Config((evidence,), tmp_path / f"report.{kind}", kind)) == 0
    assert capsys.readouterr().err == ""
    data = json.loads((tmp_path / "report.html").read_text().split('id="data">')[1].split("</script>")[0])
    assert len(data["runs"]) == len(find_runs([evidence]))
    assert all(entry["command"] and entry["seconds"] for entry in data["runs"])
    text = (tmp_path / "report.md").read_text()
    for study in STUDIES.values():
        assert study.where in text  # shown, or said to be absent
    assert run(Config((evidence,), tmp_path / "figures", "png")) == 0
    assert (tmp_path / "figures" / "study-main.png").exists()


def test_files_that_runs_lack_are_told(tmp_path: Path) -> None:
    for seed in range(5):
        write_run(tmp_path / "runs" / f"seed{seed}", seed=seed)
    write_run(tmp_path / "runs" / "begun", seed=5, done=0)  # nothing is timed before the first evaluation
    (tmp_path / "runs" / "begun" / "timing.jsonl").unlink()
    assert read_runs([tmp_path]).gaps() == []
    for path in (tmp_path / "runs").glob("seed*/timing.jsonl"):
        path.unlink()
    (tmp_path / "runs" / "seed1" / "command.txt").unlink()
    (tmp_path / "runs" / "seed1" / "versions.json").unlink()
    told = [
        "1 of 6 runs lacks command.txt (seed1): the command is not known",
        "1 of 6 runs lacks versions.json (seed1): versions are not known",
        "5 of 6 runs lack timing.jsonl (seed0, seed1, seed2 and 2 more): the time is not known",
    ]
    assert read_runs([tmp_path]).gaps() == told
    assert run(Config((tmp_path / "runs",), tmp_path / "report.md", "md")) == 0
    assert all(f"- {sentence}\n" in (tmp_path / "report.md").read_text() for sentence in told)


def test_measurements_are_found_beside_the_runs_at_any_depth(tmp_path: Path) -> None:
    """``carebn report results`` finds what ``carebn measure`` left in ``results/runs``."""
    write_run(tmp_path / "runs" / "a")
    write_costs(tmp_path / "runs", {"tdbn": (70.0, 800.0)})
    costs = read_measured([tmp_path]).costs
    assert costs is not None
    assert costs.by_method == {("tdbn", "clif"): (70.0, 800.0)}
    assert read_measured([tmp_path, tmp_path / "runs"]).problems == []  # the same file, once
    write_run(tmp_path / "elsewhere" / "b")
    write_costs(tmp_path / "elsewhere", {"tdbn": (7.0, 80.0)})
    both = read_measured([tmp_path])
    assert both.problems == [f"costs of several machines are not mixed: those in {tmp_path / 'elsewhere'} are shown"]
    assert both.costs is not None
    assert both.costs.by_method["tdbn", "clif"] == (7.0, 80.0)
    write_costs(tmp_path / "runs" / "a", {"tdbn": (1.0, 1.0)})  # a run is no place for it
    assert read_measured([tmp_path]).costs == both.costs


def test_a_study_says_which_runs_were_not_measured(tmp_path: Path) -> None:
    study = STUDIES["wasserstein"]
    for seed in range(2):
        write_run(tmp_path / f"bn{seed}", "bn", study.envs[0], seed, wasserstein=seed == 0)
    views, _ = view_studies(read_runs([tmp_path], measures=True).records)
    view = next(view for view in views if view.study is study)
    assert view.problems == ["1 of 2 runs were made without --measure wasserstein"]
    (tmp_path / "bn0" / "measure-wasserstein.jsonl").unlink()
    _, absent = view_studies(read_runs([tmp_path], measures=True).records)
    why = {one.study.name: one.why for one in absent}
    assert why["wasserstein"] == "2 of 2 runs were made without --measure wasserstein"
    assert why["input-distributions"] == "2 complete runs are there, but not what is measured on them"


@pytest.mark.parametrize("path", sorted((ROOT / "src/carebn/study/report").glob("*.py")), ids=lambda path: path.stem)
def test_nothing_is_computed_where_it_is_shown(path: Path) -> None:
    """What is shown comes from views: a renderer knows no statistic and gathers nothing."""
    allowed = {"Estimate", "SCORES", "Runs", "RunRecord"}  # records, and the names of scores
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(("carebn.study.evidence", "statistics")):
            assert {alias.name for alias in node.names} <= allowed
        if isinstance(node, ast.Import):
            assert not {alias.name for alias in node.names} & {"numpy", "statistics"}

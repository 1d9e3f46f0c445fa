"""``carebn report``: every format, every mistake in one sentence, and thousands of runs in seconds."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest
from abilities import reads_proc
from fake_runs import PROBE, write_run

from carebn.commands.report import Config, run
from carebn.paper.facts import IDP
from carebn.paper.facts import MUJOCO as ENVS
from carebn.study.evidence.runs import read_runs
from carebn.study.report.figures import STYLE, curves_figure, study_figure, write_figures
from carebn.study.report.page import embedded_json
from carebn.study.views.explorer import explore
from carebn.study.views.studies import view_studies

pytestmark = pytest.mark.slow


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    for seed in range(2):
        write_run(tmp_path / "runs" / f"care{seed}", seed=seed, wasserstein=True)
        write_run(tmp_path / "runs" / f"ann{seed}", "ann", seed=seed, neuron="none", level=900)
    return tmp_path / "runs"


def test_the_page_is_one_file_that_names_no_other(runs: Path, tmp_path: Path) -> None:
    assert run(Config(runs=(runs,), out=tmp_path / "deep" / "r.html")) == 0
    page = (tmp_path / "deep" / "r.html").read_text()
    for word in ("http:", "https:", "src=", "@import", "url(", "{{"):
        assert word not in page.replace("http://www.w3.org/2000/svg", "").replace("http-equiv", "")
    data = json.loads(page.split('id="data">')[1].split("</script>")[0])
    assert [e["id"] for e in data["environments"]] == ["Hopper-v4"]
    assert len(data["runs"]) == 4
    # The same runs, the same page.
    run(Config(runs=(runs,), out=tmp_path / "again.html"))
    assert (tmp_path / "again.html").read_text() == page


def test_embedded_json_cannot_leave_its_element() -> None:
    data = {"name": "</script><!--<script>&\u2028"}
    text = embedded_json(data)
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text) == data
    with pytest.raises(ValueError, match="not JSON compliant"):
        embedded_json(float("nan"))


def test_markdown(runs: Path, tmp_path: Path) -> None:
    write_run(runs / "odd", method="a|b<img>`x`\n# head", seed=0)
    assert run(Config(runs=(runs,), out=tmp_path / "r.md", format="md")) == 0
    text = (tmp_path / "r.md").read_text()
    assert "### Table 1: Max average returns" in text
    assert "paper 3586 ± 49" in text
    assert "| a\\|b&lt;img>\\`x\\` # head |" in text
    assert "\n# head" not in text
    for table in re.findall(r"(?:^\|.*\n)+", text, re.M):
        assert (
            len({len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}) == 1
        )  # as many columns in all rows


@pytest.mark.parametrize(("kind", "magic"), [("png", b"\x89PNG"), ("pdf", b"%PDF")])
def test_figures(runs: Path, tmp_path: Path, kind: str, magic: bytes, recwarn: pytest.WarningsRecorder) -> None:
    write_run(runs / "odd", method="$x_", env_id="My/$Odd <env>", seed=0)
    records = read_runs([runs], episodes=True, measures=True).records
    views = [view for view in view_studies(records)[0] if view.study.name in ("main", "ablation", "exploration")]
    for directory in ("figures", "again"):
        (tmp_path / directory).mkdir()
        written = write_figures(explore(records), views, tmp_path / directory, kind)
    assert not recwarn.list
    assert len(views) == 2
    assert [path.name for path in written] == [
        f"study-main.{kind}", f"study-exploration.{kind}", f"curves-Hopper-v4.{kind}", f"curves-My-Odd-env.{kind}",
    ]  # fmt: skip  # an ablation on one of five tasks has no number, so no figure
    for path in written:
        assert path.read_bytes().startswith(magic)
        assert path.read_bytes() == (tmp_path / "figures" / path.name).read_bytes()  # the same runs, the same file


def test_every_study_has_a_figure(tmp_path: Path) -> None:
    """Drawn, not written: nothing may go wrong with few runs or with none of a row."""
    for method, neuron in (("ann", "none"), ("care-bn", "clif"), ("bn", "clif")):
        for env in ("InvertedDoublePendulum-v4", "Hopper-v4", "Ant-v4"):
            write_run(tmp_path / f"{method}{env}", method, env, neuron=neuron, wasserstein=True)
    views, _ = view_studies(read_runs([tmp_path], episodes=True, measures=True).records)
    for view in views:
        figure = study_figure(view)
        assert figure.axes, view.study.name  # no picture that only says that it shows nothing


def test_figures_say_budget_and_seeds(tmp_path: Path) -> None:
    for seed in range(2):
        for env in ENVS:
            write_run(tmp_path / f"{env}{seed}", "care-bn", env, seed, wasserstein=True)
    write_run(tmp_path / "ann", "ann", ENVS[0], 0, neuron="none")
    for view in view_studies(read_runs([tmp_path], episodes=True, measures=True).records)[0]:
        figure = study_figure(view)
        legends = [legend.get_title().get_text() for legend in figure.legends]
        said = " ".join(" ".join([*legends, *(axes.get_xlabel() for axes in figure.axes)]).split())
        assert "ours at 20,000 steps (0.0195 × the paper's); " in said, view.study.name
        assert view.made in said
        assert re.search("; (1 seed|2 seeds|1 to 2 seeds)", said)


def test_a_long_legend_stays_inside_the_figure(tmp_path: Path) -> None:
    for i, steps in enumerate((100, 200, 300, 400)):
        write_run(tmp_path / f"{i}", total=20_000 + i, buffer_size=steps, batch_size=steps, eval_episodes=i + 1)
    [lines] = explore(read_runs([tmp_path]).records).values()
    curves = [(line.label, line.evaluation) for line in lines if line.evaluation is not None]
    assert min(len(label) for label, _ in curves) > 60
    for number in (1, 2, 6):
        with mpl.rc_context(STYLE):
            figure = curves_figure([("Hopper-v4", "steps", "return", curves)] * number, "words " * 40)
            figure.draw_without_rendering()
        [legend] = figure.legends
        box, page = legend.get_window_extent(), figure.bbox
        assert box.x0 >= 0
        assert box.x1 <= page.x1
        assert box.y0 >= 0
        assert all(axes.get_window_extent().y0 > box.y1 for axes in figure.axes)
        assert all(axes.get_window_extent().height > 0.3 * page.height / -(-number // 3) for axes in figure.axes)


def test_one_seed_has_no_spread(tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "a", "care-bn", seed=0)
    for form in ("md", "html"):
        assert run(Config(runs=(tmp_path / "runs",), out=tmp_path / f"r.{form}", format=form)) == 0
    text = (tmp_path / "r.md").read_text()
    assert re.search(r"\| CaRe-BN \| \d+\.\d \| \d+\.\d \| 1 \| 1 of 1 \|", text)
    assert re.search(r"\d+ \(n 1\), paper 3586 ± 49", text)
    assert "Ours at 20,000 steps (0.0195 × the paper's); 1 seed." in text
    data = json.loads((tmp_path / "r.html").read_text().split('id="data">')[1].split("</script>")[0])
    assert data["environments"][0]["lines"][0]["best"][1] is None
    assert all("20,000 steps" in view["made"] and view["made"].endswith("; 1 seed") for view in data["studies"])


def data_of(page: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(page.read_text().split('id="data">')[1].split("</script>")[0])
    return found


def test_a_number_reads_the_same_everywhere(tmp_path: Path, carebn) -> None:
    """9343.48 was 9,344 on the page, where it was rounded twice, and 9343 in the terminal."""
    directory = write_run(tmp_path / "runs" / "a", env_id=IDP, total=5_000)
    row = {"step": 5_000, "eval/mean_return": 9343.48, "eval/std_return": 0.0, "returns": [9343.48]}
    (directory / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    for form in ("html", "md"):
        assert carebn("report", "runs", "--format", form).code == 0
    data = data_of(tmp_path / "report.html")
    [line] = data["environments"][0]["lines"]
    number = data["studies"][0]["table"]["rows"][-1]["numbers"][0]
    for told in (line["best"][0], line["last"][0], line["evaluation"]["mean"][-1], data["runs"][0]["best"]):
        assert told == 9343.48  # rounded where it is shown, once
    assert number["ours"] == [9343.48, None]
    assert (number["mark"], number["difference"]) == ("", "−0.05 %")
    text = (tmp_path / "report.md").read_text()
    assert "| CaRe-BN | 9343 | 9343 | 1 | 1 of 1 |" in text
    assert "9343 (n 1), paper 9348 ± 2, −0.05 %" in text
    assert "9343 (1)" in carebn("study", "show", "main").out


def test_markdown_leaves_out_what_there_is_no_run_of(tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "a")
    assert run(Config(runs=(tmp_path / "runs",), out=tmp_path / "r.md", format="md")) == 0
    text = (tmp_path / "r.md").read_text()
    assert "|  | Hopper-v4 | APG % | APG % without IDP | IQM / baseline |" in text
    assert "Without a run here: ANN, ANN-SNN" in text
    assert "- Figure 6 c (`carebn study run ablation`): 1 complete run is not enough" in text
    assert "| – | – | 0 |" not in text
    assert "Missing: ANN, LIF, LIF + CaRe-BN" in text


def test_a_budget_is_chosen_with_an_option_that_there_is(tmp_path: Path, carebn) -> None:
    for name, total, starts in (("short", 205_000, 5_000), ("long", 1_025_000, 25_000)):
        write_run(tmp_path / "runs" / name, total=total, learning_starts=starts, eval_interval=5_000)
    assert carebn("report", "runs").code == 0
    data = data_of(tmp_path / "report.html")
    assert data["studies"] == []
    main = next(one for one in data["absent"] if one["where"] == "Table 1")
    assert main["why"].endswith("choose one with --scale 0.2 or --scale 1")
    assert carebn("report", "runs", "--scale", "0.2").code == 0
    assert data_of(tmp_path / "report.html")["studies"][0]["made"].startswith("ours at 205,000 steps")
    wrong = carebn("report", "runs", "--scale", "0")
    assert (wrong.code, wrong.err) == (
        1,
        "carebn: --scale must be above zero and finite, got 0; 1 is the paper's budget\n",
    )


def test_nothing_to_draw_is_said_and_not_drawn(tmp_path: Path, carebn) -> None:
    write_run(tmp_path / "runs" / "a", done=0)
    done = carebn("report", "runs", "--format", "png")
    assert done.code == 1
    assert "there is nothing to draw yet: no run has an evaluation" in done.err
    assert not list(tmp_path.glob("report-figures/*"))
    assert carebn("report", "runs").code == 0  # the page has the run and its command


def test_one_evaluation_has_an_axis_from_nought(tmp_path: Path) -> None:
    write_run(tmp_path / "a", total=5_000)
    [lines] = explore(read_runs([tmp_path]).records).values()
    figure = curves_figure([("Hopper-v4", "steps", "return", [("one", lines[0].evaluation)])])
    assert figure.axes[0].get_xlim() == (0, 5_250)


# --- mistakes ---------------------------------------------------------------------------------------------------------


def test_a_corrupt_run_is_named_and_the_rest_is_rendered(runs: Path, tmp_path: Path, carebn) -> None:
    (runs / "care0" / "config.json").write_text("{")
    (runs / "ann0" / "metrics.jsonl").write_bytes(b'{"eval/mean_return": \xff}\n')
    (runs / "ann1" / "measure-wasserstein.jsonl").write_text("[]\n{}\n")
    done = carebn("report", str(runs), "--out", "r.html")
    assert done.code == 0
    sentences = done.err.splitlines()
    assert len(sentences) == 3
    assert all(s.startswith(f"carebn: {runs}") and s.endswith("; it is left out") for s in sentences)
    page = (tmp_path / "r.html").read_text()
    data = json.loads(page.split('id="data">')[1].split("</script>")[0])
    assert [r["name"] for r in data["runs"]] == ["care1"]
    assert len(data["problems"]) == 3


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["nowhere"], "nowhere is not a directory"),
        (["empty"], "there is no run in empty; make one with carebn train"),
        (["bad"], "there is no readable run in bad"),
        ([], "runs is not a directory"),
        (["good", "--format", "pgn"], "unknown format 'pgn': did you mean 'png'?"),
        (["good", "--out", "good"], "cannot write good (it is a directory); choose another --out"),
        (["good", "--out", "file/r.html"], "cannot write file/r.html ("),
        (["good", "--out", "/proc/r.html"], "cannot write /proc/r.html ("),
        (["good", "--out", "file", "--format", "png"], "cannot write file ("),
    ],
)
def test_mistakes_are_one_sentence(tmp_path: Path, carebn, words: list[str], told: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "config.json").write_text("[]")
    (tmp_path / "file").write_text("")
    write_run(tmp_path / "good" / "a")
    done = carebn("report", *words)
    assert done.code == 1
    last = done.err.splitlines()[-1]
    assert last.startswith("carebn: ")
    assert told in last
    assert done.out == ""


# --- many runs --------------------------------------------------------------------------------------------------------


@reads_proc
def test_two_thousand_runs(tmp_path: Path) -> None:
    """At the paper's budget: 205 evaluations and as many hundred training episodes each."""
    methods = ("ann", "pop-san", "mdc-san", "bn", "tdbn", "bntt", "tebn", "tab", "ca", "care-bn")
    for method in methods:
        for env in ("InvertedDoublePendulum-v4", "Ant-v4", "HalfCheetah-v4", "Hopper-v4", "Walker2d-v4"):
            neuron = {"ann": "none", "mdc-san": "dn"}.get(method, "clif")
            where = tmp_path / "runs" / f"{method}-{env}"
            first = write_run(where / "0", method, env, 0, total=1_025_000, neuron=neuron, episodes=1000)
            config = json.loads((first / "config.json").read_text())
            for seed in range(1, 40):
                copy = where / str(seed)
                shutil.copytree(
                    first, copy, copy_function=os.link
                )  # the numbers may repeat; reading them costs the same
                (copy / "config.json").unlink()
                (copy / "config.json").write_text(json.dumps({**config, "seed": seed}))
    done = subprocess.run(
        [sys.executable, "-c", PROBE, "report", "runs", "--out", "r.html"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    data = json.loads((tmp_path / "r.html").read_text().split('id="data">')[1].split("</script>")[0])
    assert len(data["runs"]) == 2000
    assert (tmp_path / "r.html").stat().st_size < 8 * 1024**2
    assert int(done.stderr.split("peak MiB")[1]) < 1024

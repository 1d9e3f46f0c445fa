"""docs/algorithms: one skeleton for all pages; options, defaults and logged keys as the code has them."""

import ast
import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import carebn
from carebn.algorithm import ALGORITHMS
from carebn.training import TrainConfig

TOP = Path(__file__).parents[2]
PAGES = TOP / "docs" / "algorithms"
SECTIONS = [
    "What it does", "When to use it", "Spaces", "Example", "Options", "Logged keys", "Results", "Where we differ",
]  # fmt: skip
ALGOS = ["td3", "ddpg", "sac", "dqn"]
SMALL: dict[str, Any] = {
    "hidden": (8,), "batch_size": 8, "learning_starts": 20, "eval_episodes": 1, "eval_interval": 30, "time_steps": 2,
    "log_interval": 10, "recalibration_batches": 2, "total_timesteps": 60, "quiet": True,
}  # fmt: skip

pytestmark = pytest.mark.skipif(not PAGES.exists(), reason="the pages are in the repository, not in a package")


def section(page: str, heading: str) -> str:
    """What stands under a heading of the second level."""
    found = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", (PAGES / page).read_text(), re.M | re.S)
    assert found, f"{page} has no section {heading!r}"
    return found[1]


def table(text: str) -> list[list[str]]:
    """Rows that begin with a name in code quotes; the quotes are taken off the first two cells."""
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in text.splitlines() if line[:3] == "| `"]
    return [[row[0].strip("`"), row[1].strip("`"), *row[2:]] for row in rows]


def flag(name: str) -> str:
    return {"import_modules": "--import", "wrappers": "--wrapper"}.get(name, f"--{name.replace('_', '-')}")


def as_shown(value: Any) -> str:
    """A default, as the table of shared options has it."""
    if value is None or value is False or value in ((), {}):
        return "–"
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def test_there_is_a_page_for_every_algorithm_and_the_first_page_leads_there() -> None:
    assert set(ALGOS) <= ALGORITHMS.keys()
    assert {path.stem for path in PAGES.glob("*.md")} == {*ALGOS, "index"}
    index = (PAGES / "index.md").read_text()
    for algo in ALGOS:
        assert f"({algo}.md)" in index


@pytest.mark.parametrize("algo", ALGOS)
def test_all_pages_have_the_same_sections_in_the_same_order(algo: str) -> None:
    assert re.findall(r"^## (.+)$", (PAGES / f"{algo}.md").read_text(), re.M) == SECTIONS


@pytest.mark.parametrize("algo", ALGOS)
def test_the_options_of_an_algorithm_and_their_defaults_are_those_of_the_code(algo: str) -> None:
    shared = {f.name for f in fields(TrainConfig)}
    true = {flag(name) if name in shared else name: value for name, value in ALGORITHMS[algo].table().items()}
    shown = table(section(f"{algo}.md", "Options"))
    assert {name: ast.literal_eval(default) for name, default, *_ in shown} == true
    assert len(shown) == len(true)
    for name, _, source, effect in shown:
        assert re.fullmatch(r"Table \d", source), name
        assert effect, name


def test_the_shared_options_and_their_defaults_are_those_of_carebn_train() -> None:
    of_algorithms = {name for algo in ALGOS for name in ALGORITHMS[algo].table()}
    full = TrainConfig().checked()
    true = {flag(f.name): as_shown(getattr(full, f.name)) for f in fields(full) if f.name not in of_algorithms}
    shown = table(section("index.md", "Options that all algorithms share"))
    assert {name: default for name, default, *_ in shown} == true
    assert [name for name, *_ in shown] == list(true), "in the order of carebn train"


def keys_of(text: str) -> set[str]:
    return {name for name, *_ in table(text)}


def logged(run: Path, name: str) -> set[str]:
    return {key for line in (run / name).read_text().splitlines() for key in json.loads(line)}


@pytest.mark.parametrize("algo", ALGOS)
def test_the_logged_keys_are_those_of_a_run(algo: str, tmp_path: Path) -> None:
    env = "CartPole-v1" if ALGORITHMS[algo].discrete else "Pendulum-v1"
    proxy = {"target": "proxy"} if ALGORITHMS[algo].target_actor else {}
    short = {"max_episode_steps": 20}  # so that an episode ends within the run
    run = tmp_path / "run"
    carebn.train(env, algo, run_dir=run, target_rate=(0.1,), env_kwargs=short, **proxy, **SMALL)
    common, timing = section("index.md", "Logged keys").split("In `timing.jsonl`")
    own = keys_of(section(f"{algo}.md", "Logged keys"))
    families = {key[: -len("…")] for key in keys_of(common) if key.endswith("…")}
    assert families == {"losses/", "spikes/", "spike_penalty/"}
    metrics = logged(run, "metrics.jsonl")
    assert {key for key in metrics if key.startswith("losses/")} == own
    assert {key for key in metrics if not key.startswith(tuple(families))} == keys_of(common) - {
        f"{family}…" for family in families
    }
    for family in families:
        assert any(key.startswith(family) for key in metrics), family
    assert logged(run, "timing.jsonl") == keys_of(timing)


@pytest.mark.parametrize("algo", ALGOS)
def test_a_page_shows_every_figure_that_our_runs_have_given_and_claims_no_other(algo: str) -> None:
    text = section(f"{algo}.md", "Results")
    figures = sorted(path.name for path in (TOP / "docs" / "results").glob(f"*-{algo}-*.svg"))
    runs = [json.loads(path.read_text()) for path in (TOP / "results" / "runs").rglob("config.json")]
    assert sorted(re.findall(r"\(\.\./results/([^)]+\.svg)\)", text)) == figures, "figures of docs/results"
    none = f"There are no committed runs of {algo.upper()} yet"
    assert (none in text) == (not any(run["algo"] == algo for run in runs)), "whether there are runs"

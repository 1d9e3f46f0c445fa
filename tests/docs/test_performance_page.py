"""docs/performance.md: every figure on it is one of results/bench_*.json; one that moved is named, with its row."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

TOP = Path(__file__).parents[2]
PAGE = TOP / "docs" / "performance.md"

pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="the page is in the repository, not in an installed package")


def read(name: str) -> dict[str, Any]:
    """What a benchmark wrote."""
    data: dict[str, Any] = json.loads((TOP / "results" / f"bench_{name}.json").read_text())
    return data


def row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


# --- the tables, as the files say ------------------------------------------------------------------------------------

ACTOR = {
    "floor": "floor: products alone",
    "**carebn, CaRe-BN**": "carebn (care)",
    "carebn, plain batch norm": "carebn (bn)",
    "carebn, no normaliser": "carebn (none)",
    "carebn, pure torch": "carebn (care), pure torch",
    "SpikingJelly, multi-step": "SpikingJelly, multi-step",
    "SpikingJelly, step by step": "SpikingJelly, loop over unbind",
    "snnTorch": "snnTorch",
}
TRAINING = {
    "floor of the spiking agent": "floor spiking",
    "**carebn, spiking**": "carebn spiking",
    "floor of the ordinary agent": "floor ann",
    "**carebn, ANN**": "carebn ann",
    "Stable-Baselines3, ANN as shipped (400-300)": "stable-baselines3 ann",
    "Stable-Baselines3, ANN with 256-256": "stable-baselines3 ann, 256-256",
}
DEPLOY = {
    "**`carebn.deploy`, numba**": "runtime with numba",
    "`carebn.deploy`, numpy alone": "runtime, numpy alone",
    "acting in training": "acting in training (FastActor)",
    "torch, `eval()` forward": "torch, eval forward",
}


def actor_rows() -> list[str]:
    threads = [read("actor")["threads"][number]["times"] for number in "12"]
    rows = []
    for shown, name in ACTOR.items():
        both = [(times[name]["both_ms"], times[ACTOR["floor"]]["both_ms"]) for times in threads]
        rows.append(row(shown, *(cell for ms, floor in both for cell in (f"{ms:.2f}", f"{ms / floor:.2f}"))))
    return rows


def growth_rows() -> list[str]:
    growth = read("actor")["growth"]
    names = {"T": "time steps", "batch": "batch", "width": "hidden width"}
    return [
        row(names[what], size, f"{each['ours_ms']:.1f}", f"{each['floor_ms']:.1f}", f"{each['ratio']:.2f}")
        for what, sizes in growth.items()
        for size, each in sizes.items()
    ]


def training_rows() -> list[str]:
    data = read("training")
    columns = [data[f"threads {threads}"][env] for env in ("Ant-v4", "Hopper-v4") for threads in (1, 2)]
    return [row(shown, *(f"{column[name] * 1000:.1f}" for column in columns)) for shown, name in TRAINING.items()]


def deploy_rows() -> list[str]:
    figures = read("deploy")["figures"]
    return [
        row(shown, f"{figures[name]['median_ms']:.3f}", f"{figures[name]['fastest_ms']:.3f}")
        for shown, name in DEPLOY.items()
    ]


def version_rows() -> list[str]:
    actor, training, deploy = read("actor"), read("training"), read("deploy")
    versions = deploy | training["versions"] | actor["versions"]
    known = {name: value for name, value in versions.items() if isinstance(value, str) and name != "cpus"}
    machine = actor["machine"]
    return [
        row("processor", f"{machine['cpu']}, {machine['cpus']} of its processors, {machine['system']}"),
        *(row(name, known[name]) for name in sorted(known)),
    ]


def sentences() -> list[str]:
    """Figures that stand in the text."""
    training, deploy, actor = read("training"), read("deploy"), read("actor")
    columns = [training[f"threads {threads}"][env] for env in ("Ant-v4", "Hopper-v4") for threads in (1, 2)]

    def ratios(theirs: str, ours: str) -> str:
        found = sorted(column[theirs] / column[ours] for column in columns)
        return f"{found[0]:.2f} to {found[-1]:.2f}"

    gains = sorted(
        training["threads 1"][env]["carebn spiking"] / training["threads 2"][env]["carebn spiking"]
        for env in ("Ant-v4", "Hopper-v4")
    )
    overhead, rates = training["overhead"], deploy["rates"][1:]
    return [
        f"The ordinary agent runs {ratios('stable-baselines3 ann', 'carebn ann')} times as fast as "
        f"Stable-Baselines3's as shipped, and {ratios('stable-baselines3 ann, 256-256', 'carebn ann')} times as fast "
        f"with networks of the same size",
        f"The spiking agent runs {ratios('stable-baselines3 ann', 'carebn spiking')} times as fast as "
        f"Stable-Baselines3's ordinary one as shipped",
        f"made the spiking agent {gains[0]:.2f} to {gains[-1]:.2f} times as fast",
        f"kept {min(actor['two_processes']['kept']):.0f} % of the speed of one alone",
        f"kept {min(training['two at once']) * 100:.0f} % of it",
        f"took {overhead['share'] * 100:.1f} % of a run at the paper's settings",
        f"takes {training['threads 1']['Ant-v4 predict'] * 1000:.3f} ms",
        f"take {training['replay bytes'] / 1e6:.0f} MB",
        f"`import carebn.deploy` takes {deploy['import_s']:.2f} s",
        f"{sum(rates) / len(rates) * 100:.0f} % of the neurons in the layers firing",
    ]


def test_the_page_has_the_figures_of_the_benchmarks_and_no_others() -> None:
    lines = PAGE.read_text().splitlines()
    rows = {line for line in lines if line.startswith("| ") and re.search(r"\| [\d*.]+ \|", line)}
    told = [*actor_rows(), *growth_rows(), *training_rows(), *deploy_rows(), *version_rows()]
    missing = [line for line in told if line not in lines]
    assert not missing, "not on the page, or with other figures:\n" + "\n".join(missing)
    others = sorted(rows - set(told))
    assert not others, "on the page, and in no file of results:\n" + "\n".join(others)


def test_the_figures_in_its_sentences_are_those_of_the_benchmarks() -> None:
    text = " ".join(PAGE.read_text().replace("**", "").split())
    missing = [sentence for sentence in sentences() if sentence not in text]
    assert not missing, "these should be on the page:\n" + "\n".join(missing)

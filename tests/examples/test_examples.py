"""The examples train, and compute what they say they compute."""

import importlib
import json
import os
import re
import subprocess
import sys
from html import unescape
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import carebn

EXAMPLES = Path(__file__).parents[2] / "examples"
LIBRARIES = {"with_spikingjelly": "spikingjelly", "with_snntorch": "snntorch", "with_norse": "norse"}


def example(name: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module(name)


def test_each_is_short_enough_to_be_read() -> None:
    most = {"td3_clif_care": 250} | dict.fromkeys(LIBRARIES, 60)
    lines = {name: len((EXAMPLES / f"{name}.py").read_text().splitlines()) for name in most}
    assert all(lines[name] < most[name] for name in most), lines


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 5])
def test_the_single_file_computes_what_carebn_train_does(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Byte for byte: the returns of every evaluation, and every tensor of the policy."""
    options: dict[str, Any] = {"total_timesteps": 400, "learning_starts": 100, "batch_size": 32, "eval_interval": 150}
    options |= {"eval_episodes": 2, "recalibration_batches": 5, "seed": seed, "hidden": (16, 24)}
    carebn.train("Hopper-v4", method="care-bn", neuron="clif", quiet=True, run_dir=tmp_path / "run", **options)
    module = example("td3_clif_care", monkeypatch)
    with torch.random.fork_rng():
        module.train(module.Args(**options, run_dir=tmp_path / "file"))

    def rows(run: str, key: str, *kept: str) -> list[list[Any]]:
        lines = (tmp_path / run / "metrics.jsonl").read_text().splitlines()
        return [[row[name] for name in ("step", *kept)] for row in map(json.loads, lines) if key in row]

    assert len(rows("run", "returns")) == 3
    assert rows("file", "returns", "returns") == rows("run", "returns", "returns")
    episodes = ("charts/episodic_return",) * 2
    assert rows("file", *episodes) == rows("run", *episodes)
    ours, theirs = (
        load_file(tmp_path / "file" / "policy.safetensors"),
        load_file(tmp_path / "run" / "policy.safetensors"),
    )
    assert ours.keys() == theirs.keys()
    assert all(ours[name].numpy().tobytes() == theirs[name].numpy().tobytes() for name in ours)


@pytest.mark.slow
@pytest.mark.parametrize("name", LIBRARIES)
def test_other_libraries_learn_digits(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip(LIBRARIES[name], reason=f"{LIBRARIES[name]} is not installed; '.[peers]' brings it")
    pytest.importorskip("sklearn", reason="scikit-learn, which has the digits, is not installed; '.[peers]' brings it")
    module = example(name, monkeypatch)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        assert module.classify(module.network(64, 10), module.run) > 0.85  # a tenth by chance


@pytest.mark.slow
@pytest.mark.parametrize("name", LIBRARIES)
def test_other_libraries_balance_a_pole(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip(LIBRARIES[name], reason=f"{LIBRARIES[name]} is not installed; '.[peers]' brings it")
    module = example(name, monkeypatch)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        assert module.balance(module.network(4, 2), module.run) > 80  # about twenty untrained


def in_a_process(*command: str, cwd: Path) -> str:
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, *command], cwd=cwd, env=env, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "library"),
    [*((f"{name}.py", library) for name, library in LIBRARIES.items()), ("crossq_care.py run", "sb3_contrib")],
)
def test_a_missing_library_is_one_sentence(words: str, library: str, tmp_path: Path) -> None:
    """It is hidden by a module of its name that cannot be imported."""
    (tmp_path / f"{library}.py").write_text("raise ImportError")
    env = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    script, *rest = words.split()
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / script), *rest], cwd=tmp_path, env=env, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "pip install" in done.stderr


@pytest.mark.slow
def test_crossq_is_run_and_drawn(tmp_path: Path) -> None:
    pytest.importorskip("sb3_contrib", reason="sb3-contrib is not installed; '.[peers]' brings it")
    script = str(EXAMPLES / "crossq_care.py")
    for norm in ("care", "renorm"):
        words = ("--norm", norm, "--steps", "160", "--interval", "80", "--episodes", "1", "--out", "out")
        assert f"{norm}, seed 0" in in_a_process(script, "run", *words, cwd=tmp_path)
    assert "is there already" in in_a_process(script, "run", *words, cwd=tmp_path)
    told = in_a_process(script, "draw", "--steps", "160", "--out", "out", cwd=tmp_path)
    assert "CaRe-BN: last evaluations" in told
    assert (tmp_path / "out" / "crossq.svg").stat().st_size > 10_000


def test_the_figure_of_crossq_shows_the_committed_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    root = EXAMPLES.parent
    module = example("crossq_care", monkeypatch)
    data = module.numbers(root / "results" / "crossq", 4000, 128)

    def drawn(path: Path) -> Any:
        described = re.search(r"<dc:description>(.*?)</dc:description>", path.read_text(), re.DOTALL)
        assert described is not None
        return json.loads(unescape(described[1]))

    assert drawn(root / "docs" / "figures" / "crossq.svg") == data
    module.draw(root / "results" / "crossq", 4000, 128, tmp_path / "again.svg")
    assert drawn(tmp_path / "again.svg") == data
    text = (root / "docs" / "integrations.md").read_text()
    for name, of in data.items():
        assert of["seeds"] == 5
        said = f"{of['iqm'][-1]:.0f} ({of['low'][-1]:.0f} … {of['high'][-1]:.0f})".replace("-", "−")
        assert f"| {name} | {said} |" in text
    ours, theirs = data.values()
    apart = [low > high for low, high in zip(ours["low"], theirs["high"], strict=True)]
    assert apart == [True] + [False] * 7  # ahead at the first evaluation, from then on the intervals overlap
    assert f"({ours['iqm'][0]:.0f} against {theirs['iqm'][0]:.0f}, and".replace("-", "−") in text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algo", "env"),
    [
        ("td3", "Pendulum-v1"),
        ("td3", "Hopper-v4"),
        ("sac", "Pendulum-v1"),
        ("dqn", "CartPole-v1"),
        ("crossq", "Pendulum-v1"),
    ],
)
def test_the_zoo_trains_with_our_configurations(algo: str, env: str, tmp_path: Path) -> None:
    pytest.importorskip("rl_zoo3", reason="rl-zoo3 is not installed; pip install rl-zoo3 (see docs/integrations.md)")
    command = ["-m", "rl_zoo3.train", "--algo", algo, "--env", env, "--conf-file", f"{EXAMPLES}/rl_zoo/{algo}.yml"]
    short = [
        "-n",
        "60",
        "--eval-freq",
        "30",
        "--eval-episodes",
        "1",
        "--n-eval-envs",
        "1",
        "-f",
        "logs",
        "--device",
        "cpu",
    ]
    changed = ["-params", "learning_starts:20", "batch_size:8"]
    in_a_process(*command, *short, *changed, cwd=tmp_path)
    assert list(tmp_path.glob(f"logs/{algo}/{env}_1/best_model.zip"))

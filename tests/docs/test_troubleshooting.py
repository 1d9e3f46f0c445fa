"""docs/troubleshooting.md quotes the package word for word: the cheap sentences are provoked, all are in the source."""

import ast
import re
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import gymnasium as gym
import numpy as np
import pytest
import torch
from said import Said

import carebn as package
from carebn.algorithm import ReplayBuffer
from carebn.show import drawn_environment
from carebn.study.sweep import ray_cluster, slurm
from carebn.training.evaluation import Evaluation, cut_short
from carebn.training.lock import lock
from carebn.training.loop import Run

TOP = Path(__file__).parents[2]
PAGE = TOP / "docs" / "troubleshooting.md"
SIZES = (
    "--total-timesteps 60 --learning-starts 20 --batch-size 8 --hidden 8 --time-steps 2 --eval-interval 30 "
    "--eval-episodes 1 --recalibration-batches 2 --checkpoint-interval 30 --quiet"
)
SMALL = SIZES.split()
OWN = """
import gymnasium as gym
import numpy as np


class Robot(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    third = 0.0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.made = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.made += 1
        seen = self.third if self.made == 3 else 0.0
        return np.full(2, seen, np.float32), 0.0, False, self.made == 5, {}


class Broken(Robot):
    third = np.nan


class Unbounded(Robot):
    action_space = gym.spaces.Box(-np.inf, np.inf, (1,), np.float32)


for made in (Robot, Broken, Unbounded):
    gym.register(f"{made.__name__}-v0", made)
"""
Command = Callable[..., Said]

pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="the page is in the repository, not in an installed package")


@cache
def quotes() -> list[str]:
    """What stands in blocks of text."""
    return re.findall(r"^```text\n(.*?)\n```$", PAGE.read_text(), re.M | re.S)


def assert_quoted(sentence: str) -> None:
    assert sentence.strip() in quotes(), f"not on the page, word for word:\n{sentence}"


# --- the command line ------------------------------------------------------------------------------------------------


@pytest.fixture
def own_code(carebn: Command) -> Iterator[None]:
    """A module of the user's in the current directory."""
    Path("my_robot.py").write_text(OWN)
    before = list(sys.path)
    sys.modules.pop("my_robot", None)
    yield
    sys.path[:] = before
    sys.modules.pop("my_robot", None)
    for name in ("Robot-v0", "Broken-v0", "Unbounded-v0"):
        gym.registry.pop(name, None)


@pytest.mark.parametrize(
    "words",
    [
        "train --env-id Hoper-v4",
        "train --env-id CartPole-v1 --algo td3",
        "train --env-id Pendulum-v1 --algo dqn",
        "train --env-id ALE/Pong-v5 --algo dqn --env-kwargs obs_type=rgb",
        "train --env-id Pendulum-v1 --algo tdd3",
        "train --env-id Pendulum-v1 --total-timesteps 100",
        "train --env-id Pendulum-v1 --method ann --neuron lif",
        "evaluate runs/nothing",
        "train --run-dir runs/nothing",
    ],
)
def test_a_mistake_at_the_command_line(carebn: Command, words: str) -> None:
    assert_quoted(carebn(*words.split()).err)


def test_a_module_that_is_not_there(carebn: Command) -> None:
    said = carebn("train", "--env-id", "Mine-v0", "--import", "nowhere_module").err
    assert any(said.startswith(quote) for quote in quotes() if "nowhere_module" in quote), said


def test_no_graphics_card(carebn: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert_quoted(carebn("train", "--env-id", "Pendulum-v1", "--device", "cuda").err)


def test_runs_and_their_files(carebn: Command, own_code: None) -> None:
    robot = ["train", "--env-id", "Robot-v0", "--import", "my_robot", "--run-dir", "runs/first", *SMALL]
    assert carebn(*robot).code == 0
    first = Path("runs/first")
    assert_quoted(carebn(*robot, "--seed", "1").err)
    assert_quoted(carebn(*robot, "--total-timesteps", "40").err)
    assert_quoted(carebn("evaluate", "runs/first").err)
    with lock(first):
        assert_quoted(carebn(*robot, "--total-timesteps", "90").err)
    for export in (["--weights", "int8"], ["--max-neurons", "10"]):
        assert_quoted(carebn("export", "runs/first", "--to", "nir", "--out", "policy.nir", *export).err)
    for name, old, new in (("config.json", b'"seed": 0', b'"seed": 2'), ("policy.safetensors", None, b"damaged!")):
        whole = (first / name).read_bytes()
        (first / name).write_bytes(whole[: -len(new)] + new if old is None else whole.replace(old, new))
        assert_quoted(carebn("evaluate", "runs/first", "--trust").err)
        (first / name).write_bytes(whole)


@pytest.mark.parametrize("env", ["Broken-v0", "Unbounded-v0"])
def test_an_environment_that_does_not_do(carebn: Command, own_code: None, env: str) -> None:
    assert_quoted(carebn("train", "--env-id", env, "--import", "my_robot", "--run-dir", "runs/own", *SMALL).err)


# --- from Python, and what would be dear to provoke as a user does ---------------------------------------------------


def full_disk() -> NoReturn:
    saving = Run._saving(SimpleNamespace(directory=Path("runs/first"), step=5000))  # type: ignore[arg-type]
    with saving:
        raise OSError(28, "No space left on device")
    raise AssertionError


def undrawable(monkeypatch: pytest.MonkeyPatch, chosen: str) -> None:
    monkeypatch.setenv("MUJOCO_GL", chosen)
    monkeypatch.setattr(drawn_environment, "working_backend", lambda *_: None)
    drawn_environment._prepare_mujoco()


def small_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("carebn.limits.memory", lambda: 8 * 2**30)
    ReplayBuffer(1_000_000_000, (3,), np.float32, (1,))


def export(**options: Any) -> None:
    actor = package.SpikingActor(2, 1, hidden=(4,), time_steps=2, **options)
    package.export(actor, "nir", "policy.nir")


PROVOKED: dict[str, Callable[[pytest.MonkeyPatch], Any]] = {
    "batch of one": lambda _: package.CaReBN(4)(torch.zeros(1, 4)),
    "features": lambda _: package.CaReBN(4)(torch.zeros(3, 5)),
    "NaN in a batch": lambda _: package.CaReBN(4)(torch.full((3, 4), torch.nan)),
    "full disk": lambda _: full_disk(),
    "no EGL": lambda monkeypatch: undrawable(monkeypatch, ""),
    "MUJOCO_GL": lambda monkeypatch: undrawable(monkeypatch, "egll"),
    "memory": small_memory,
    "NIR and steps": lambda _: export(norm="bntt"),
    "NIR and dn": lambda _: export(norm="none", neuron="dn"),
    "Poisson": lambda _: export(encoder_options={"coding": "poisson"}),
    "Ray's address": lambda _: ray_cluster._check_address("nowhere"),
    "Ray does not answer": lambda _: ray_cluster._check_address("127.0.0.1:1"),
    "Slurm's options": lambda _: slurm._parameters(("long",)),
}


@pytest.mark.parametrize("what", PROVOKED)
def test_a_mistake_in_python(
    what: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises((ValueError, OSError)) as error:
        PROVOKED[what](monkeypatch)
    assert any(quote.removeprefix("carebn: ") == str(error.value) for quote in quotes()), str(error.value)


def test_episodes_without_an_end() -> None:
    assert_quoted(f"warning: {cut_short(Evaluation([0.0], [108_000], 1), 'Endless-v0', '--eval-max-steps')}")


# --- all of them -----------------------------------------------------------------------------------------------------


@cache
def pieces() -> set[str]:
    """Every literal part of a string in the source."""
    found = set()
    for path in Path(package.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) >= 8:
                found.add(node.value)
    return found


def test_every_quote_is_made_of_what_the_source_says() -> None:
    assert len(quotes()) > 30
    for quote in quotes():
        sentence = re.sub("^(carebn|warning): ", "", quote)
        own = [False] * len(sentence)
        for piece in pieces():
            place = sentence.find(piece)
            if place < 0 and piece.startswith(sentence):  # a quote that breaks off
                own = [True] * len(sentence)
            elif place >= 0:
                own[place : place + len(piece)] = [True] * len(piece)
        assert sum(own) > 0.4 * len(own), f"the source has no such sentence:\n{quote}"

"""Arguments, wrappers and spaces of every kind: trained, resumed, evaluated, watched, exported."""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tyro
from gymnasium.spaces import Box, Dict, Discrete, flatten
from own_worlds import SPACES, Draws

from carebn.cli import main
from carebn.training import Run, TrainConfig
from carebn.training.env_kwargs import parse
from carebn.training.policy import load
from carebn.training.spaces_file import read_spaces, write_spaces
from carebn.training.worlds import env_of

SMALL: dict[str, Any] = {
    "algo": "dqn", "import_modules": ("own_worlds",), "total_timesteps": 40, "learning_starts": 20, "hidden": (8,),
    "batch_size": 8, "eval_interval": 20, "eval_episodes": 2, "checkpoint_interval": 20, "log_interval": 20,
    "recalibration_batches": 2, "quiet": True,
}  # fmt: skip


def config(directory: Path, **options: Any) -> TrainConfig:
    return TrainConfig("Draws-v0", run_dir=directory, **{**SMALL, **options})


def files(run: Path) -> dict[str, bytes]:
    skip = ("timing.jsonl", ".lock")
    paths = [path for path in sorted(run.rglob("*")) if path.is_file() and path.name not in skip]
    return {str(path.relative_to(run)): path.read_bytes() for path in paths}


@pytest.fixture
def carebn(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def call(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["carebn", *words])
        with pytest.raises(SystemExit) as end:
            main()
        said = capsys.readouterr()
        return int(end.value.code or 0), said.out, said.err

    return call


@pytest.mark.parametrize("kind", SPACES)
def test_observations_of_every_kind(tmp_path: Path, kind: str) -> None:
    """Trained, stopped and resumed; evaluated from the file; predicting from what the environment gives."""
    options = {"env_kwargs": {"kind": kind}, "method": "ann"}
    assert Run(config(tmp_path / "a", **options)).train()
    stopped = Run(config(tmp_path / "b", **options), callback=lambda event: event.step < 27)
    assert stopped.train()
    assert stopped.step == 27
    assert Run(config(tmp_path / "b", **options)).train()
    assert files(tmp_path / "a") == files(tmp_path / "b")
    policy = load(tmp_path / "a", trust=True)
    env = env_of(policy.config, True)
    flat, _ = env.reset(seed=3)
    raw, _ = Draws(kind).reset(seed=3)
    assert flat.shape == (policy.obs_dim,)
    action, _ = policy.predict(raw)
    assert action in (4, 5, 6)
    assert (
        policy.predict(flat.astype(policy.obs_dtype))[0] == action == policy.act(flat.astype(policy.obs_dtype))[0] + 4
    )
    assert policy.predict(np.stack([flat, flat]).astype(policy.obs_dtype))[0].tolist() == [action, action]
    assert policy.evaluate(2).lengths == [8, 8]


def test_the_order_of_a_dict_is_kept_in_its_file(tmp_path: Path) -> None:
    """Names that are given one by one are not sorted by Gymnasium, and a policy was trained on them in their order."""
    space = Dict(target=Box(-1, 1, (2,)), joints=Dict([("right", Discrete(3)), ("left", Discrete(2))]))
    write_spaces(tmp_path, space, Discrete(2))
    found = read_spaces(tmp_path)
    assert found is not None
    observation = space.sample()
    assert np.array_equal(flatten(found[0], observation), flatten(space, observation))


def test_numbers_that_are_not_of_the_space_are_refused(tmp_path: Path) -> None:
    run = Run(config(tmp_path, env_kwargs={"kind": "Dict"}))
    run.train()
    policy = load(tmp_path)
    for wrong in ({"kind": 1}, np.zeros(3), (1, 2)):
        with pytest.raises(ValueError, match="expected an observation of"):
            policy.predict(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("words", "values"),
    [
        (["kind=Tuple", "fine=0.5", "flag=true", "size=[1, 2]", "none=null", "text=a=b", 'seven="7"'],
         {"kind": "Tuple", "fine": 0.5, "flag": True, "size": [1, 2], "none": None, "text": "a=b", "seven": "7"}),
        (['{"kind": "Tuple", "deep": {"a": [1]}}'], {"kind": "Tuple", "deep": {"a": [1]}}),
        ([], {}),
        (["rate=NaN"], {"rate": "NaN"}),
    ],
)  # fmt: skip
def test_arguments_as_words(words: list[str], values: dict[str, Any]) -> None:
    assert parse(words) == values
    assert tyro.cli(TrainConfig, args=["--env-kwargs", *words]).checked().env_kwargs == values


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--env-kwargs", "fine"], "not of the form NAME=VALUE"),
        (["--env-kwargs", "a=1", "a=2"], "a is given twice"),
        (["--env-kwargs", "{broken"], "not JSON"),
        (["--env-kwargs", "a b=1"], "names of arguments, got 'a b'"),
        (["--env-kwargs", "render_mode=human"], "render_mode does not apply"),
        (
            ["--env-kwargs", "colour=red"],
            r"^carebn: cannot make .*'Draws-v0': unknown argument 'colour'; known: fine, kind, max_episode_steps$",
        ),
        (["--env-kwargs", "kind=Sphere"], r"cannot make environment 'Draws-v0': 'Sphere' \(.*own_worlds"),
        (["--wrapper", "own_worlds"], "needs module:Class"),
        (["--wrapper", "own_worlds:Nothing"], "has no class 'Nothing'"),
        (["--wrapper", "no_such_world:It"], r"cannot import module 'no_such_world' \(--wrapper\)"),
        (["--wrapper", "own_worlds:not_an_env"], "gave a int, not a gymnasium environment"),
        (["--wrapper", "own_worlds:broken"], "RuntimeError: no such thing"),
    ],
)
def test_mistakes_in_arguments_and_wrappers(carebn: Any, tmp_path: Path, words: list[str], said: str) -> None:
    code, _, error = carebn(
        "train",
        "--env-id",
        "Draws-v0",
        "--algo",
        "dqn",
        "--import",
        "own_worlds",
        "--run-dir",
        str(tmp_path / "r"),
        *words,
    )
    assert code != 0
    assert "Traceback" not in error
    assert re.search(said, " ".join(error.replace("│", " ").split()))
    assert not (tmp_path / "r").exists()


def test_arguments_and_wrappers_are_part_of_the_run(tmp_path: Path) -> None:
    plain, fined = config(tmp_path), config(tmp_path, env_kwargs={"fine": 1.0}, wrappers=("own_worlds:Doubled",))
    assert plain.checked().name() != fined.checked().name()
    assert not {"env_kwargs", "wrappers"} & plain.as_json().keys()  # as before there were any
    Run(fined).train()
    stored = json.loads((tmp_path / "config.json").read_text())
    assert (stored["env_kwargs"], stored["wrappers"]) == ({"fine": 1.0}, ["own_worlds:Doubled"])
    command = (tmp_path / "command.txt").read_text()
    assert "--env-kwargs fine=1.0 --wrapper own_worlds:Doubled" in command
    with pytest.raises(ValueError, match=r"another configuration: .*env_kwargs"):
        Run(plain).train()
    policy = load(tmp_path, trust=True)
    actions = [policy.act(env_of(policy.config, True).reset(seed=9)[0])[0]]
    assert policy.evaluate(1, seed=9).returns[0] % 2 == 0  # doubled, after a fine of one for each of eight steps
    assert actions[0] in (0, 1, 2)


@pytest.mark.slow
def test_every_command_opens_such_a_run(carebn: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    options = ("--env-kwargs", "kind=Tuple", "fine=0.5", "--wrapper", "own_worlds:Doubled", "--import", "own_worlds")
    numbers = {name: value for name, value in SMALL.items() if isinstance(value, int) and name != "quiet"}
    words = [word for name, value in numbers.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    train = ("train", "--env-id", "Draws-v0", "--algo", "dqn", "--run-dir", "run", "--quiet", "--hidden", "8", *words)
    assert carebn(*train, *options)[0] == 0
    for command in (
        ("evaluate", "run", "--episodes", "2"),
        ("energy", "run", "--episodes", "1", "--quiet"),
        ("spikes", "run", "--decision", "3"),
        ("watch", "run", "--out", "film.gif", "--quiet", "--seconds", "1"),
        ("export", "run", "--to", "numpy", "--out", "p.npz", "--observations", "20"),
        ("export", "run", "--to", "c", "--weights", "float64", "--out", "p.c", "--observations", "20"),
        ("train", "--run-dir", "run"),
    ):
        code, said, error = carebn(*command, "--trust")
        assert code == 0, (command, said, error)
    assert carebn("report", "run")[0] == 0


def test_what_a_class_hands_on_is_known_too(tmp_path: Path) -> None:
    """Hopper's own arguments, and of MujocoEnv's those that Hopper does not give itself."""
    with pytest.raises(ValueError, match="unknown argument 'healthy_rewards': did you mean 'healthy_reward'") as told:
        Run(TrainConfig("Hopper-v4", run_dir=tmp_path, env_kwargs={"healthy_rewards": 1}))
    known = str(told.value).partition("Known: ")[2].split(", ")
    assert {"healthy_reward", "reset_noise_scale", "camera_id", "max_episode_steps"} <= set(known)
    assert not {"self", "render_mode", "model_path", "frame_skip", "kwargs"} & set(known)

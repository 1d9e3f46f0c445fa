"""An algorithm, a normaliser and a neuron of one's own: a file each, with the one line that registers it."""

import json
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from test_extension import assert_same, killed
from torch import Tensor, nn

import carebn as package
from carebn import agents
from carebn.algorithm import ALGORITHMS, Agent, Algorithm, DQNOptions, Sampling, Setup, dqn
from carebn.checksums import Mismatch
from carebn.cli import main
from carebn.neuron import NEURONS
from carebn.norm import NORMS
from carebn.options import parse
from carebn.training import Run, TrainConfig
from carebn.training.methods import find_method
from carebn.training.policy import load

HERE = Path(__file__).parent
TOYS = ("toy_algorithm", "toy_norm", "toy_neuron")
SMALL: dict[str, Any] = {
    "env_id": "InvertedPendulum-v4", "total_timesteps": 60, "learning_starts": 20, "hidden": (8,), "batch_size": 8,
    "eval_interval": 20, "eval_episodes": 1, "checkpoint_interval": 15, "recalibration_batches": 2, "log_interval": 7,
    "quiet": True,
}  # fmt: skip
KINDS: dict[str, dict[str, Any]] = {
    "algorithm": {"algo": "toy", "algo_options": {"pull": 0.5, "critic_hidden": [6, 5]}},
    "normaliser": {"method": "toy-norm"},
    "neuron": {"neuron": "toy-neuron"},
    "all three": {"algo": "toy", "method": "toy-norm", "neuron": "toy-neuron"},
    "z-scores and random spikes": {"algo": "toy", "observation": "zscore", "coding": "poisson"},
}
WORDS = {"algorithm": "--algo toy", "normaliser": "--method toy-norm", "neuron": "--neuron toy-neuron"}
MODULES = dict(zip(WORDS, TOYS, strict=True))


@pytest.fixture(autouse=True)
def nothing_registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test registers is gone afterwards, and its modules can be imported anew."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = [(known, dict(known)) for known in (ALGORITHMS, NORMS, NEURONS)]
    yield
    forget()
    for known, names in before:
        known.clear()
        known.update(names)


def forget() -> None:
    for known, name in ((ALGORITHMS, "toy"), (NORMS, "toy-norm"), (NEURONS, "toy-neuron")):
        known.pop(name, None)
    for name in TOYS:
        sys.modules.pop(name, None)
    vars(agents).pop("TOY", None)


@pytest.fixture
def toys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(HERE))
    for name in TOYS:
        import_module(name)


def config(kind: str, directory: Path, **options: Any) -> TrainConfig:
    return TrainConfig(**SMALL | KINDS[kind] | {"run_dir": directory} | options)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_it_trains_and_resumes_exactly(toys: None, kind: str, tmp_path: Path) -> None:
    Run(config(kind, tmp_path / "whole")).train()
    again = tmp_path / "again"
    killed(config(kind, again), 33)
    killed(config(kind, again), 50)
    Run(config(kind, again)).train()
    assert_same(tmp_path / "whole", again)
    Run(config(kind, tmp_path / "short", total_timesteps=41)).train()
    Run(config(kind, tmp_path / "short")).train()
    assert_same(tmp_path / "whole", tmp_path / "short")


@pytest.fixture
def carebn(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Callable[..., tuple[int, str, str]]:
    """The command line in a directory with the three files, as if each command were a new process."""
    for name in TOYS:
        shutil.copy(HERE / f"{name}.py", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if Path(place) != HERE])
    monkeypatch.setenv("COLUMNS", "200")

    def call(words: str) -> tuple[int, str, str]:
        forget()
        monkeypatch.setattr(sys, "argv", ["carebn", *words.split()])
        with pytest.raises(SystemExit) as end:
            main()
        return int(end.value.code or 0), *capsys.readouterr()

    return call


def train_words(kind: str) -> str:
    small = (
        "--env-id InvertedPendulum-v4 --total-timesteps 30 --learning-starts 20 --hidden 8 --batch-size 8 "
        "--eval-interval 15 --eval-episodes 1 --checkpoint-interval 15 --recalibration-batches 2 --quiet"
    )
    return f"train --run-dir run {small} {WORDS[kind]} --import {MODULES[kind]}"


@pytest.mark.slow
@pytest.mark.parametrize("kind", WORDS)
def test_from_the_command_line_on_the_users_word_alone(carebn: Any, kind: str, tmp_path: Path) -> None:
    module = MODULES[kind]
    code, out, err = carebn(train_words(kind))
    assert (code, err) == (0, "")
    assert f"--import {module}" in out  # of the next command
    commands = ["evaluate run --episodes 1", "train --run-dir run --total-timesteps 35 --quiet"]
    if kind != "neuron":
        commands.append("export run --to numpy --out policy.npz --observations 20")
    for words in commands:
        code, out, err = carebn(words)
        assert (code, out) == (1, ""), words
        assert f"run needs code of its own (unknown {kind.replace('normaliser', 'method')} 'toy" in err
        assert f"config.json names module {module}, and nothing is imported on the word of a file" in err
        assert f"add --import {module}, or --trust" in err
        assert err.count("\n") == 1
        assert module not in sys.modules
        assert carebn(f"{words} --import json")[0] == 1  # another module is not the one
        for word in (f"--import {module}", "--trust"):
            code, _, err = carebn(f"{words} {word}")
            assert code == 0, err
    forget()
    with pytest.raises(ValueError, match=f"add --import {module}"):
        package.load("run")
    assert module not in sys.modules
    action, _ = package.load("run", trust=True).predict(np.zeros(4, np.float32))
    assert action.shape == (1,)


@pytest.mark.slow
def test_a_configuration_that_was_changed_imports_nothing(carebn: Any) -> None:
    assert carebn(train_words("algorithm"))[0] == 0
    path = Path("run/config.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"gamma": 0.5}))
    forget()
    with pytest.raises(Mismatch):
        load("run", trust=True)
    assert "toy_algorithm" not in sys.modules


@pytest.mark.slow
def test_a_run_that_names_no_module_asks_for_one(toys: None, carebn: Any, tmp_path: Path) -> None:
    """It was registered by hand, in Python."""
    Run(config("normaliser", tmp_path / "run")).train()
    code, _, err = carebn("evaluate run --episodes 1")
    assert code == 1
    assert "unknown method 'toy-norm'" in err
    assert "for one of your own, add --import and the module that registers it" in err
    assert carebn("evaluate run --episodes 1 --import toy_norm")[0] == 0


@pytest.mark.slow
def test_from_python(carebn: Any) -> None:
    """The fixture is for the directory with the modules."""
    options = {name: value for name, value in SMALL.items() if name != "env_id"}
    made = package.train("InvertedPendulum-v4", "toy", run_dir="run", import_modules=("toy_algorithm",), **options)
    assert made.complete
    assert made.config.neuron == "lif"
    assert made.evaluate(1).mean > 0
    policy = made.policy()
    obs = np.ones((3, 4), np.float32)
    greedy = policy.predict(obs)[0]
    policy.seed(1)
    sampled = policy.predict(obs, deterministic=False)[0]
    policy.seed(1)
    assert np.array_equal(policy.predict(obs, deterministic=False)[0], sampled)
    assert not np.array_equal(sampled, greedy)
    assert sorted(name for name in made.policy().network.state_dict() if "spread" in name) == []
    agent = agents.TOY(
        "InvertedPendulum-v4", run_dir="agent", import_modules=("toy_algorithm",), **without_steps(options)
    )
    assert agent.learn(30).result.step == 30
    forget()
    with pytest.raises(ValueError, match="add --import toy_algorithm"):
        package.TD3.load("agent")
    with pytest.raises(ValueError, match="was trained by toy, not by td3"):
        package.TD3.load("agent", trust=True)
    with pytest.raises(AttributeError, match="TOYS"):
        agents.TOYS  # noqa: B018


def without_steps(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name != "total_timesteps"}


# --- what is told of it -----------------------------------------------------------------------------------------------


def test_help_and_lists_name_it(
    toys: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        parse(import_module("carebn.commands.train"), "carebn train", ["--help"])
    text = " ".join(re.sub("[│|]", " ", capsys.readouterr().out).split())
    assert "--algo {td3,ddpg,sac,dqn,toy}" in text
    assert "continuous actions: td3, ddpg, sac, toy; discrete: dqn" in text
    assert "--neuron {lif,clif,dn,dn-authors,toy-neuron}" in text
    assert "lif (dqn, toy)" in text
    method = find_method("toy-norm")
    assert (method.norm, method.spiking, method.algorithms) == ("toy-norm", True, ())
    assert "toy" in find_method("pop-san").algorithms
    assert find_method("proxy-target").algorithms == ("td3", "ddpg")


def test_methods_lists_it(carebn: Any) -> None:
    assert "toy-norm" not in carebn("methods")[1]
    assert "unknown method 'toy-norm'" in carebn("methods toy-norm")[2]
    assert "spiking actor with toy-norm" in " ".join(carebn("methods --import toy_norm")[1].split())
    assert "normaliser of toy_norm" in carebn("methods toy-norm --import toy_norm")[1]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"algo": "toi"}, "unknown algorithm 'toi': did you mean 'toy'"),
        ({"method": "toynorm"}, "did you mean 'toy-norm'"),
        ({"neuron": "toyneuron"}, "did you mean 'toy-neuron'"),
        ({"algo": "toy", "tau": 0.5}, "--tau does not apply to toy"),
        ({"algo": "toy", "target": "proxy"}, "--target does not apply: toy has no target actor"),
        ({"algo": "toy", "raw_bytes": True}, "toy has an actor, not a Q-network"),
        ({"algo": "toy", "algo_options": {"pul": 1.0}}, "did you mean 'pull'"),
        ({"algo": "toy", "algo_options": {"pull": -1.0}}, "pull must not be negative, got -1.0"),
        ({"algo": "toy", "algo_options": {"critic_hidden": [1.5]}}, r"critic_hidden must be of the kind tuple\[int"),
        (
            {"method": "toy-norm", "norm_momentum": 0.5},
            "--norm-momentum does not apply: normaliser toy-norm has no mom",
        ),
    ],
)
def test_mistakes_are_told_by_what_is_registered(toys: None, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said) as error:
        TrainConfig(**options).checked()
    assert "\n" not in str(error.value)


def test_the_wrong_kind_of_actions_names_the_right_algorithms(toys: None, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="use --algo td3, ddpg, sac or toy"):
        Run(TrainConfig("Pendulum-v1", algo="dqn", run_dir=tmp_path))


def test_a_record_needs_options_with_defaults() -> None:
    @dataclass(frozen=True)
    class NoDefault:
        gamma: float

    with pytest.raises(TypeError, match="needs a default, and gamma has none"):
        Algorithm(NoDefault, dqn.build)
    with pytest.raises(TypeError, match="are a dataclass"):
        Algorithm(dict, dqn.build)


# --- discrete actions -------------------------------------------------------------------------------------------------


def softmax(network: nn.Module, nothing: nn.Module, q: Tensor, obs: Tensor, rng: np.random.Generator) -> Tensor:
    chosen = [rng.choice(len(p), p=p / p.sum()) for p in q.double().softmax(-1).numpy()]
    return torch.tensor(chosen)


def no_network(obs_dim: int, actions: int) -> nn.Module:
    return nn.Identity()


def build_soft(setup: Setup) -> Agent:
    assert setup.actions == 2
    return dqn.build(setup)


def test_a_policy_over_discrete_actions_may_be_sampled_too(tmp_path: Path) -> None:
    ALGORITHMS["soft"] = Algorithm(
        DQNOptions,
        build_soft,
        discrete=True,
        called=dqn.RECORD.called,
        sampling=Sampling("none", "none", no_network, softmax),
    )
    try:
        small = SMALL | {"env_id": "CartPole-v1", "algo": "soft", "total_timesteps": 30, "run_dir": tmp_path}
        Run(TrainConfig(**small)).train()
        policy = load(tmp_path)
        obs = np.zeros((64, 4), np.float32)
        assert len(set(policy.predict(obs)[0])) == 1
        assert set(policy.predict(obs, deterministic=False)[0]) == {0, 1}
    finally:
        del ALGORITHMS["soft"]

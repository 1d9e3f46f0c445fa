"""A configuration survives JSON and the command line, and its name tells it from every other."""

import json
import shlex
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import tyro

from carebn.training import Run, TrainConfig
from carebn.training.config import OUTSIDE
from carebn.training.methods import METHODS

CHANGES: dict[str, Any] = {
    "env_id": "Walker2d-v4",
    "algo": "ddpg",
    "method": "bn",
    "neuron": "lif",
    "seed": 3,
    "total_timesteps": 77,
    "threads": 2,
    "device": "cuda",
    "import_modules": ("one", "two"),
    "env_kwargs": {"name": "a = 'b'", "depth": [1, 2.5, None], "flag": True, "word": "7"},
    "wrappers": ("one:Slow", "gymnasium.wrappers:FlattenObservation"),
    "learning_starts": 11,
    "spike_penalty": (0.5,),
    "target_rate": (0.1,),
    "random_steps": 10,
    "update_interval": 3,
    "num_envs": 7,
    "updates_per_step": 0.125,
    "buffer_size": 500,
    "batch_size": 64,
    "gamma": 0.95,
    "tau": 1e-05,
    "actor_learning_rate": 2e-05,
    "critic_learning_rate": 0.1 + 0.2,  # 17 digits
    "exploration_noise": 0.3,
    "algo_options": {"critic_weight_decay": 0.125},
    "target": "proxy",
    "proxy_hidden": (20, 10),
    "proxy_learning_rate": 0.02,
    "proxy_updates": 2,
    "time_steps": 4,
    "hidden": (64, 32, 16),
    "surrogate": "sigmoid",
    "coding": "poisson",
    "observation": "zscore",
    "encoder_reset": "threshold",
    "encoder_range": 3.0,
    "encoder_std": 0.3,
    "readout": "max-membrane",
    "readout_init": "torch",
    "intralayer": "no-self",
    "norm_momentum": 0.2,
    "norm_init": "care",
    "raw_bytes": True,
    "eval_interval": 123,
    "eval_episodes": 3,
    "eval_max_steps": 500,
    "recalibration_batches": 7,
    "checkpoint_interval": 55,
    "log_interval": 9,
}


def parsed(command: str) -> TrainConfig:
    words = shlex.split(command)
    assert words[:2] == ["carebn", "train"]
    return tyro.cli(TrainConfig, args=words[2:]).checked()


def some_configs() -> list[TrainConfig]:
    few: dict[str, Any] = {"batch_size": 32, "seed": 5, "hidden": (8,), "gamma": 0.5}
    return [
        TrainConfig(),
        TrainConfig(**{name: value for name, value in CHANGES.items() if name not in ("raw_bytes", "spike_penalty")}),
        *(TrainConfig(method=method, **few) for method in METHODS),
        *(TrainConfig(algo=algo, **few) for algo in ("dqn", "ddpg", "td3", "sac")),
        TrainConfig(env_id="ALE/Pong-v5", algo="dqn", raw_bytes=True, critic_learning_rate=1e-3),
        TrainConfig(env_id="ALE/Pong-v5", algo="dqn", method="vanilla", neuron="dn", readout="count"),
        TrainConfig(method="pop-san-original", observation="tanh", coding="deterministic"),
        TrainConfig(method="proxy-target", neuron="dn", proxy_hidden=(12, 8), algo="ddpg"),
        TrainConfig(method="care-bn", target="proxy"),
        TrainConfig(method="crpi", conversion_steps=32, residual_alpha=0.5),
        TrainConfig(env_id="name with 'quotes' and spaces-v0", import_modules=("a.b",)),
        TrainConfig(learning_starts=0),
    ]


@pytest.mark.parametrize("config", some_configs())
def test_json_round_trip(config: TrainConfig) -> None:
    for one in (config, config.checked()):
        assert TrainConfig.from_json(json.loads(json.dumps(one.as_json()))) == one


@pytest.mark.parametrize("config", some_configs())
def test_the_command_gives_the_same_configuration(config: TrainConfig) -> None:
    full = config.checked()
    assert parsed(full.command()) == full
    assert parsed(config.command()) == full


@pytest.mark.parametrize("config", some_configs())
def test_checking_twice_changes_nothing(config: TrainConfig) -> None:
    assert config.checked().checked() == config.checked()


def test_the_name_is_fixed_and_differs_for_every_option_but_the_threads() -> None:
    base = TrainConfig(algo="td3", method="care-bn").checked()
    assert base.name() == TrainConfig().checked().name()
    assert base.name().startswith("Hopper-v4__td3__care-bn__clif__s0__")
    names = [base.name()]
    for field in fields(TrainConfig):
        if field.name in OUTSIDE or field.name not in CHANGES or field.name == "threads":
            continue
        names.append(replace(base, **{field.name: CHANGES[field.name]}).name())
    assert len(names) == len(CHANGES)
    assert replace(base, threads=2).name() == base.name()  # how it is carried out is not what it is
    assert len(set(names)) == len(names)


def test_every_option_is_covered_here() -> None:
    """So that a new option cannot be forgotten; those which one algorithm alone knows default to None."""
    special = {"target_interval", "epsilon_decay_steps", "conversion_steps", "residual_alpha"}
    assert {f.name for f in fields(TrainConfig)} - set(OUTSIDE) - special == CHANGES.keys()


def test_spelling_a_default_out_is_the_same_run() -> None:
    assert TrainConfig(gamma=0.99, neuron="clif").checked().name() == TrainConfig().checked().name()


def test_a_name_is_one_directory() -> None:
    assert "/" not in TrainConfig(env_id="ALE/Pong-v5", algo="dqn").checked().name()


def test_where_a_run_lives_is_not_part_of_it(tmp_path: Path) -> None:
    here, there = TrainConfig(run_dir=tmp_path, quiet=True, track=True).checked(), TrainConfig().checked()
    assert here.as_json() == there.as_json()
    assert here.name() == there.name()
    assert here.command() == there.command()
    assert not set(OUTSIDE) & here.as_json().keys()


def test_an_unknown_option_is_named() -> None:
    with pytest.raises(ValueError, match="does not know: 'gama'"):
        TrainConfig.from_json({"gama": 0.9})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"total_timesteps": 0}, "--total-timesteps must be at least 1, got 0"),
        ({"total_timesteps": -5}, "--total-timesteps must be at least 1, got -5"),
        ({"threads": 0}, "--threads"),
        ({"buffer_size": 0}, "--buffer-size"),
        ({"time_steps": 0}, "--time-steps"),
        ({"eval_interval": 0}, "--eval-interval"),
        ({"eval_episodes": 0}, "--eval-episodes"),
        ({"recalibration_batches": 0}, "--recalibration-batches"),
        ({"checkpoint_interval": 0}, "--checkpoint-interval"),
        ({"log_interval": 0}, "--log-interval"),
        ({"seed": -1}, "--seed"),
        ({"learning_starts": -1}, "--learning-starts"),
        ({"hidden": ()}, "--hidden"),
        ({"hidden": (8, 0)}, "--hidden"),
        ({"batch_size": 1}, "--batch-size must be at least 2"),
        ({"gamma": 2.0}, "--gamma must lie in"),
        ({"gamma": -0.1}, "--gamma"),
        ({"gamma": float("nan")}, "--gamma"),
        ({"tau": 0.0}, "--tau must lie in"),
        ({"tau": 1.5}, "--tau"),
        ({"actor_learning_rate": -1.0}, "--actor-learning-rate"),
        ({"critic_learning_rate": float("nan")}, "--critic-learning-rate"),
        ({"exploration_noise": float("nan")}, "--exploration-noise"),
        ({"exploration_noise": -0.1}, "--exploration-noise"),
        ({"method": "care_bn"}, "did you mean 'care-bn'"),
        ({"method": "Pop-San"}, "did you mean 'pop-san'"),
        ({"neuron": "cliff"}, "did you mean 'clif'"),
        ({"method": "pop-san", "neuron": "dn"}, "method pop-san means clif neurons"),
        ({"method": "ann", "neuron": "lif"}, "does not apply"),
        ({"algo": "dqn", "tau": 0.1}, "--tau does not apply to dqn"),
        ({"algo": "dqn", "exploration_noise": 0.1}, "--exploration-noise does not apply to dqn"),
        ({"algo": "dqn", "actor_learning_rate": 0.1}, "--actor-learning-rate does not apply to dqn"),
        ({"algo": "sac", "exploration_noise": 0.1}, "--exploration-noise does not apply to sac"),
        ({"algo": "ppo"}, "unknown algorithm 'ppo'; known: ddpg, dqn, sac, td3"),
        (
            {"algo": "dqn", "algo_options": {"policy_noise": 0.1}},
            "unknown option of dqn .* known: end_epsilon, start_ep",
        ),
        ({"algo": "dqn", "algo_options": {"start_epsilon": 1.1}}, "start_epsilon must be between 0 and 1, got 1.1"),
        ({"algo": "dqn", "algo_options": {"critic_learning_rate": 1.0}}, "an option by itself, --critic-learning-rate"),
        ({"algo": "ddpg", "algo_options": {"critic_weight_decay": -1.0}}, "critic_weight_decay must be at least 0"),
        ({"algo": "sac", "algo_options": {"alpha_learning_rate": 0}}, "alpha_learning_rate must be above 0"),
        ({"algo_options": {"policy_frequency": 1.5}}, "policy_frequency must be of the kind int"),
        ({"algo_options": {"policy_noise": float("inf")}}, "finite number if it is one, got inf"),
    ],
)
def test_bad_values_are_one_sentence(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said) as error:
        TrainConfig(**options).checked()
    assert "\n" not in str(error.value)


def test_the_options_reach_the_algorithm() -> None:
    options = TrainConfig(
        gamma=0.5, tau=0.1, batch_size=7, actor_learning_rate=0.1, critic_learning_rate=0.2, exploration_noise=0.3,
        recalibration_batches=4,
    ).checked().algorithm_options()  # fmt: skip
    assert (options.gamma, options.tau, options.batch_size, options.recalibration_batches) == (0.5, 0.1, 7, 4)
    assert (options.actor_learning_rate, options.critic_learning_rate, options.exploration_noise) == (0.1, 0.2, 0.3)
    dqn = TrainConfig(algo="dqn", critic_learning_rate=0.4, gamma=0.0).checked().algorithm_options()
    assert (dqn.learning_rate, dqn.gamma) == (0.4, 0.0)


def test_options_that_an_algorithm_alone_has_reach_it() -> None:
    config = TrainConfig(algo_options={"policy_noise": 1, "policy_frequency": 3}, gamma=0.5).checked()
    options = config.algorithm_options()
    assert (options.policy_noise, options.policy_frequency, options.noise_clip, options.gamma) == (1.0, 3, 0.5, 0.5)
    assert config.as_json()["algo_options"] == {"policy_noise": 1.0, "policy_frequency": 3}
    assert "algo_options" not in TrainConfig().checked().as_json()
    spelt_out = TrainConfig(algo_options={"policy_noise": 0.2}).checked()
    assert spelt_out.name() == TrainConfig().checked().name()


def test_the_command_in_a_run_directory_makes_that_run(tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "env_id": "CartPole-v1", "algo": "dqn", "method": "ann", "total_timesteps": 12, "learning_starts": 4,
        "hidden": (4,), "batch_size": 4, "eval_episodes": 1, "recalibration_batches": 1,
    }  # fmt: skip
    run = Run(TrainConfig(**options, run_dir=tmp_path, quiet=True))
    run.train()
    assert parsed((tmp_path / "command.txt").read_text()) == replace(run.config, run_dir=None, quiet=False)
    assert TrainConfig.from_json(json.loads((tmp_path / "config.json").read_bytes())).name() == run.config.name()

"""Stable-Baselines3's own classes with spiking policies: whose statistics move when, and what is kept in its files."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import Tensor

import carebn
from carebn import CaReBN

sb3 = pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed; '.[sb3]' brings it")
from stable_baselines3.common.callbacks import CheckpointCallback  # noqa: E402
from stable_baselines3.common.env_util import make_vec_env  # noqa: E402
from stable_baselines3.common.envs import BitFlippingEnv  # noqa: E402
from stable_baselines3.common.evaluation import evaluate_policy  # noqa: E402
from stable_baselines3.common.noise import NormalActionNoise  # noqa: E402
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize  # noqa: E402

from carebn.integrations.sb3 import (  # noqa: E402
    RecalibrateCallback,
    SpikingDQNPolicy,
    SpikingSACPolicy,
    SpikingTD3Policy,
    deployable,
)

POLICIES = {"TD3": SpikingTD3Policy, "DDPG": SpikingTD3Policy, "SAC": SpikingSACPolicy, "DQN": SpikingDQNPolicy}
SMALL = {"net_arch": [8, 8]}
every_algorithm = pytest.mark.parametrize("name", POLICIES)
State = dict[str, Tensor]


def world(name: str) -> str:
    return "CartPole-v1" if name == "DQN" else "Pendulum-v1"


def model(name: str, env: Any = None, **options: Any) -> Any:
    more = {"train_freq": 1, "target_update_interval": 10} if name == "DQN" else {}
    more |= {"learning_starts": 20, "batch_size": 8, "seed": 0, "device": "cpu", **options}
    more["policy_kwargs"] = dict(options.get("policy_kwargs", SMALL))  # to which SB3 adds
    return getattr(sb3, name)(POLICIES[name], env or world(name), **more)


def acting(of: Any) -> Any:
    return of.q_net if hasattr(of, "q_net") else of.actor


def target(of: Any) -> Any:
    return of.q_net_target if hasattr(of, "q_net") else of.actor_target


def state(of: Any) -> State:
    return {name: tensor.clone() for name, tensor in of.state_dict().items()}


def same(a: State, b: State) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def norms(network: Any) -> list[CaReBN]:
    return [module for module in network.modules() if isinstance(module, CaReBN)]


@every_algorithm
def test_statistics_move_once_for_each_loss_of_the_network_itself(name: str) -> None:
    trained = model(name).learn(60)
    passes = trained._n_updates // (2 if name == "TD3" else 1)
    assert passes > 10
    assert [int(norm.num_batches_tracked) for norm in norms(acting(trained))] == [passes] * len(
        norms(acting(trained))
    )  # SAC's target pass in training mode would double it


@pytest.mark.parametrize("name", ["TD3", "DDPG", "DQN"])
def test_targets_have_the_statistics_and_stay_in_evaluation_mode(name: str) -> None:
    trained = model(name).learn(60)
    online, aim = acting(trained), target(trained)
    for ours, theirs in zip(norms(online), norms(aim), strict=True):
        assert not torch.equal(theirs.running_mean, torch.zeros_like(theirs.running_mean))
        assert not torch.equal(theirs.running_var, torch.ones_like(theirs.running_var))
        if name != "DQN":  # whose target was not copied at the last step
            assert torch.equal(ours.running_mean, theirs.running_mean)
        assert int(theirs.num_batches_tracked) == 0
    trained.policy.train()  # all of it, as anybody may say
    assert online.training
    assert not any(module.training for module in aim.modules())


@every_algorithm
def test_evaluating_changes_nothing(name: str) -> None:
    trained = model(name).learn(40)
    before = state(trained.policy)
    evaluate_policy(trained, trained.get_env(), n_eval_episodes=1)
    assert same(before, state(trained.policy))


@every_algorithm
def test_prediction_is_by_moving_statistics(name: str) -> None:
    """So one observation gives what it gives among others, and other statistics give something else."""
    trained = model(name).learn(40)
    rows = np.stack([trained.observation_space.sample() for _ in range(6)]).clip(-5, 5)
    together, _ = trained.predict(rows, deterministic=True)
    for row, action in zip(rows, together, strict=True):
        np.testing.assert_allclose(trained.predict(row, deterministic=True)[0], action, rtol=1e-5)
    network = acting(trained)
    inputs = torch.as_tensor(rows)
    read = network.forward if name == "DQN" else lambda x: network._predict(x, deterministic=True)
    with torch.no_grad():
        before = read(inputs)
        for norm in norms(network):
            norm.running_mean.add_(0.5)
        assert not torch.equal(read(inputs), before)


@every_algorithm
def test_saved_and_loaded_it_is_the_same_and_goes_on(name: str, tmp_path: Path) -> None:
    trained = model(name, policy_kwargs={**SMALL, "spiking": {"neuron": "lif", "time_steps": 3}}).learn(40)
    trained.save(tmp_path / "model")
    trained.save_replay_buffer(tmp_path / "replay")
    loaded = getattr(sb3, name).load(tmp_path / "model", env=gym.make(world(name)))
    assert same(state(trained.policy), state(loaded.policy))
    assert any("error_mean" in key for key in loaded.policy.state_dict())  # how far the estimates may be off, too
    before = state(acting(loaded))
    loaded.load_replay_buffer(tmp_path / "replay")
    loaded.learn(40, reset_num_timesteps=False)
    assert loaded.num_timesteps == 80
    assert not same(before, state(acting(loaded)))
    if name in ("TD3", "DDPG"):
        for ours, theirs in zip(norms(acting(loaded)), norms(target(loaded)), strict=True):
            assert torch.equal(ours.running_mean, theirs.running_mean)


def test_a_file_holds_names_of_ours_and_no_code(tmp_path: Path) -> None:
    model("TD3").save(tmp_path / "model")
    with zipfile.ZipFile(tmp_path / "model.zip") as archive:
        data = json.loads(archive.read("data"))
    assert data["policy_class"]["__module__"] == "carebn.integrations.sb3"
    assert data["policy_kwargs"] == SMALL  # plain JSON: nothing pickled


@every_algorithm
def test_a_policy_alone_can_be_saved(name: str, tmp_path: Path) -> None:
    trained = model(name, policy_kwargs={**SMALL, "spiking": {"time_steps": 3}}).learn(30)
    trained.policy.save(tmp_path / "policy")
    loaded = POLICIES[name].load(tmp_path / "policy", device="cpu")
    assert same(state(trained.policy), state(loaded))
    row = trained.observation_space.sample().clip(-5, 5)
    assert np.array_equal(loaded.predict(row, deterministic=True)[0], trained.predict(row, deterministic=True)[0])


# --- the callback ----------------------------------------------------------------------------------------------------


@every_algorithm
def test_recalibration_gives_the_statistics_of_the_batches(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    trained = model(name).learn(30)
    batch = trained.replay_buffer.sample(30)
    monkeypatch.setattr(trained.replay_buffer, "sample", lambda size, env=None: batch)
    callback = RecalibrateCallback(batches=3)
    callback.init_callback(trained)
    weights = [p.clone() for p in trained.policy.parameters()]
    callback.on_training_end()
    network = acting(trained)
    first = norms(network)[0]
    shown: list[Tensor] = []
    hook = first.register_forward_hook(lambda module, args, out: shown.append(args[0].clone()))
    with torch.no_grad():
        network._predict(batch.observations, deterministic=True)
    hook.remove()
    rows = shown[0].flatten(0, -2).double()
    torch.testing.assert_close(first.running_mean.double(), rows.mean(0), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(first.running_var.double(), rows.var(0, correction=0), rtol=1e-4, atol=1e-5)
    assert all(torch.equal(a, b) for a, b in zip(weights, trained.policy.parameters(), strict=True))


@pytest.mark.parametrize("envs", [1, 3])
def test_the_interval_counts_steps_of_all_environments(envs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    worlds = DummyVecEnv([lambda: gym.make("Pendulum-v1")] * envs)
    callback = RecalibrateCallback(interval=25, batches=1)
    at: list[int] = []
    monkeypatch.setattr(callback, "_recalibrate", lambda: at.append(callback.model.num_timesteps))
    trained = model("TD3", worlds).learn(90, callback=callback)
    assert at == ([25, 50, 75, 90] if envs == 1 else [27, 51, 75, 90])
    at.clear()
    trained.learn(30, callback=callback, reset_num_timesteps=False)
    assert at == ([100, 120] if envs == 1 else [102, 120])


def test_recalibration_sees_observations_as_the_network_does(monkeypatch: pytest.MonkeyPatch) -> None:
    worlds = VecNormalize(DummyVecEnv([lambda: gym.make("Pendulum-v1")]))
    trained = model("TD3", worlds).learn(30)
    sampled: list[Any] = []
    sample = trained.replay_buffer.sample
    monkeypatch.setattr(
        trained.replay_buffer, "sample", lambda size, env=None: sampled.append(env) or sample(size, env=env)
    )
    callback = RecalibrateCallback(batches=2)
    callback.init_callback(trained)
    callback.on_training_end()
    assert sampled == [worlds, worlds]


# --- spaces ----------------------------------------------------------------------------------------------------------


class Parts(gym.Env[Any, Any]):
    observation_space = gym.spaces.Dict(x=gym.spaces.Box(-1, 1, (2,)), on=gym.spaces.Discrete(2))
    action_space = gym.spaces.Box(-1, 1, (1,))

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self.look(), {}

    def look(self) -> dict[str, Any]:
        return {"x": self.np_random.uniform(-1, 1, 2).astype(np.float32), "on": 1}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.look(), 0.0, False, bool(self.np_random.random() < 0.1), {}


class Memory(Parts):
    observation_space = gym.spaces.Box(0, 255, (6,), np.uint8)
    action_space = gym.spaces.Discrete(2)

    def look(self) -> Any:
        return self.np_random.integers(0, 256, 6).astype(np.uint8)


def test_observations_in_parts() -> None:
    trained = model("TD3", Parts()).learn(40, callback=RecalibrateCallback(20, 2))
    assert trained.actor.mu.encoder.obs_dim == 4


def test_bytes_are_divided_by_255() -> None:
    trained = model("DQN", Memory()).learn(30)
    trained.policy.set_training_mode(False)
    row = np.array([[0, 1, 50, 100, 200, 255]], np.uint8)
    with torch.no_grad():
        given = trained.q_net(torch.as_tensor(row))
        assert torch.equal(given, trained.q_net.q_net(torch.as_tensor(row) / 255))
        assert torch.equal(given, deployable(trained)(torch.as_tensor(row)))


@pytest.mark.slow
@every_algorithm
def test_goals_with_hindsight(name: str) -> None:
    env = BitFlippingEnv(n_bits=4, continuous=name != "DQN", max_steps=4)
    again = {"replay_buffer_class": sb3.HerReplayBuffer, "replay_buffer_kwargs": {"n_sampled_goal": 2}}
    trained = model(name, env, **again).learn(60, callback=RecalibrateCallback(30, 2))
    assert trained._n_updates > 0
    evaluate_policy(trained, trained.get_env(), n_eval_episodes=1, warn=False)


@pytest.mark.slow
@every_algorithm
def test_many_normalised_environments_checkpoints_and_going_on(name: str, tmp_path: Path) -> None:
    """As a user would have it: VecNormalize, four environments, as many updates as steps, saved on the way."""
    env = VecNormalize(make_vec_env(world(name), 4, seed=0))
    trained = model(name, env, gradient_steps=-1, device="auto")
    keep = CheckpointCallback(10, str(tmp_path), save_replay_buffer=True, save_vecnormalize=True)
    trained.learn(80, callback=[RecalibrateCallback(40, 2), keep])
    loaded = getattr(sb3, name).load(tmp_path / "rl_model_40_steps", env=env)
    loaded.load_replay_buffer(tmp_path / "rl_model_replay_buffer_40_steps")
    loaded.learn(40, callback=RecalibrateCallback(40, 2), reset_num_timesteps=False)
    assert loaded.num_timesteps == 80
    assert not same(state(loaded.policy), state(trained.policy))
    loaded.set_parameters(trained.get_parameters())
    assert same(state(loaded.policy), state(trained.policy))


# --- what cannot be --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "spiking", "told"),
    [
        ("TD3", {"neurn": "lif"}, "did you mean 'neuron'"),
        ("TD3", {"hidden": [8]}, "net_arch"),
        ("TD3", {"neuron": carebn.LIF()}, "plain data"),
        ("SAC", {"encoder_options": {"observation": "zscore"}}, "VecNormalize"),
        ("DQN", {"population": 3}, "unknown option"),
        ("TD3", "clif", "must be a dictionary"),
        ("SAC", {"encoder_options": "zscore"}, "'encoder_options' of 'spiking' in policy_kwargs must be a dictionary"),
    ],
)
def test_mistakes_are_told(name: str, spiking: Any, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        model(name, policy_kwargs={**SMALL, "spiking": spiking})


@every_algorithm
def test_a_misspelt_policy_option_is_told_in_a_sentence(name: str) -> None:
    with pytest.raises(ValueError, match=r"unknown option of Spiking\w+ .* 'net_ach': did you mean 'net_arch'"):
        model(name, policy_kwargs={"net_ach": [8, 8]})


def test_what_does_not_go_together_is_told() -> None:
    with pytest.raises(ValueError, match=r"SpikingTD3Policy \(for TD3 and DDPG\) 'use_sde'"):
        sb3.SAC(SpikingTD3Policy, "Pendulum-v1")
    with pytest.raises(ValueError, match="SpikingDQNPolicy is for DQN and Discrete actions"):
        sb3.TD3(SpikingDQNPolicy, "Pendulum-v1")
    with pytest.raises(ValueError, match="a callback that was made"):
        model("TD3").learn(1, callback=RecalibrateCallback)
    with pytest.raises(ValueError, match="use_sde"):
        model("SAC", use_sde=True)
    with pytest.raises(ValueError, match="no normaliser"):
        model("TD3", policy_kwargs={**SMALL, "spiking": {"norm": "none"}}).learn(1, callback=RecalibrateCallback())
    with pytest.raises(ValueError, match="at least 1"):
        RecalibrateCallback(0)


# --- deploying -------------------------------------------------------------------------------------------------------


@every_algorithm
def test_what_is_deployed_acts_as_the_model_does(name: str, tmp_path: Path) -> None:
    trained = model(name).learn(40)
    rows = np.stack([trained.observation_space.sample() for _ in range(20)]).clip(-5, 5)
    wanted, _ = trained.predict(rows, deterministic=True)
    network = deployable(trained)
    with torch.no_grad():
        given = network(torch.as_tensor(rows)).numpy()
    if name == "DQN":
        assert np.array_equal(given.argmax(-1), wanted)
    else:
        np.testing.assert_allclose(given, wanted, rtol=1e-4, atol=1e-5)  # in [−2, 2], the environment's own
    carebn.export(network, "numpy", tmp_path / "policy.npz", rows)
    assert (tmp_path / "policy.npz").exists()


def test_what_stands_before_the_network_is_not_deployed_silently() -> None:
    normalised = model("TD3", VecNormalize(DummyVecEnv([lambda: gym.make("Pendulum-v1")])))
    with pytest.raises(ValueError, match="VecNormalize"):
        deployable(normalised)
    with pytest.raises(ValueError, match="cannot be taken along"):
        deployable(model("TD3", Parts()))
    with pytest.raises(ValueError, match="spiking policy"):
        deployable(sb3.TD3("MlpPolicy", "Pendulum-v1"))


# --- learning --------------------------------------------------------------------------------------------------------

AGAIN = """
import sys
import gymnasium as gym
import stable_baselines3 as sb3
from stable_baselines3.common.evaluation import evaluate_policy

env = gym.make(sys.argv[3], max_episode_steps=200)
env.reset(seed=7)
model = getattr(sb3, sys.argv[1]).load(sys.argv[2], device="cpu")
print(repr(evaluate_policy(model, env, n_eval_episodes=5, return_episode_rewards=True, warn=False)[0]))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "steps", "enough", "options"),
    [
        ("TD3", 2500, 50.0, {"gamma": 0.98, "action_noise": NormalActionNoise(np.zeros(1), np.full(1, 0.1))}),
        ("DDPG", 2500, 50.0, {"gamma": 0.98, "action_noise": NormalActionNoise(np.zeros(1), np.full(1, 0.1))}),
        ("SAC", 2500, 50.0, {"gamma": 0.98, "learning_rate": 1e-3}),
        (
            "DQN", 6000, 80.0,
            {"learning_rate": 1e-3, "train_freq": 4, "gradient_steps": 2, "target_update_interval": 200,
             "exploration_fraction": 0.3},
        ),
    ],
    ids=["TD3", "DDPG", "SAC", "DQN"],
)  # fmt: skip
def test_learns_and_keeps_its_return_in_a_new_process(
    name: str, steps: int, enough: float, options: dict[str, Any], tmp_path: Path
) -> None:
    """A pole is held up: 200 steps are the most, an untrained policy has about ten."""
    torch.set_num_threads(1)
    task = "CartPole-v1" if name == "DQN" else "InvertedPendulum-v5"
    env = gym.make(task, max_episode_steps=200)
    net = {"policy_kwargs": {"net_arch": [64, 64]}, "batch_size": 64, "learning_starts": 500}
    learner = model(name, env, **net, **options)

    def returns() -> list[float]:
        env.reset(seed=7)
        given: Any = evaluate_policy(learner, env, n_eval_episodes=5, return_episode_rewards=True, warn=False)[0]
        return list(given)

    untrained = np.mean(returns())
    learner.learn(steps, callback=RecalibrateCallback(500, 20))
    learned = returns()
    print(f"{name}: {untrained:.0f} untrained, {np.mean(learned):.0f} after {steps} steps")
    assert np.mean(learned) > max(enough, 2 * untrained)
    learner.save(tmp_path / "model")
    command = [sys.executable, "-c", AGAIN, name, str(tmp_path / "model"), task]
    told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600).stdout
    assert told.splitlines()[-1] == repr(learned)

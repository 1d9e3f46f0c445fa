"""A finished run as a policy: the same actions as the agent that was trained, and nothing executed on loading."""

import json
import pickle
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import safetensors.torch
import torch
from safetensors import safe_open

from carebn.training import Run, TrainConfig
from carebn.training.policy import load
from carebn.training.policy_file import NoChecksum, digest
from carebn.training.record import read_rows


def config(directory: Path, **options: Any) -> TrainConfig:
    values: dict[str, Any] = {
        "env_id": "Pendulum-v1",
        "total_timesteps": 40,
        "learning_starts": 25,
        "hidden": (8,),
        "batch_size": 8,
        "eval_interval": 1000,
        "eval_episodes": 1,
        "checkpoint_interval": 20,
        "recalibration_batches": 2,
        "run_dir": directory,
        "quiet": True,
    }
    return TrainConfig(**(values | options))


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    directory = tmp_path_factory.mktemp("original")
    Run(config(directory)).train()
    return {name: (directory / name).read_bytes() for name in ("config.json", "policy.safetensors")}


@pytest.fixture
def finished(tmp_path: Path, original: dict[str, bytes]) -> Path:
    for name, data in original.items():
        (tmp_path / name).write_bytes(data)
    return tmp_path


@pytest.mark.parametrize(
    ("algo", "env_id", "method"),
    [
        *(("td3", "Pendulum-v1", method) for method in ("care-bn", "tdbn", "bntt", "tebn", "tab", "mdc-san", "ann")),
        ("ddpg", "Pendulum-v1", "ann-care"),
        ("sac", "Pendulum-v1", "care-bn"),
        ("sac", "Pendulum-v1", "ann"),
        ("dqn", "CartPole-v1", "care-bn"),
        ("dqn", "CartPole-v1", "ann"),
    ],
)
def test_it_acts_as_the_trained_agent(tmp_path: Path, algo: Any, env_id: str, method: str) -> None:
    run = Run(config(tmp_path, algo=algo, env_id=env_id, method=method))
    run.train()
    obs = np.random.default_rng(0).normal(size=(32, run.spaces.obs_dim)).astype(np.float32)
    expected = run.agent.act(obs, None)
    policy = load(tmp_path)
    actions, state = policy.predict(obs)
    assert state is None
    np.testing.assert_array_equal(actions, expected)
    for row, action in zip(obs[:4], actions, strict=False):
        single, state = policy.predict(row)
        assert state is None
        np.testing.assert_allclose(single, action, rtol=1e-5)
        assert run.env.action_space.contains(single)
    np.testing.assert_array_equal(policy.predict(obs, deterministic=True)[0], actions)
    np.testing.assert_array_equal(load(str(tmp_path)).predict(obs.astype(np.float64))[0], actions)


@pytest.mark.parametrize("options", [
    {"method": "care-bn"}, {"method": "ann"}, {"method": "vanilla", "observation": "zscore"},
])  # fmt: skip
def test_a_sac_policy_samples_as_its_agent_explores(tmp_path: Path, options: dict[str, Any]) -> None:
    run = Run(config(tmp_path, algo="sac", total_timesteps=60, **options))
    run.train()
    obs = np.random.default_rng(0).normal(size=(32, 3)).astype(np.float32)
    policy = load(tmp_path)
    policy.seed(7)
    sampled, _ = policy.predict(obs, deterministic=False)
    np.testing.assert_allclose(sampled, run.agent.act(obs, np.random.default_rng(7)), rtol=1e-5, atol=1e-6)
    assert (np.abs(sampled - policy.predict(obs)[0]) > 1e-3).mean() > 0.9
    assert (policy.predict(obs, deterministic=False)[0] != sampled).any()
    policy.seed(7)
    np.testing.assert_array_equal(policy.predict(obs, deterministic=False)[0], sampled)
    assert policy.predict(obs[0], deterministic=False)[0].shape == (1,)


@pytest.mark.slow
def test_random_spikes_and_a_random_action(tmp_path: Path) -> None:
    Run(config(tmp_path, algo="sac", method="vanilla", coding="poisson")).train()
    policy, obs = load(tmp_path), np.zeros((200, 3), np.float32)
    actions = policy.predict(obs, deterministic=False)[0]
    assert actions.std() > 0.1
    assert np.ptp(policy.predict(obs)[0]) == 0


def test_a_sac_policy_without_its_spread_says_so(tmp_path: Path) -> None:
    Run(config(tmp_path, algo="sac")).train()
    path = tmp_path / "policy.safetensors"
    tensors = safetensors.torch.load(path.read_bytes())
    path.write_bytes(safetensors.torch.save({k: v for k, v in tensors.items() if not k.startswith("log_std.")}))
    (tmp_path / "checksums.json").unlink()  # an earlier version's said nothing of the policy
    with pytest.warns(NoChecksum):
        policy = load(tmp_path)
    assert policy.predict(np.zeros(3))[0].shape == (1,)
    with pytest.raises(ValueError, match="saved without the spread of its actions"):
        policy.predict(np.zeros(3), deterministic=False)


def test_other_policies_are_deterministic_whatever_is_asked(finished: Path) -> None:
    policy, obs = load(finished), np.zeros((4, 3), np.float32)
    np.testing.assert_array_equal(policy.predict(obs, deterministic=False)[0], policy.predict(obs)[0])


def test_it_tells_what_it_is(finished: Path) -> None:
    said = repr(load(finished))
    assert said == "<carebn policy: Pendulum-v1, td3, care-bn, clif, seed 0; observations of size 3>"


def test_it_plays_as_the_last_evaluation_did(tmp_path: Path) -> None:
    run = Run(config(tmp_path, env_id="InvertedPendulum-v4", eval_episodes=3))
    run.train()
    policy, returns = load(tmp_path), []
    for seed in run.evaluating.seeds:
        env = gym.make("InvertedPendulum-v4")
        obs, _ = env.reset(seed=seed)
        total, over = 0.0, False
        while not over:
            obs, reward, terminated, truncated, _ = env.step(policy.predict(obs)[0])
            total, over = total + float(reward), terminated or truncated
        returns.append(total)
    assert returns == read_rows(tmp_path / "metrics.jsonl")[-1]["returns"]


def test_it_is_of_the_last_checkpoint_of_an_unfinished_run(tmp_path: Path) -> None:
    run = Run(config(tmp_path))
    run.stop_asked = True
    with pytest.raises(Exception, match="stopped at step 1"):
        run.train()
    assert load(tmp_path).predict(np.zeros(3, np.float32))[0].shape == (1,)


def test_stable_baselines_accepts_it(finished: Path) -> None:
    evaluation = pytest.importorskip("stable_baselines3.common.evaluation")
    monitor = pytest.importorskip("stable_baselines3.common.monitor")
    env = monitor.Monitor(gym.make("Pendulum-v1"))
    env.reset(seed=0)
    mean, std = evaluation.evaluate_policy(load(finished), env, n_eval_episodes=2)
    assert np.isfinite([mean, std]).all()


@pytest.mark.parametrize("shape", [(), (2,), (4,), (5, 4), (2, 2, 3), (0,)])
def test_observations_of_another_size_are_refused(finished: Path, shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="expected an observation of size 3"):
        load(finished).predict(np.zeros(shape, np.float32))


@pytest.mark.parametrize("method", ["care-bn", "ann"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e300])
def test_observations_that_are_not_finite_are_refused(tmp_path: Path, method: str, bad: float) -> None:
    Run(config(tmp_path, method=method, total_timesteps=4, learning_starts=2)).train()
    policy = load(tmp_path)
    for obs in (np.array([0, bad, 0]), np.array([[0, 0, 0], [0, bad, 0]])):
        with np.errstate(over="ignore"), pytest.raises(ValueError, match="NaN or infinity"):
            policy.predict(obs)


def test_what_is_no_byte_is_refused_where_bytes_are_expected(tmp_path: Path) -> None:
    """A cast to bytes would quietly turn it into some other observation."""
    run = Run(config(tmp_path, env_id="ALE/Pong-v5", algo="dqn", method="ann", total_timesteps=4, learning_starts=2))
    run.eval_envs[0] = gym.wrappers.TimeLimit(run.eval_envs[0], 5)
    run.train()
    policy = load(tmp_path)
    assert policy.predict(np.zeros(128, np.uint8))[0].shape == ()
    for bad in (np.nan, -1.0, 256.0):
        with np.errstate(invalid="ignore"), pytest.raises(ValueError, match=r"."):
            policy.predict(np.full(128, bad))


def test_an_empty_batch_gives_no_actions(finished: Path) -> None:
    assert load(finished).predict(np.zeros((0, 3), np.float32))[0].shape == (0, 1)


# --- files that were tampered with ------------------------------------------------------------------------------------


class Trap:
    """Leaves a file behind if somebody unpickles it."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> object:
        return open, (self.path, "w")


@pytest.mark.parametrize("damage", ["pickle", "truncated", "header", "empty", "other tensors", "other shapes"])
def test_a_damaged_policy_is_refused_and_nothing_executed(finished: Path, damage: str) -> None:
    path = finished / "policy.safetensors"
    data = path.read_bytes()
    tensors = safetensors.torch.load(data)
    path.write_bytes({
        "pickle": pickle.dumps(Trap(str(finished / "trap"))),
        "truncated": data[: len(data) // 2],
        "header": b"\xff" * 8 + data[8:],
        "empty": b"",
        "other tensors": safetensors.torch.save({"a": next(iter(tensors.values())).clone()}),
        "other shapes": safetensors.torch.save({k: v.reshape(-1)[:1].clone() for k, v in tensors.items()}),
    }[damage])  # fmt: skip
    with pytest.raises(ValueError, match="does not hold this run's policy") as error:
        load(finished)
    assert not (finished / "trap").exists()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("share", [0.6, 0.9, 1.0])
def test_a_flipped_bit_is_noticed_and_the_same_run_restores_the_policy(tmp_path: Path, share: float) -> None:
    Run(config(tmp_path)).train()
    path = tmp_path / "policy.safetensors"
    whole = path.read_bytes()
    data = bytearray(whole)
    data[int(share * (len(data) - 1))] ^= 1
    path.write_bytes(data)
    with pytest.raises(
        ValueError, match=r"policy\.safetensors is damaged: .* running the same carebn train command"
    ) as e:
        load(tmp_path)
    assert "\n" not in str(e.value)
    assert not Run(config(tmp_path)).train()  # complete
    assert path.read_bytes() == whole
    load(tmp_path)


def test_a_policy_without_a_checksum_is_read_with_a_warning(finished: Path) -> None:
    path = finished / "policy.safetensors"
    obs = np.zeros(3, np.float32)
    action = load(finished).predict(obs)[0]
    path.write_bytes(safetensors.torch.save(safetensors.torch.load(path.read_bytes())))
    with pytest.warns(NoChecksum, match="has no checksum"):
        assert load(finished).predict(obs)[0] == action


def test_a_policy_in_another_format_is_refused(finished: Path) -> None:
    path = finished / "policy.safetensors"
    tensors = safetensors.torch.load(path.read_bytes())
    for number in ("1", "2", "x" * 1000):
        path.write_bytes(safetensors.torch.save(tensors, {"sha256": digest(tensors), "carebn_format": number}))
        if number == "1":
            load(finished)
            continue
        with pytest.raises(ValueError, match=f"is a policy in format {number[:20]}, and this version") as error:
            load(finished)
        assert "reads format 1; use a version that reads it" in str(error.value)
        assert "\n" not in str(error.value)


def test_a_policy_says_nothing_of_its_format_while_there_is_one_alone(finished: Path) -> None:
    """Two entries of the metadata would have no fixed order, and the same run not the same bytes."""
    with safe_open(finished / "policy.safetensors", framework="pt") as file:
        assert file.metadata().keys() == {"sha256"}


def test_the_checksum_is_of_names_types_shapes_and_bytes() -> None:
    one = {"a": torch.arange(6.0), "b": torch.tensor(1)}
    assert digest(one) == digest({"b": torch.tensor(1), "a": torch.arange(12.0)[::2] / 2})
    others = [
        {"a": torch.arange(6.0), "c": torch.tensor(1)},
        {"a": torch.arange(6.0).reshape(2, 3), "b": torch.tensor(1)},
        {"a": torch.arange(6.0), "b": torch.tensor(1, dtype=torch.int32)},
        {"a": torch.arange(6.0).double(), "b": torch.tensor(1)},
        {"a": torch.arange(6.0), "b": torch.tensor(2)},
        {"a": torch.arange(6.0)},
    ]
    assert len({digest(other) for other in (one, *others)}) == len(others) + 1


def test_weights_that_are_not_finite_are_refused(finished: Path) -> None:
    path = finished / "policy.safetensors"
    tensors = safetensors.torch.load(path.read_bytes())
    tensors["decoder.bias"].fill_(float("nan"))
    path.write_bytes(safetensors.torch.save(tensors))
    with pytest.raises(ValueError, match=r"NaN|finite"):
        load(finished)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"gama": 0.9}, "gama"),
        ({"run_dir": "elsewhere", "surprise": 1}, "surprise"),
        ({"env_id": "Pendulam-v1"}, "did you mean 'Pendulum-v1'"),
        ({"env_id": "CartPole-v1"}, "discrete|does not hold|dqn"),
        ({"method": "care_bn"}, "did you mean 'care-bn'"),
        ({"hidden": [9]}, "does not hold this run's policy"),
        ({"hidden": "wide"}, "hidden"),
        ({"hidden": None}, "hidden"),
        ({"time_steps": "five"}, r"time.steps"),
        ({"time_steps": -1}, r"time.step"),
        ({"env_id": 7}, "env_id"),
    ],
)
def test_a_configuration_that_was_changed_is_refused(finished: Path, change: dict[str, Any], said: str) -> None:
    path = finished / "config.json"
    path.write_text(json.dumps(json.loads(path.read_bytes()) | change))
    with pytest.raises(ValueError, match=said):
        load(finished)


@pytest.mark.parametrize("text", ["", "{", "[]", "7", "null", "\x00", '"text"'])
def test_a_configuration_that_is_no_configuration_is_refused(finished: Path, text: str) -> None:
    (finished / "config.json").write_text(text)
    with pytest.raises(ValueError, match=r"config\.json"):
        load(finished)


def test_what_is_not_a_run(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"is not a run directory: it has no config\.json"):
        load(tmp_path)
    with pytest.raises(ValueError, match="is not a run directory"):
        load(tmp_path / "nowhere")
    (tmp_path / "README.md").write_text("x")
    with pytest.raises(ValueError, match=r"README\.md is not a run directory: it is a file"):
        load(tmp_path / "README.md")


def test_a_run_without_a_policy(finished: Path) -> None:
    (finished / "policy.safetensors").unlink()
    with pytest.raises(ValueError, match="has no policy yet"):
        load(finished)

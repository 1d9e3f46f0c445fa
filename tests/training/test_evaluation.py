"""Evaluations are repeatable, independent of training, and their numbers are right."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from carebn.training import Run, TrainConfig
from carebn.training.evaluation import Evaluation, asked_to_cut, cut_short, episode_limit, evaluate
from carebn.training.record import read_rows


class SeededLength(gym.Env[Any, Any]):
    """Lasts as many steps as the seed says; gives back the action as reward."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self) -> None:
        self.seeds: list[int | None] = []
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.seeds.append(seed)
        self.seed = seed or 0
        self.t = 0
        return np.array([self.seed, 0], np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.t < self.seed, "stepped after its end"
        self.t += 1
        self.steps += 1
        ends = self.t == self.seed
        return np.array([self.seed, self.t], np.float32), float(action[0]), ends, False, {}


def config(directory: Path, **options: Any) -> TrainConfig:
    values: dict[str, Any] = {
        "env_id": "InvertedPendulum-v4",
        "total_timesteps": 40,
        "learning_starts": 25,
        "hidden": (8,),
        "batch_size": 8,
        "eval_interval": 20,
        "eval_episodes": 4,
        "checkpoint_interval": 20,
        "recalibration_batches": 2,
        "run_dir": directory,
        "quiet": True,
    }
    return TrainConfig(**(values | options))


def test_episodes_of_different_lengths_get_their_own_actions() -> None:
    """Action = the episode's seed + its time step, so any mix-up between episodes shows in the returns."""
    seeds = [4, 1, 7, 2]
    envs = [SeededLength() for _ in seeds]
    sizes = []

    def act(obs: Any) -> Any:
        sizes.append(len(obs))
        return obs.sum(1, keepdims=True)

    result = evaluate(act, envs, seeds, "SeededLength")
    assert result.lengths == seeds
    assert result.returns == [float(s * s + s * (s - 1) // 2) for s in seeds]
    assert sizes == [4, 3, 2, 2, 1, 1, 1]
    assert [env.seeds for env in envs] == [[s] for s in seeds]


def test_mean_and_standard_deviation() -> None:
    result = Evaluation([1.0, 2.0, 6.0], [1, 1, 1])
    assert result.mean == 3.0
    assert result.std == pytest.approx(np.sqrt(14 / 3))
    assert isinstance(result.mean, float)


class Endless(SeededLength):
    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.t += 1
        return np.array([self.seed, self.t], np.float32), 1.0, self.t == self.seed, False, {}


def test_an_episode_without_an_end_is_cut() -> None:
    result = evaluate(lambda obs: obs, [Endless() for _ in range(3)], [3, 1000, 5], "Endless", max_steps=5)
    assert result == Evaluation([3.0, 5.0, 5.0], [3, 5, 5], cut=1)
    told = cut_short(result, "Endless", "--eval-max-steps")
    assert "1 of 3 episodes of Endless" in told
    assert "after 5 steps; register it with max_episode_steps" in told
    assert cut_short(Evaluation([1.0], [1]), "Endless", "--eval-max-steps") == ""


def test_who_asked_for_a_cut_is_not_advised_to_ask_for_it() -> None:
    result = Evaluation([3.0, 5.0], [3, 5], cut=1)
    own = cut_short(result, "Endless", "--max-steps", asked_to_cut(5, None))
    assert own == "1 of 2 episodes of Endless were cut after 5 steps, as --max-steps says"
    of_the_run = cut_short(result, "Endless", "--max-steps", asked_to_cut(None, 5))
    assert of_the_run.endswith("cut after 5 steps, as the run's --eval-max-steps says; --max-steps chooses otherwise")
    nobody = cut_short(result, "Endless", "--max-steps", asked_to_cut(None, None))
    assert nobody.endswith("register it with max_episode_steps, or choose how many with --max-steps")


def test_how_long_an_episode_may_last() -> None:
    """As asked; else as the environment itself says; else as long as the longest Atari game."""
    assert episode_limit(gym.make("Pendulum-v1"), None) == 200
    assert episode_limit(gym.make("Pendulum-v1"), 7) == 7
    assert episode_limit(Endless(), None) == 108_000
    assert episode_limit(Endless(), 7) == 7


def test_seeds_and_environments_must_match() -> None:
    with pytest.raises(ValueError, match="zip"):
        evaluate(lambda obs: obs, [SeededLength()], [1, 2], "SeededLength")


def test_seeds_are_distinct_fixed_and_of_the_run(tmp_path: Path) -> None:
    first, again, other = (Run(config(tmp_path, seed=seed, eval_episodes=10)) for seed in (0, 0, 1))
    assert len(set(first.evaluating.seeds)) == 10
    assert first.evaluating.seeds == again.evaluating.seeds
    assert not set(first.evaluating.seeds) & set(other.evaluating.seeds)
    starts = {tuple(env.reset(seed=s)[0]) for env, s in zip(first.eval_envs, first.evaluating.seeds, strict=True)}
    assert len(starts) == 10
    assert all(env is not first.env and env.unwrapped is not first.env.unwrapped for env in first.eval_envs)


@pytest.mark.parametrize(("method", "algo", "env_id"), [
    ("care-bn", "td3", "InvertedPendulum-v4"),
    ("tab", "sac", "InvertedPendulum-v4"),
    ("bn", "dqn", "CartPole-v1"),
    ("ann-care", "ddpg", "InvertedPendulum-v4"),
])  # fmt: skip
def test_an_evaluation_repeats_itself_and_changes_nothing(tmp_path: Path, method: str, algo: Any, env_id: str) -> None:
    run = Run(config(tmp_path, method=method, algo=algo, env_id=env_id))
    run.open()
    for _ in range(30):
        run.make_step()
    run.agent.recalibrate(run.replay, run.state.streams["recalibrate"])
    agent = {name: tensor.clone() for name, tensor in run.agent.state_dict().items()}
    streams, obs, episode = run.state.streams.state(), run.stepping.obs.copy(), run.state.episodes[0].number
    state = run.env.unwrapped.data.qpos.copy() if algo != "dqn" else run.env.unwrapped.state
    results = [
        evaluate(lambda o: run.agent.act(o.astype(np.float32), None), run.eval_envs, run.evaluating.seeds, env_id)
        for _ in range(2)
    ]
    assert results[0] == results[1]
    after = run.agent.state_dict()
    assert all(after[name].equal(agent[name]) for name in agent)
    assert all(module.training for module in run.agent.policy.modules() if hasattr(module, "running_mean"))
    assert run.state.streams.state() == streams
    assert run.state.episodes[0].number == episode
    np.testing.assert_array_equal(run.stepping.obs, obs)
    np.testing.assert_array_equal(run.env.unwrapped.data.qpos if algo != "dqn" else run.env.unwrapped.state, state)
    run.close()


@pytest.mark.parametrize("method", ["vanilla", "ca"])
def test_how_often_one_evaluates_does_not_change_what_is_learnt(tmp_path: Path, method: str) -> None:
    """For methods without re-calibration, which by design happens just before an evaluation."""
    for name, interval in (("often", 10), ("once", 40)):
        Run(config(tmp_path / name, method=method, eval_interval=interval)).train()
    policies = [(tmp_path / name / "policy.safetensors").read_bytes() for name in ("often", "once")]
    assert policies[0] == policies[1]


def test_the_row_of_an_evaluation(tmp_path: Path) -> None:
    run = Run(config(tmp_path))
    run.train()
    rows = [row for row in read_rows(tmp_path / "metrics.jsonl") if "eval/mean_return" in row]
    assert [row["step"] for row in rows] == [20, 40]
    for row in rows:
        assert len(row["returns"]) == len(row["lengths"]) == 4
        assert row["eval/mean_return"] == pytest.approx(np.mean(row["returns"]))
        assert row["eval/std_return"] == pytest.approx(np.std(row["returns"]))
    assert run.best == max(row["eval/mean_return"] for row in rows)


def test_the_end_is_evaluated_once_whatever_the_interval(tmp_path: Path) -> None:
    Run(config(tmp_path, total_timesteps=35, eval_interval=1000)).train()
    rows = [row["step"] for row in read_rows(tmp_path / "metrics.jsonl") if "eval/mean_return" in row]
    assert rows == [35]

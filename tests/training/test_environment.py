"""What an environment may be, what is said when it does not fit, and what is remembered of each step."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from carebn.training import Run, TrainConfig
from carebn.training.environment import make_env, spaces_of
from carebn.training.policy import load

LOW, HIGH = np.array([-3.0, 0.5, 10.0], np.float32), np.array([-1.0, 0.75, 1000.0], np.float32)


class Scripted(gym.Env[Any, Any]):
    """Observations count the steps of an episode; everything else is set from outside."""

    def __init__(
        self,
        dtype: Any = np.float32,
        action_space: gym.Space[Any] | None = None,
        ends_at: int = 5,
        terminates: bool = True,
        bad_obs_at: int | None = None,
        bad_reward_at: int | None = None,
        bad: float = np.nan,
        reuse: bool = False,
    ) -> None:
        lowest = 0 if dtype == np.uint8 else -100
        self.observation_space = gym.spaces.Box(lowest, 100, (2,), dtype)
        self.action_space = gym.spaces.Box(LOW, HIGH) if action_space is None else action_space
        self.ends_at, self.terminates = ends_at, terminates
        self.bad_obs_at, self.bad_reward_at, self.bad = bad_obs_at, bad_reward_at, bad
        self.reuse = reuse
        self.actions: list[Any] = []
        self.total = self.episode = 0
        self.buffer = np.zeros(2, dtype)

    def _observe(self) -> Any:
        values = [self.t, self.episode]
        if self.bad_obs_at is not None and self.total >= self.bad_obs_at:
            values = [self.bad, 0.0]
        if self.reuse:
            self.buffer[:] = values
            return self.buffer
        return np.array(values, self.observation_space.dtype)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.t = 0
        self.episode += 1
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.actions.append(action)
        self.t += 1
        self.total += 1
        reward = self.bad if self.total == self.bad_reward_at else float(self.t)
        over = self.t >= self.ends_at
        return self._observe(), reward, over and self.terminates, over and not self.terminates, {}


@pytest.fixture
def scripted() -> Iterator[str]:
    gym.register("Scripted-v0", Scripted)
    yield "Scripted-v0"
    del gym.registry["Scripted-v0"]


def with_options(env_id: str, **options: Any) -> None:
    gym.spec(env_id).kwargs.update(options)


def config(directory: Path, env_id: str, **options: Any) -> TrainConfig:
    values: dict[str, Any] = {
        "env_id": env_id,
        "total_timesteps": 30,
        "learning_starts": 22,
        "hidden": (8,),
        "batch_size": 8,
        "eval_interval": 1000,
        "eval_episodes": 1,
        "checkpoint_interval": 10,
        "recalibration_batches": 2,
        "run_dir": directory,
        "quiet": True,
    }
    return TrainConfig(**(values | options))


def trained(directory: Path, env_id: str, **options: Any) -> Run:
    run = Run(config(directory, env_id, **options))
    assert run.train()
    return run


@pytest.mark.parametrize(
    ("env_id", "algo"),
    [
        ("InvertedPendulum-v4", "td3"),
        ("InvertedPendulum-v5", "sac"),
        ("Pendulum-v1", "ddpg"),
        ("CartPole-v1", "dqn"),
        ("ALE/Pong-v5", "dqn"),
    ],
)
def test_the_promised_families_work(tmp_path: Path, env_id: str, algo: Any) -> None:
    run = Run(config(tmp_path, env_id, algo=algo, eval_interval=30))
    run.eval_envs[0] = gym.wrappers.TimeLimit(run.eval_envs[0], 20)  # a whole game of Pong takes a thousand steps
    assert run.train()
    assert run.replay.added == 30
    assert (tmp_path / "policy.safetensors").exists()


def test_atari_games_give_ram_and_bytes_stay_bytes() -> None:
    env = make_env("ALE/Pong-v5")
    spaces = spaces_of(env, "ALE/Pong-v5")
    assert spaces.obs_dim == 128
    assert spaces.obs_dtype == np.uint8
    env.close()


@pytest.mark.parametrize("dtype", [np.float64, np.int8, np.uint8])
@pytest.mark.parametrize("algo", ["td3", "dqn"])
def test_any_observation_type_arrives_as_it_is(tmp_path: Path, scripted: str, dtype: Any, algo: Any) -> None:
    with_options(scripted, dtype=dtype, action_space=gym.spaces.Discrete(3) if algo == "dqn" else None)
    run = trained(tmp_path, scripted, algo=algo, eval_interval=30)
    rows = run.replay.rows(0, 30)
    assert rows["obs"][:7, 0].tolist() == [0, 1, 2, 3, 4, 0, 1]
    assert load(tmp_path).predict(np.array([3, 1], dtype))[0].shape == (() if algo == "dqn" else (3,))


@pytest.mark.parametrize("algo", ["td3", "ddpg", "sac"])
def test_each_action_dimension_keeps_its_own_bounds(tmp_path: Path, scripted: str, algo: Any) -> None:
    """In the random warm-up, when exploring, and greedy."""
    noise = None if algo == "sac" else 2.0  # wide enough to meet the bounds
    run = trained(tmp_path, scripted, algo=algo, total_timesteps=100, learning_starts=80, exploration_noise=noise)
    actions = np.stack(run.env.unwrapped.actions)
    assert (actions >= LOW).all()
    assert (actions <= HIGH).all()
    spread = np.ptp(actions[:80], axis=0) / (HIGH - LOW)
    assert (spread > 0.9).all()  # the warm-up fills the whole range of every dimension
    greedy = load(tmp_path).predict(np.array([[900, -900], [0, 0]], np.float32))[0]
    assert ((greedy >= LOW) & (greedy <= HIGH)).all()


def test_warm_up_covers_every_discrete_action(tmp_path: Path, scripted: str) -> None:
    with_options(scripted, action_space=gym.spaces.Discrete(4))
    run = trained(tmp_path, scripted, algo="dqn", total_timesteps=60, learning_starts=59)
    assert {int(a) for a in run.env.unwrapped.actions} == {0, 1, 2, 3}


def test_termination_is_remembered_and_the_last_observation_is_the_true_one(tmp_path: Path, scripted: str) -> None:
    rows = trained(tmp_path, scripted).replay.rows(0, 30)
    assert rows["terminated"].tolist() == [False, False, False, False, True] * 6
    assert rows["next_obs"][:, 0].tolist() == [1, 2, 3, 4, 5] * 6  # never the 0 of a reset
    assert rows["obs"][:, 0].tolist() == [0, 1, 2, 3, 4] * 6
    assert rows["reward"].tolist() == [1, 2, 3, 4, 5] * 6


def test_truncation_is_not_termination(tmp_path: Path, scripted: str) -> None:
    with_options(scripted, terminates=False)
    rows = trained(tmp_path, scripted).replay.rows(0, 30)
    assert not rows["terminated"].any()
    assert rows["next_obs"][:, 0].tolist() == [1, 2, 3, 4, 5] * 6


def test_a_time_limit_of_gymnasium_is_not_termination(tmp_path: Path) -> None:
    rows = trained(
        tmp_path, "Pendulum-v1", total_timesteps=210, learning_starts=209, checkpoint_interval=210
    ).replay.rows(0, 210)
    assert not rows["terminated"].any()
    np.testing.assert_array_equal(rows["next_obs"][:199], rows["obs"][1:200])
    assert (rows["next_obs"][199] != rows["obs"][200]).any()


def test_truncation_bootstraps_and_termination_does_not(tmp_path: Path, scripted: str) -> None:
    """With γ=1 and a target of 100 everywhere, only transitions that truly end have a target of their reward alone."""
    seen = {}
    for terminates in (True, False):
        with_options(scripted, terminates=terminates, ends_at=1)
        run = Run(config(tmp_path / str(terminates), scripted, algo="ddpg", gamma=1.0))
        for parameter in run.agent.critic_target.parameters():  # type: ignore[attr-defined]
            parameter.data.zero_()
        list(run.agent.critic_target.parameters())[-1].data.fill_(100)  # type: ignore[attr-defined]
        for parameter in run.agent.critic.parameters():  # type: ignore[attr-defined]
            parameter.data.zero_()
        run.open()
        for _ in range(12):
            run.make_step()
        seen[terminates] = float(run.agent.update(run.replay, np.random.default_rng(0))["losses/qf_loss"])
        run.close()
    assert seen[True] == pytest.approx(1.0)  # (0 − 1)²
    assert seen[False] == pytest.approx(101.0**2)


def test_an_episode_of_one_step(tmp_path: Path, scripted: str) -> None:
    with_options(scripted, ends_at=1)
    run = trained(tmp_path, scripted, eval_interval=10)
    assert run.state.episodes[0].number == 30
    assert run.replay.rows(0, 30)["terminated"].all()


def test_an_environment_may_reuse_its_observation_array(tmp_path: Path, scripted: str) -> None:
    """Many do; a stored observation must be what was seen then, not what the array holds now."""
    with_options(scripted, reuse=True)
    rows = trained(tmp_path, scripted).replay.rows(0, 30)
    assert rows["obs"][:, 0].tolist() == [0, 1, 2, 3, 4] * 6
    assert rows["next_obs"][:, 0].tolist() == [1, 2, 3, 4, 5] * 6


def test_a_run_with_a_small_buffer_and_a_long_episode_resumes(tmp_path: Path, scripted: str) -> None:
    """The buffer may hold less than one episode; a run like that can be stopped and resumed all the same."""
    with_options(scripted, ends_at=25)
    options: dict[str, Any] = {"buffer_size": 8}
    trained(tmp_path / "undisturbed", scripted, **options)
    run = Run(config(tmp_path / "stopped", scripted, **options))
    step = run.make_step

    def stop_at_20() -> None:
        step()
        run.stop_asked = run.step == 20

    run.make_step = stop_at_20  # type: ignore[method-assign]
    with pytest.raises(Exception, match="stopped at step 20"):
        run.train()
    trained(tmp_path / "stopped", scripted, **options)
    policies = [(tmp_path / name / "policy.safetensors").read_bytes() for name in ("undisturbed", "stopped")]
    assert policies[0] == policies[1]


# --- what does not fit ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("observations", "actions", "said"),
    [
        (gym.spaces.Text(7), gym.spaces.Discrete(2), "what is needed is a Box"),
        (gym.spaces.Dict(a=gym.spaces.Sequence(gym.spaces.Discrete(2))), gym.spaces.Discrete(2), "what is needed is"),
        (gym.spaces.Box(0, 255, (8, 8, 3), np.uint8), gym.spaces.Discrete(2), "has images .*RAM.*--wrapper"),
        (gym.spaces.Dict(a=gym.spaces.Box(0, 255, (210, 160), np.uint8)), gym.spaces.Discrete(2), "has images .*RAM"),
        (gym.spaces.Discrete(10**9), gym.spaces.Discrete(2), "1,000,000,000 numbers"),
        (gym.spaces.Box(0, 1, (2,)), gym.spaces.MultiDiscrete([2, 2]), "a flat Box or a Discrete"),
        (gym.spaces.Box(0, 1, (2,)), gym.spaces.Box(0, 1, (2, 2)), "a flat Box or a Discrete"),
        (gym.spaces.Box(0, 1, (2,)), gym.spaces.Box(-np.inf, np.inf, (2,)), "unbounded actions"),
        (gym.spaces.Box(0, 1, (2,)), gym.spaces.Box(np.array([-1, -np.inf]), np.array([1, 1])), "unbounded actions"),
    ],
)
def test_other_spaces_are_refused_in_one_sentence(scripted: str, observations: Any, actions: Any, said: str) -> None:
    env = make_env(scripted)
    env.unwrapped.observation_space, env.unwrapped.action_space = observations, actions
    with pytest.raises(ValueError, match=said) as error:
        spaces_of(env, scripted)
    assert str(error.value).startswith(scripted)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("Hoper-v4", "Hopper-v4"), ("ALE/Pnog-v5", "ALE/Pong-v5"), ("CartPole-v17", "CartPole-v1")],
)
def test_an_unknown_id_suggests_the_nearest(wrong: str, right: str) -> None:
    with pytest.raises(ValueError, match="unknown environment") as error:
        make_env(wrong)
    assert f"did you mean {right!r}" in str(error.value)


@pytest.mark.parametrize("env_id", ["no_such_module:Thing-v0", "Hopper-v2", "ALE/Pong-v17", "Nothing like it", "", ":"])
def test_an_id_that_cannot_be_made_is_one_sentence(env_id: str) -> None:
    with pytest.raises(ValueError, match=r"environment|cannot") as error:
        make_env(env_id)
    assert "\n" not in str(error.value)


def test_own_environments_come_by_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_world.py").write_text(
        "import gymnasium as gym\n"
        "from gymnasium.envs.classic_control import PendulumEnv\n"
        "gym.register('OwnPendulum-v0', PendulumEnv, max_episode_steps=10)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    run = trained(tmp_path / "run", "OwnPendulum-v0", import_modules=("own_world",), eval_interval=30)
    assert run.state.episodes[0].number == 3
    assert load(tmp_path / "run").config.import_modules == ("own_world",)
    del gym.registry["OwnPendulum-v0"], sys.modules["own_world"]


def test_a_module_that_is_not_there_is_named() -> None:
    with pytest.raises(ValueError, match=r"cannot import module 'no_such_world'.* not in the current directory /"):
        make_env("CartPole-v1", ("no_such_world",))


def test_a_module_that_misses_another_says_which(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "needy_world.py").write_text("import no_such_world\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match=r"'needy_world'.*No module named 'no_such_world'"):
        make_env("CartPole-v1", ("needy_world",))


@pytest.mark.parametrize("text", ["1 +", "undefined_name", "raise RuntimeError('broken')"])
def test_a_module_that_fails_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """A mistake in one's own module should name that module, whatever kind of mistake it is."""
    (tmp_path / "broken_world.py").write_text(text + "\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match="broken_world"):
        make_env("CartPole-v1", ("broken_world",))


# --- numbers that should not be ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("what", ["obs", "reward"])
def test_bad_numbers_in_training_stop_the_run_and_keep_the_checkpoint(
    tmp_path: Path, scripted: str, what: str, bad: float
) -> None:
    with_options(scripted, bad=bad, **{f"bad_{what}_at": 23})
    with pytest.raises(ValueError, match=f"{scripted} gave an? {what}.* at step 23; the last checkpoint is kept"):
        Run(config(tmp_path, scripted)).train()
    assert sorted(p.name for p in (tmp_path / "checkpoint").iterdir()) == ["000000010", "000000020"]
    assert load(tmp_path).predict(np.zeros(2, np.float32))[0].shape == (3,)


@pytest.mark.parametrize("algo", ["td3", "dqn"])
def test_a_bad_first_observation_is_named(tmp_path: Path, scripted: str, algo: Any) -> None:
    with_options(scripted, bad_obs_at=0, action_space=gym.spaces.Discrete(2) if algo == "dqn" else None)
    with pytest.raises(ValueError, match=f"{scripted} gave an? observation that is NaN or infinite"):
        Run(config(tmp_path, scripted, algo=algo)).train()


def test_a_bad_observation_of_a_later_reset_names_the_step(tmp_path: Path, scripted: str) -> None:
    run = Run(config(tmp_path, scripted))
    env = run.env.unwrapped
    reset = env.reset

    def bad_reset(**options: Any) -> Any:
        obs, info = reset(**options)
        return (obs * np.nan if env.total >= 15 else obs), info

    env.reset = bad_reset
    with pytest.raises(ValueError, match=f"{scripted} gave an? observation.* step 15"):
        run.train()


@pytest.mark.parametrize("algo", ["td3", "dqn"])
@pytest.mark.parametrize("what", ["obs", "reward", "reset"])
def test_bad_numbers_in_an_evaluation_are_named_with_the_step(
    tmp_path: Path, scripted: str, what: str, algo: Any
) -> None:
    with_options(scripted, action_space=gym.spaces.Discrete(2) if algo == "dqn" else None)
    run = Run(config(tmp_path, scripted, algo=algo, eval_interval=20))
    env = run.eval_envs[0].unwrapped
    env.bad_obs_at, env.bad_reward_at = {"obs": (2, None), "reward": (None, 2), "reset": (0, None)}[what]
    name = "reward" if what == "reward" else "observation"
    with pytest.raises(ValueError, match=f"{scripted} gave an? {name}.* step 20"):
        run.train()
    assert (tmp_path / "checkpoint" / "000000010").is_dir()


def test_numbers_too_large_for_float32_are_noticed(tmp_path: Path, scripted: str) -> None:
    """Finite in the environment's float64, infinite in the replay buffer: as harmful as infinity itself."""
    with_options(scripted, dtype=np.float64, bad=1e300, bad_obs_at=5)
    with pytest.raises(ValueError, match=f"{scripted} gave an? observation.* at step 5"):
        Run(config(tmp_path, scripted)).train()
    with_options(scripted, bad_obs_at=None, bad_reward_at=5)
    with pytest.raises(ValueError, match=f"{scripted} gave a reward.* at step 5"):
        Run(config(tmp_path / "reward", scripted)).train()


def test_large_but_finite_numbers_are_no_mistake(tmp_path: Path, scripted: str) -> None:
    """Their sum overflows float32, they themselves do not."""
    with_options(scripted, bad=3e38, bad_reward_at=5)
    run = Run(config(tmp_path, scripted, total_timesteps=12, learning_starts=11))
    run.open()
    for _ in range(10):
        run.make_step()
    run.close()


@pytest.mark.parametrize("what", ["obs", "reward"])
def test_before_the_first_checkpoint_none_is_promised(tmp_path: Path, scripted: str, what: str) -> None:
    with_options(scripted, **{f"bad_{what}_at": 3})
    with pytest.raises(ValueError, match="at step 3; there is no checkpoint yet, so the same command begins anew"):
        Run(config(tmp_path, scripted)).train()


# --- faults of the environment's own ----------------------------------------------------------------------------------


def spoil(env: Any, verb: str, at: int, how: Any) -> None:
    """After ``at`` steps, ``env.step`` or ``env.reset`` does something else."""
    right = getattr(env, verb)

    def wrong(*args: Any, **options: Any) -> Any:
        return how(right(*args, **options)) if env.total >= at - (verb == "step") else right(*args, **options)

    setattr(env, verb, wrong)


def raises(_: Any) -> Any:
    raise ValueError("a bug in the environment")


@pytest.mark.parametrize(("at", "kept"), [(23, "the last checkpoint is kept, .* [(]step 20[)]"), (3, "no checkpoint")])
@pytest.mark.parametrize("verb", ["step", "reset"])
def test_an_environment_that_raises_keeps_its_trace(
    tmp_path: Path, scripted: str, verb: str, at: int, kept: str
) -> None:
    run = Run(config(tmp_path, scripted))
    spoil(run.env.unwrapped, verb, at, raises)
    with pytest.raises(RuntimeError, match=f"{scripted} raised ValueError in {verb} at step .*; .*{kept}") as error:
        run.train()
    assert isinstance(error.value.__cause__, ValueError)  # what it raised, with its own lines
    if verb == "step":
        assert f"at step {at};" in str(error.value)


def test_a_step_of_four_values_is_told_that_it_takes_five(tmp_path: Path, scripted: str) -> None:
    run = Run(config(tmp_path, scripted))
    spoil(run.env.unwrapped, "step", 23, lambda given: given[:4])
    with pytest.raises(RuntimeError, match=r"ValueError \(a step returns five values: .*, info\) in step at step 23; "):
        run.train()


def test_an_environment_that_raises_in_an_evaluation(tmp_path: Path, scripted: str) -> None:
    run = Run(config(tmp_path, scripted, eval_interval=20))
    spoil(run.eval_envs[0].unwrapped, "step", 2, raises)
    with pytest.raises(RuntimeError, match=f"{scripted} raised ValueError in step in the evaluation at step 20; "):
        run.train()


@pytest.mark.parametrize("verb", ["step", "reset"])
def test_an_observation_of_another_shape_is_one_sentence(tmp_path: Path, scripted: str, verb: str) -> None:
    run = Run(config(tmp_path, scripted))
    spoil(run.env.unwrapped, verb, 15, lambda given: (np.zeros(3, np.float32), *given[1:]))
    sentence = (
        rf"{scripted} gave an observation of shape \(3,\), and its observation space has the shape \(2,\) at step"
    )
    with pytest.raises(ValueError, match=sentence):
        run.train()

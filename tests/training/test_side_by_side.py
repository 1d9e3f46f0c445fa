"""Several environments in one run: what is stored, when things are due, resuming, processes, and mistakes."""

import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from numpy.typing import NDArray
from test_resume import contents

import carebn
from carebn.algorithm import find_algorithm
from carebn.training import Run, TrainConfig, seeds
from carebn.training.checkpoint import CheckpointStore
from carebn.training.config import OUTSIDE
from carebn.training.environment import spaces_of
from carebn.training.record import read_rows
from carebn.training.run_state import RunState
from carebn.training.schedule import reaches, updates_until
from carebn.training.side_by_side import SideBySide
from carebn.training.worlds import given_env

BOTH = pytest.mark.parametrize("vector", ["sync", "async"])


class Clock(gym.Env[NDArray[np.float32], Any]):
    """Its observation tells the step and the start of its episode, whose length the seed draws; some are cut short."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space: gym.Space[Any] = gym.spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, raises_at: int | None = None, dies_at: int | None = None) -> None:
        self.raises_at, self.dies_at = raises_at, dies_at
        self.made = 0

    def look(self) -> NDArray[np.float32]:
        return np.array([self.now, self.start], np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[NDArray[np.float32], dict[str, Any]]:
        super().reset(seed=seed)
        self.now, self.start = 0, float(self.np_random.integers(1000))
        self.length, self.is_cut = int(self.np_random.integers(3, 8)), bool(self.np_random.integers(2))
        return self.look(), {}

    def step(self, action: Any) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        self.now, self.made = self.now + 1, self.made + 1
        if self.made == self.raises_at:
            raise RuntimeError("a bug in the environment")
        if self.made == self.dies_at:
            os.kill(os.getpid(), signal.SIGKILL)
        over = self.now == self.length
        reward = float(np.sum(action)) + self.now
        action *= 0  # as an environment may, with what is its own
        return self.look(), reward, over and not self.is_cut, over and self.is_cut, {"info": self.now}


class Whole(Clock):
    """Rewards are whole numbers of Python, and of numpy in turn."""

    def step(self, action: Any) -> tuple[NDArray[np.float32], Any, bool, bool, dict[str, Any]]:
        obs, _, *ends = super().step(action)
        return obs, (self.now if self.now % 2 else np.float32(self.now)), *ends  # type: ignore[return-value]


class Buttons(Clock):
    action_space = gym.spaces.Discrete(3)

    def step(self, action: Any) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        return super().step(np.array(float(action)))


def small(directory: Path, **options: Any) -> TrainConfig:
    given: dict[str, Any] = {
        "env_id": "python:Clock", "total_timesteps": 96, "learning_starts": 16, "hidden": (8,), "batch_size": 8,
        "eval_interval": 32, "eval_episodes": 2, "checkpoint_interval": 20, "log_interval": 10,
        "recalibration_batches": 2, "quiet": True, "num_envs": 4, "run_dir": directory,
    } | options  # fmt: skip
    return TrainConfig(**given)


def ran(directory: Path, make: Any = Clock, **options: Any) -> Run:
    run = Run(small(directory, **options), given_env(make))
    run.train()
    return run


def steps_with(directory: Path, key: str) -> list[int]:
    return [row["step"] for row in read_rows(directory / "metrics.jsonl") if key in row]


# --- what is stored ---------------------------------------------------------------------------------------------------


@BOTH
def test_every_transition_is_of_one_episode_and_ends_with_its_true_last_observation(
    tmp_path: Path, vector: str
) -> None:
    rows = ran(tmp_path, vector=vector).replay.rows(0, 96)
    assert ((rows["next_obs"] - rows["obs"]) == [1, 0]).all()  # never the first observation of the next episode
    ended = 0
    for place in range(4):
        obs, next_obs, terminated = (rows[name][place::4] for name in ("obs", "next_obs", "terminated"))
        goes_on = (obs[1:] == next_obs[:-1]).all(1)
        begins = obs[1:, 0] == 0
        assert (goes_on != begins).all()
        assert not (terminated[:-1] & goes_on).any()
        ended += int(terminated[:-1].sum())
        assert (begins & ~terminated[:-1]).any()  # a time limit: the episode is over, its value is not
    assert ended > 4
    assert len(set(rows["obs"][:4, 1])) == 4  # from four seeds
    assert (rows["action"] != 0).any()  # as they were chosen, whatever the environment made of them


def test_the_replay_holds_what_environments_give_that_are_stepped_by_hand(tmp_path: Path) -> None:
    run = Run(small(tmp_path, env_id="InvertedDoublePendulum-v4", num_envs=3, total_timesteps=150, seed=4))
    run.train()
    rows = run.replay.rows(0, 150)
    ended = 0
    for place in range(3):
        env, number = gym.make("InvertedDoublePendulum-v4"), place
        obs, _ = env.reset(seed=seeds.number(4, seeds.EPISODES, number))
        for index in range(place, 150, 3):
            next_obs, reward, terminated, truncated, _ = env.step(rows["action"][index])
            assert np.array_equal(rows["obs"][index], np.float32(obs))
            assert np.array_equal(rows["next_obs"][index], np.float32(next_obs))
            assert (rows["reward"][index], bool(rows["terminated"][index])) == (np.float32(reward), terminated)
            obs = next_obs
            if terminated or truncated:
                ended, number = ended + 1, number + 3
                obs, _ = env.reset(seed=seeds.number(4, seeds.EPISODES, number))
    assert ended > 10


@BOTH
def test_episodes_are_told_with_their_own_return_and_length(tmp_path: Path, vector: str) -> None:
    run = ran(tmp_path, vector=vector)
    rows = run.replay.rows(0, 96)
    told = [row for row in read_rows(tmp_path / "metrics.jsonl") if "charts/episodic_return" in row]
    found = []
    for place in range(4):
        last, total = rows["next_obs"][place::4, 0], 0.0
        begins = [*(rows["obs"][place::4, 0][1:] == 0), run.state.episodes[place].actions == []]
        for index, over in enumerate(begins):
            total += rows["reward"][place::4][index]
            if over:
                found.append((4 * index + 4, last[index], total))
                total = 0.0
    assert [(row["step"], row["charts/episodic_length"]) for row in told] == [
        (step, length) for step, length, _ in sorted(found, key=lambda one: one[0])
    ]
    returns = [total for _, _, total in sorted(found, key=lambda one: one[0])]
    np.testing.assert_allclose([row["charts/episodic_return"] for row in told], returns, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("algo", "make"), [("td3", Clock), ("sac", Clock), ("dqn", Buttons)])
def test_processes_make_the_same_run(tmp_path: Path, algo: str, make: Any) -> None:
    for vector in ("sync", "async"):
        ran(tmp_path / vector, make, algo=algo, env_id="python:Any", vector=vector)
    assert contents(tmp_path / "sync") == contents(tmp_path / "async")


def test_each_environment_explores_by_itself() -> None:
    config = TrainConfig(env_id="CartPole-v1", algo="dqn", hidden=(8,), batch_size=8).checked()
    spaces = carebn.training.environment.spaces_of(gym.make("CartPole-v1"), "CartPole-v1")
    agent = RunState(replace(config, buffer_size=10), spaces).agent
    agent.options = replace(find_algorithm("dqn").options(), start_epsilon=0.5)  # type: ignore[attr-defined]
    obs = np.zeros((400, 4), np.float32)
    greedy = agent.act(obs, None)
    chosen = agent.act(obs, np.random.default_rng(0))
    assert len(set(greedy)) == 1
    assert 60 < (chosen != greedy).sum() < 140  # of half the rows, half by chance as before


# --- when things are due ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("num_envs", "interval"), [(1, 5), (8, 20), (3, 10), (16, 5), (7, 7)])
def test_what_is_due_happens_once_at_the_step_that_reaches_it(num_envs: int, interval: int) -> None:
    due = [step for step in range(num_envs, 10 * interval * num_envs, num_envs) if reaches(step, interval, num_envs)]
    passed = [
        step for step in range(num_envs, 10 * interval * num_envs, num_envs)
        if any(other % interval == 0 for other in range(step - num_envs + 1, step + 1))
    ]  # fmt: skip
    assert due == passed


def updates_made(config: TrainConfig) -> list[int]:
    """As the options say it, one environment step after the other."""
    made, told = 0.0, []
    for step in range(config.total_timesteps + 1):
        if step > config.learning_starts and step % config.update_interval == 0:  # type: ignore[operator]
            made += config.updates_per_step * config.update_interval  # type: ignore[operator]
        told.append(made)
    return [int(round(number, 9)) for number in told]


@pytest.mark.parametrize("updates_per_step", [1.0, 0.125, 2.0, 0.1, 1.5])
@pytest.mark.parametrize("update_interval", [1, 20])
def test_updates_per_step(updates_per_step: float, update_interval: int) -> None:
    config = TrainConfig(
        total_timesteps=400, learning_starts=40, update_interval=update_interval, updates_per_step=updates_per_step
    ).checked()
    assert [updates_until(config, step) for step in range(401)] == updates_made(config)


@pytest.mark.parametrize(("updates_per_step", "updates"), [(1.0, 80), (0.25, 20), (2.0, 160)])
def test_a_run_makes_as_many_updates(tmp_path: Path, updates_per_step: float, updates: int) -> None:
    run = ran(tmp_path, updates_per_step=updates_per_step)
    assert run.agent.updates == updates  # type: ignore[attr-defined]


def test_a_number_of_environments_that_divides_nothing(tmp_path: Path) -> None:
    run = ran(tmp_path, num_envs=7, total_timesteps=100)
    assert run.step == run.config.total_timesteps == 105  # whole steps of all environments, and it says so
    assert "--total-timesteps 100 becomes 105: 7 environments make 7 steps at a time" in run.warnings
    assert steps_with(tmp_path, "eval/mean_return") == [35, 70, 98, 105]  # 32, 64, 96, and the end
    assert steps_with(tmp_path, "losses/qf_loss") == [21, 35, 42, 56, 63, 70, 84, 91, 105]
    saved = sorted(int(path.name) for path in (tmp_path / "checkpoint").iterdir())
    assert saved == [84, 105]  # those that reach 80 and 100
    assert Run(small(tmp_path, num_envs=7, total_timesteps=100), given_env(Clock)).train() is False


def test_fewer_updates_than_one_are_no_run() -> None:
    with pytest.raises(ValueError, match=r"would never learn: .*0.01 updates a step \(--updates-per-step\)"):
        Run(TrainConfig(env_id="Pendulum-v1", total_timesteps=90, learning_starts=10, updates_per_step=0.01)).train()


def test_callbacks_hear_of_steps_of_all_environments(tmp_path: Path) -> None:
    heard: list[Any] = []
    Run(small(tmp_path), given_env(Clock), lambda event: heard.append(event)).train()
    steps = [event.step for event in heard if event.kind == "step"]
    assert steps == list(range(4, 97, 4))
    assert all(isinstance(event.reward, float) for event in heard)


# --- resuming ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("first", "then"), [("sync", "sync"), ("async", "async"), ("async", "sync")])
@pytest.mark.parametrize("num_envs", [4, 7])
def test_a_run_that_is_stopped_again_and_again_ends_byte_identical(
    tmp_path: Path, first: str, then: str, num_envs: int
) -> None:
    ran(tmp_path / "undisturbed", num_envs=num_envs)
    for stop, vector in ((12, first), (36, then), (64, first), (84, then)):

        def enough(event: Any, stop: int = stop) -> bool:
            return bool(event.step < stop)

        config = small(tmp_path / "stopped", num_envs=num_envs, vector=vector)
        Run(config, given_env(Clock), enough).train()
        newest = CheckpointStore(tmp_path / "stopped", 20).newest()
        assert newest is not None
        assert stop <= newest < stop + num_envs
    run = Run(small(tmp_path / "stopped", num_envs=num_envs, vector=first), given_env(Clock))
    assert run.train()
    assert not any("does not repeat itself" in text for text in run.warnings)
    assert contents(tmp_path / "undisturbed") == contents(tmp_path / "stopped")


def test_an_environment_that_does_not_repeat_itself_is_noticed(tmp_path: Path) -> None:
    Run(small(tmp_path), given_env(Clock), lambda event: event.step < 12).train()
    made = iter(range(100))

    def third_one_differs() -> Clock:
        env = Clock()
        env.observation_space = Clock.observation_space
        if next(made) == 3:  # the first is made to look at its spaces
            env.look = lambda: np.array([env.now, env.start + 1], np.float32)  # type: ignore[method-assign]
        return env

    run = Run(small(tmp_path), given_env(third_one_differs))
    run.train()
    assert any("does not repeat itself" in text for text in run.warnings)


@pytest.mark.slow
def test_a_longer_run_ends_as_if_it_had_been_so_long_from_the_start(tmp_path: Path) -> None:
    common: dict[str, Any] = {"num_envs": 7, "random_steps": 16}
    ran(tmp_path / "long", total_timesteps=140, **common)
    ran(tmp_path / "grown", total_timesteps=50, **common)
    ran(tmp_path / "grown", total_timesteps=140, **common)
    assert contents(tmp_path / "long") == contents(tmp_path / "grown")


def test_a_state_of_another_number_of_environments_is_refused(tmp_path: Path) -> None:
    ran(tmp_path)
    with pytest.raises(ValueError, match="num_envs is 4 there and 2 here"):
        ran(tmp_path, num_envs=2)
    with pytest.raises(ValueError, match="num_envs is 4 there and None here"):
        ran(tmp_path, num_envs=1)


# --- processes --------------------------------------------------------------------------------------------------------


def test_processes_take_one_thread_each_and_are_gone_afterwards(tmp_path: Path) -> None:
    run = Run(small(tmp_path, vector="async"), given_env(Clock))
    processes = run.envs.vector.processes  # type: ignore[union-attr]
    assert len(processes) == 4
    run.open()
    for _ in range(3):
        run.make_step()
    for process in processes:
        status = Path(f"/proc/{process.pid}/status").read_text()
        assert "Threads:\t1\n" in status
    run.close()
    assert not any(process.is_alive() for process in processes)


def test_signals_to_the_whole_group_leave_processes_at_work(tmp_path: Path) -> None:
    run = Run(small(tmp_path, vector="async"), given_env(Clock))
    run.open()
    for process in run.envs.vector.processes:  # type: ignore[union-attr]
        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(process.pid, number)
    run.make_step()
    assert run.step == 4
    run.close()


@BOTH
def test_an_environment_that_raises_keeps_its_trace(tmp_path: Path, vector: str) -> None:
    sentence = "python:Clock raised RuntimeError in step at step 36; the last checkpoint is kept, .*step 20"
    with pytest.raises(RuntimeError, match=sentence) as error:
        ran(tmp_path, lambda: Clock(raises_at=9), vector=vector, eval_interval=96)
    assert "a bug in the environment" in str(error.value.__cause__)
    ran(tmp_path, vector=vector, eval_interval=96)


def test_a_process_that_dies_is_one_sentence(tmp_path: Path) -> None:
    main = os.getpid()

    def make() -> Clock:
        return Clock(dies_at=9 if os.getpid() != main else None)

    with pytest.raises(ValueError, match="a process with an environment of python:Clock was killed at step 36; "):
        ran(tmp_path, make, vector="async")
    assert not [child for child in carebn.training.side_by_side.multiprocessing.active_children() if child.is_alive()]


def test_an_observation_that_is_not_finite_is_named(tmp_path: Path) -> None:
    class Odd(Clock):
        def look(self) -> NDArray[np.float32]:
            return super().look() if self.made != 9 else np.full(2, np.nan, np.float32)

    with pytest.raises(ValueError, match="python:Odd gave an observation that is NaN or infinite at step 36; "):
        ran(tmp_path, Odd, vector="async", env_id="python:Odd", eval_interval=96)


# --- from Python, and mistakes ----------------------------------------------------------------------------------------

QUICK: dict[str, Any] = {
    "total_timesteps": 40, "learning_starts": 16, "hidden": (8,), "batch_size": 8, "eval_interval": 40,
    "eval_episodes": 1, "recalibration_batches": 2, "quiet": True,
}  # fmt: skip


@BOTH
def test_functions_and_instances(tmp_path: Path, vector: str) -> None:
    by_function = carebn.train(Clock, run_dir=tmp_path / "function", num_envs=8, vector=vector, **QUICK)
    by_copies = carebn.train(Clock(), run_dir=tmp_path / "instance", num_envs=8, vector=vector, **QUICK)
    assert by_function.step == by_copies.step == 40
    assert contents(tmp_path / "function") == contents(tmp_path / "instance")


def test_agents_learn_on(tmp_path: Path) -> None:
    options = {name: value for name, value in QUICK.items() if name != "total_timesteps"}
    agent = carebn.TD3("Pendulum-v1", run_dir=tmp_path / "twice", num_envs=8, random_steps=16, **options)
    agent.learn(20).learn(20)
    at_once = carebn.TD3("Pendulum-v1", run_dir=tmp_path / "once", num_envs=8, random_steps=16, **options).learn(40)
    assert agent.result.step == at_once.result.step == 40
    assert contents(tmp_path / "twice") == contents(tmp_path / "once")


@pytest.mark.parametrize(("options", "sentence"), [
    ({"num_envs": 0}, "--num-envs must be at least 1, got 0"),
    ({"num_envs": -3}, "--num-envs must be at least 1, got -3"),
    ({"num_envs": 10**9}, "--num-envs must be at most 1,024, got 1,000,000,000"),
    ({"num_envs": 8, "buffer_size": 7}, "--buffer-size 7 does not hold one step of --num-envs 8; raise"),
    ({"updates_per_step": 0.0}, "--updates-per-step must be above zero and at most 1,000,000, got 0.0"),
    ({"updates_per_step": float("nan")}, "--updates-per-step must be above zero .* got nan"),
    ({"updates_per_step": float("inf")}, "--updates-per-step must be above zero .* got inf"),
    ({"vector": "threads"}, "option 'vector' has a value of the wrong kind: 'threads'"),
])  # fmt: skip
def test_bad_options_are_one_sentence(tmp_path: Path, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        carebn.train("Pendulum-v1", run_dir=tmp_path / "run", **{**QUICK, **options})
    assert not (tmp_path / "run").exists()


def test_environments_that_cannot_be_several_are_one_sentence(tmp_path: Path) -> None:
    held = Clock()
    held.file = open(__file__)  # type: ignore[attr-defined]  # noqa: SIM115
    with pytest.raises(ValueError, match=r"cannot be copied .*; give a function that makes one instead"):
        carebn.train(held, run_dir=tmp_path / "run", num_envs=4, **QUICK)
    held.file.close()  # type: ignore[attr-defined]
    env = Clock()
    with pytest.raises(ValueError, match=r"--num-envs 4 needs as many environments, and the function .* the same one"):
        carebn.train(lambda: env, run_dir=tmp_path / "run", num_envs=4, **QUICK)


def test_where_environments_run_is_not_part_of_the_run() -> None:
    assert "vector" in OUTSIDE
    config = TrainConfig().checked()
    assert replace(config, vector="async").name() == config.name()
    assert not {"num_envs", "updates_per_step"} & config.as_json().keys()  # names of runs stay what they were
    assert replace(config, num_envs=8).name() != config.name()


def test_the_display_counts_on_when_steps_come_by_several(capsys: pytest.CaptureFixture[str]) -> None:
    from carebn.training.progress import ProgressDisplay

    display = ProgressDisplay(1000, 0, quiet=True, learning_starts=100)
    for step in range(0, 400, 7):
        display.advance(step)
    time.sleep(0.01)
    assert display.left != "…"  # it has noticed where learning began, between two of its steps


@pytest.mark.parametrize("make", [Clock, Whole, Buttons])
def test_one_alone_is_as_the_first_of_two(make: type[Clock]) -> None:
    """It does without Gymnasium's vector; types are the same to the letter, because a run writes them down."""
    spaces = spaces_of(make(), "any")
    alone, two = (SideBySide(make(), make, count, "sync", "any", spaces) for count in (1, 2))
    rng = np.random.default_rng(0)
    moved = [rng.integers(2, size=2) if spaces.actions else rng.uniform(-1, 1, (2, 1)).astype(np.float32)] * 2
    one, both = (vector.reset([5, 6][:n], {0: [a[0] for a in moved]}) for vector, n in ((alone, 1), (two, 2)))
    assert one.dtype == both.dtype
    assert np.array_equal(one, both[:1])
    for actions in moved:
        (obs, *said), (other, *others) = alone.step(actions[:1]), two.step(actions)
        assert obs.dtype == other.dtype
        assert np.array_equal(obs, other[:1])
        assert repr(said) == repr([each[:1] for each in others])
    alone.close()
    two.close()

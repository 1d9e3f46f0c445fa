"""A training run: act, step, store, update; evaluate and checkpoint on schedule; resume exactly."""

import math
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from carebn.algorithm import ReplayBuffer
from carebn.machine import cores
from carebn.reading import read_object
from carebn.training import seeds
from carebn.training.build import make_agent
from carebn.training.checkpoint import CheckpointStore, checked_state
from carebn.training.config import TrainConfig
from carebn.training.environment import (
    BadStepError,
    EnvironmentFailedError,
    NonFiniteError,
    check_step,
    make_env,
    reset,
    spaces_of,
    step,
)
from carebn.training.evaluation import Evaluation, evaluate
from carebn.training.files import as_json, write_atomically
from carebn.training.lock import LOCK_FILE, lock
from carebn.training.measurements import WassersteinLog
from carebn.training.policy_file import write_policy
from carebn.training.progress import ProgressDisplay
from carebn.training.record import LineFile, Row, read_rows, write_tensorboard
from carebn.training.track import Tracker, require_wandb
from carebn.training.versions import fingerprint


def _may_precede(name: str) -> bool:
    """Whether a file may be there before a run is: what a process leaves that dies while it begins one."""
    return name == LOCK_FILE or name.endswith(".part")


def _doubts(config: TrainConfig) -> list[str]:
    """What can be meant, but seldom is."""
    doubts = []
    assert config.learning_starts is not None
    if config.learning_starts >= config.total_timesteps:
        doubts.append(
            f"this run never learns: --learning-starts {config.learning_starts:,} is not below --total-timesteps "
            f"{config.total_timesteps:,}"
        )
    if config.threads > cores():
        doubts.append(
            f"--threads {config.threads} is more than the {cores()} cores available, which slows the run down"
        )
    return doubts


class InterruptedRun(Exception):  # noqa: N818  # not an error: somebody wanted it to stop
    """The run was asked to stop by a signal, and has saved itself."""

    def __init__(self, message: str, number: int) -> None:
        super().__init__(message)
        self.code = 128 + number  # as a shell reports it


class Run:
    """One run directory. ``Run(config).train()`` starts it, resumes it, or finds it complete."""

    def __init__(self, config: TrainConfig) -> None:
        self.config = config = config.checked()
        torch.set_num_threads(config.threads)
        assert config.learning_starts is not None
        assert config.random_steps is not None
        assert config.update_interval is not None
        self.learning_starts, self.random_steps = config.learning_starts, config.random_steps
        self.update_interval = config.update_interval
        self.directory = config.run_dir if config.run_dir is not None else Path("runs") / config.name()
        self.env = make_env(config.env_id, config.import_modules)
        self.spaces = spaces_of(self.env, config.env_id)
        self.agent = make_agent(config, self.spaces)
        capacity = min(config.buffer_size, config.total_timesteps)
        self.replay = ReplayBuffer(capacity, (self.spaces.obs_dim,), self.spaces.obs_dtype, self.spaces.action_shape)
        self.streams = seeds.Streams(config.seed)
        self.store = CheckpointStore(self.directory, config.checkpoint_interval)
        self.eval_envs = [make_env(config.env_id, config.import_modules) for _ in range(config.eval_episodes)]
        self.eval_seeds = [seeds.number(config.seed, seeds.EVALUATION, i) for i in range(config.eval_episodes)]
        self.step = 0
        self.episode = 0
        self.episode_start = 0  # the number of the episode's first transition
        self.episode_return = 0.0
        self.episode_actions: list[Any] = []
        self.losses: dict[str, float] = {}
        self.best: float | None = None
        self.obs: NDArray[Any] = np.empty(0)
        self.stop_asked: int | None = None  # the signal that did
        self.spent = {"evaluation": 0.0, "recalibration": 0.0, "checkpoint": 0.0}
        self.warnings = _doubts(config)
        self.tracker: Tracker | None = None
        self.wasserstein: WassersteinLog | None = None

    # --- starting ----------------------------------------------------------------------------------------------------

    def _check_directory(self) -> None:
        """Refuse a directory that holds anything else than this run."""
        config_file = self.directory / "config.json"
        ours = self.config.as_json()
        if config_file.exists():
            try:
                theirs = read_object(config_file)
            except ValueError as error:
                raise ValueError(f"{config_file} is not a configuration: {error}; is this a run directory?") from error
            # Written by an earlier version: what it did not know yet was at its default.
            missing = ours.keys() - theirs.keys()
            known = {k: v for k, v in theirs.items() if k in ours}
            theirs |= {k: v for k, v in TrainConfig.from_json(known).checked().as_json().items() if k in missing}
            # In the order of the options, which begins with the most important ones.
            different = [
                f"{k} is {theirs.get(k)!r} there and {ours.get(k)!r} here"
                for k in ours | theirs
                if ours.get(k) != theirs.get(k)
            ]
            if different:
                raise ValueError(
                    f"{self.directory} holds a run with another configuration: {', '.join(different)}; choose another "
                    f"--run-dir"
                )
        elif self.directory.exists() and not self.directory.is_dir():
            raise ValueError(f"{self.directory} is a file, not a directory; choose another --run-dir")
        elif self.directory.exists() and any(not _may_precede(path.name) for path in self.directory.iterdir()):
            raise ValueError(f"{self.directory} is not empty and not a run; choose another --run-dir")

    def _open(self) -> bool:
        """Prepare the directory and restore the newest checkpoint; says whether there is anything left to do."""
        self._check_directory()  # again: until the lock was taken, somebody else may have begun here
        self.directory.mkdir(parents=True, exist_ok=True)
        # The configuration comes first: from then on this is a run directory.
        write_atomically(self.directory / "config.json", as_json(self.config.as_json()))
        write_atomically(self.directory / "command.txt", (self.config.command() + "\n").encode())
        loaded = self.store.load_latest(self.warnings.append)
        versions_file = self.directory / "versions.json"
        versions = fingerprint(self.config)
        if loaded is not None and versions_file.exists():
            before = self._versions_before(versions_file)
            changed = [k for k in versions if versions[k] != before.get(k)]
            if changed:
                k = changed[0]
                self.warnings.append(
                    f"this run began with {k} {before.get(k)} and goes on with {versions[k]}: it resumes, but an exact "
                    f"repetition is no longer promised"
                )
        else:
            write_atomically(versions_file, as_json(versions))
        self.metrics = LineFile(self.directory / "metrics.jsonl")
        self.timing = LineFile(self.directory / "timing.jsonl")
        if "wasserstein" in self.config.measure:
            self.wasserstein = WassersteinLog(self.directory, self.config.seed, 0 if loaded is None else loaded.step)
        if loaded is None:
            self.metrics.cut_back(0)
            self._begin_episode()
            return True
        state = checked_state(loaded.state, self.directory)
        self.episode_actions = list(loaded.tensors.pop("episode_actions").numpy())
        self.agent.load_state_dict(loaded.tensors)
        for start, rows in loaded.segments:
            self.replay.restore(start, rows)
        self.streams.restore(state["streams"])
        self.metrics.cut_back(state["metrics_bytes"])
        self.step, self.best = loaded.step, state["best"]
        self.episode, self.episode_start = state["episode"], state["episode_start"]
        self.episode_return, self.losses = state["episode_return"], state["losses"]
        self.store.forget_after(loaded.step)
        self.store.clean()
        self._replay_episode()
        self._write_derived()  # in case the run was killed between its checkpoint and these
        return self.step < self.config.total_timesteps

    def _versions_before(self, path: Path) -> dict[str, Any]:
        try:
            return read_object(path)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            self.warnings.append(f"{path} cannot be read ({reason}), so whether versions have changed is not known")
            return fingerprint(self.config)

    def _begin_episode(self) -> None:
        with self._dated("at", self.step):
            obs = reset(self.env, self.config.env_id, seeds.number(self.config.seed, seeds.EPISODES, self.episode))
            self.obs = self._checked_obs(obs, 0.0)

    def _replay_episode(self) -> None:
        """Bring the environment to where the checkpoint left it: the same start, the same actions."""
        self._begin_episode()
        for action in self.episode_actions:
            with self._dated("at", self.step):
                obs, *_ = step(self.env, self.config.env_id, action)
                self.obs = self._checked_obs(obs, 0.0)
        last = self.replay.rows(max(0, self.replay.added - 1), self.replay.added)["next_obs"]
        if self.episode_actions and not np.array_equal(self.obs, last[-1]):
            self.warnings.append(
                f"{self.config.env_id} does not repeat itself from the same seed and actions: the run resumes, but an "
                f"exact repetition is not possible"
            )

    # --- running -----------------------------------------------------------------------------------------------------

    def train(self) -> bool:
        """Returns whether anything was left to do. Refuses a directory that another process is training in."""
        self._check_directory()
        if self.config.track:
            require_wandb()  # before anything is made
        with lock(self.directory):
            return self._open() and self._train()

    def _train(self) -> bool:
        config = self.config
        if config.track:
            self.tracker = Tracker(self.directory.name, config.as_json())
        # Slurm and Docker send SIGTERM.
        before = {number: signal.signal(number, self._ask_to_stop) for number in (signal.SIGINT, signal.SIGTERM)}
        began, first = time.monotonic(), self.step
        try:
            with ProgressDisplay(config.total_timesteps, self.step, config.quiet) as display:
                display.best = self.best
                if self.step:
                    display.resumed()
                for text in self.warnings:
                    display.say(f"warning: {text}")
                while self.step < config.total_timesteps:
                    self._one_step()
                    display.advance(self.step)
                    due = self.step == config.total_timesteps
                    if due or self.step % config.eval_interval == 0:
                        result = self._evaluate()
                        display.evaluated(self.step, result.mean, result.std)
                        elapsed = time.monotonic() - began
                        self._record(self.timing, {
                            "step": self.step, "charts/SPS": (self.step - first) / elapsed, "time/elapsed": elapsed,
                            **{f"time/{name}": seconds for name, seconds in self.spent.items()},
                        })  # fmt: skip
                    if due or self.stop_asked or self.step % config.checkpoint_interval == 0:
                        self._checkpoint()
                    if self.stop_asked and not due:
                        text = f"stopped at step {self.step:,}; the same command resumes it"
                        raise InterruptedRun(text, self.stop_asked)
            return True
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            self.close()

    def _ask_to_stop(self, signum: int, frame: FrameType | None) -> None:
        self.stop_asked = signum

    def _one_step(self) -> None:
        config, spaces = self.config, self.spaces
        action: Any
        if self.step < self.random_steps:
            rng = self.streams["warm_up"]
            if spaces.actions is not None:
                action = int(rng.integers(spaces.actions))
            else:
                assert spaces.low is not None
                assert spaces.high is not None
                action = rng.uniform(spaces.low, spaces.high).astype(np.float32)
        else:
            action = self.agent.act(self.obs[None], self.streams["explore"])[0]
            if not np.isfinite(action).all():
                raise NonFiniteError(f"the actor's action became NaN at step {self.step + 1:,}; {self._kept()}")
        with self._dated("at", self.step + 1):
            given, reward, terminated, truncated = step(self.env, config.env_id, action)
            next_obs = self._checked_obs(given, reward)
        self.replay.add(self.obs, action, reward, next_obs, terminated)
        self.episode_actions.append(action)
        self.obs = next_obs
        self.episode_return += reward
        self.step += 1
        if self.step > self.learning_starts:
            for _ in range(self.update_interval if self.step % self.update_interval == 0 else 0):
                # Losses that are not computed at every step are logged as they last were.
                self.losses |= {
                    name: float(x) for name, x in self.agent.update(self.replay, self.streams["update"]).items()
                }
            for name, loss in self.losses.items():
                if not math.isfinite(loss):
                    raise NonFiniteError(f"{name} became {loss} at step {self.step:,}; {self._kept()}")
            if self.step % config.log_interval == 0:
                self._record(self.metrics, {"step": self.step, **dict(sorted(self.losses.items()))})
        if terminated or truncated:
            length = self.replay.added - self.episode_start
            row = {"charts/episodic_return": self.episode_return, "charts/episodic_length": length}
            self._record(self.metrics, {"step": self.step, **row})
            self.episode += 1
            self.episode_start = self.replay.added
            self.episode_return = 0.0
            self.episode_actions = []
            self._begin_episode()

    def _record(self, file: LineFile, row: Row) -> None:
        file.write(row)
        if self.tracker is not None:
            self.tracker.log(row)

    def _stored(self, obs: NDArray[Any]) -> NDArray[Any]:
        with np.errstate(over="ignore"):  # what does not fit becomes infinite, and is refused as such
            return np.array(obs, dtype=self.spaces.obs_dtype)

    def _checked_obs(self, obs: NDArray[Any], reward: float) -> NDArray[Any]:
        """A copy in the type that is stored, because an environment may use its array again."""
        obs = self._stored(obs)
        check_step(self.config.env_id, obs, reward)
        return obs

    @contextmanager
    def _dated(self, where: str, step: int) -> Iterator[None]:
        """What an environment does wrong inside is told with the step, and with what is left of the run."""
        try:
            yield
        except BadStepError as error:
            raise type(error)(f"{error} {where} step {step:,}; {self._kept()}") from None
        except EnvironmentFailedError as error:
            text = f"{error} {where} step {step:,}; {self._kept()}"
            raise EnvironmentFailedError(text) from error.__cause__

    def _kept(self) -> str:
        newest = self.store.newest()
        if newest is None:
            return "there is no checkpoint yet, so the same command begins anew"
        return f"the last checkpoint is kept, and the same command resumes from it (step {newest:,})"

    def _evaluate(self) -> Evaluation:
        before = self._distances()
        t0 = time.monotonic()
        recalibrated = self.agent.recalibrate(self.replay, self.streams["recalibrate"])
        t1 = time.monotonic()
        with self._dated("in the evaluation at", self.step):
            result = evaluate(
                lambda obs: self.agent.act(self._stored(obs), None),
                self.eval_envs,
                self.eval_seeds,
                self.config.env_id,
            )
        t2 = time.monotonic()
        self.spent["recalibration"] += t1 - t0
        self.spent["evaluation"] += t2 - t1
        self.best = result.mean if self.best is None else max(self.best, result.mean)
        row: Row = {"eval/mean_return": result.mean, "eval/std_return": result.std}
        self._record(self.metrics, {"step": self.step, **row, "returns": result.returns, "lengths": result.lengths})
        if self.wasserstein is not None:
            self.wasserstein.write(self.step, before, self._distances() if recalibrated else before)
        return result

    def _distances(self) -> list[float]:
        if self.wasserstein is None:
            return []
        t0 = time.monotonic()
        distances = self.wasserstein.distances(self.agent.policy, self.replay, self.step)
        self.spent["measurement"] = self.spent.get("measurement", 0.0) + time.monotonic() - t0
        return distances

    def _checkpoint(self) -> None:
        t0 = time.monotonic()
        tensors = self.agent.state_dict()
        for name, tensor in tensors.items():
            if not torch.isfinite(tensor).all():
                raise NonFiniteError(f"{name} holds NaN or infinity at step {self.step:,}; {self._kept()}")
        tensors["episode_actions"] = torch.from_numpy(np.array(self.episode_actions))
        state = {
            "streams": self.streams.state(),
            "best": self.best,
            "losses": self.losses,
            "episode": self.episode,
            "episode_start": self.episode_start,
            "episode_return": self.episode_return,
        }
        try:
            state["metrics_bytes"] = self.metrics.secure()
            if self.wasserstein is not None:
                self.wasserstein.file.secure()
            self.store.save(self.step, tensors, state, self.replay)
            self._write_derived()
        except OSError as error:
            raise OSError(
                f"cannot write a checkpoint to {self.directory} at step {self.step:,} ({error.strerror}); the one "
                f"before is intact: free some space and run the same command again"
            ) from error
        self.spent["checkpoint"] += time.monotonic() - t0

    def _write_derived(self) -> None:
        """What follows from the state of the run: the policy, and TensorBoard's view of the metrics."""
        policy = self.agent.policy.state_dict()
        if self.config.algo == "sac":  # what sampling needs besides
            own = self.agent.state_dict()
            policy |= {k.removeprefix("gaussian."): v for k, v in own.items() if k.startswith("gaussian.log_std.")}
        write_policy(self.directory, policy)
        write_tensorboard(read_rows(self.metrics.path), self.directory / "tensorboard")

    def close(self) -> None:
        for env in (self.env, *self.eval_envs):
            env.close()
        self.metrics.close()
        self.timing.close()
        if self.tracker is not None:
            self.tracker.finish()
        if self.wasserstein is not None:
            self.wasserstein.file.close()

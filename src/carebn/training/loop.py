"""A training run: act, step, store, update; evaluate and checkpoint on schedule; resume exactly."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from carebn.algorithm import ReplayBuffer
from carebn.machine import cores
from carebn.stopping import Stop, StopRequest
from carebn.training import seeds
from carebn.training.best import write_best
from carebn.training.build import make_agent
from carebn.training.callbacks import Callback, Event, Kind, listener
from carebn.training.checkpoint import CheckpointStore, Loaded, Snapshot, checked_state
from carebn.training.config import TrainConfig
from carebn.training.conversion import remove_own_conversion
from carebn.training.environment import (
    BadStepError,
    EnvironmentFailedError,
    NonFiniteError,
    check_step,
    reset,
    spaces_of,
    step,
)
from carebn.training.evaluation import Evaluation, cut_short, evaluate
from carebn.training.extension import checker, is_regular
from carebn.training.flat import own_spaces
from carebn.training.identity import check_same, check_steps, default_directory, stored
from carebn.training.lock import lock
from carebn.training.measurements import WassersteinLog
from carebn.training.policy_file import policy_bytes, write_policy
from carebn.training.progress import ProgressDisplay
from carebn.training.record import LineFile, Row, newest_return, read_rows, with_checksum, write_tensorboard
from carebn.training.spaces_file import write_spaces
from carebn.training.track import Tracker, require_wandb
from carebn.training.versions import compare_versions
from carebn.training.vouch import check_logs, vouch, write_identity
from carebn.training.warm_up import as_begun, never_learns
from carebn.training.worlds import MakeEnv, env_of


def _doubts(config: TrainConfig) -> list[str]:
    """What can be meant, but seldom is."""
    doubts = []
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

    def __init__(self, config: TrainConfig, make: MakeEnv | None = None, callback: Callback | None = None) -> None:
        """``make`` stands for the environment of the configuration, ``callback`` hears of steps (``callbacks``)."""
        self.config = config = as_begun(config).checked()
        torch.set_num_threads(config.threads)
        assert config.learning_starts is not None
        assert config.random_steps is not None
        assert config.update_interval is not None
        self.learning_starts, self.random_steps = config.learning_starts, config.random_steps
        self.update_interval = config.update_interval
        self.directory = config.run_dir if config.run_dir is not None else default_directory(config)
        self.make = make if make is not None else partial(env_of, config, True)  # who trains has said what to import
        self.hear = listener(callback)
        self.env = self.make()
        self.spaces = spaces_of(self.env, config.env_id)
        self.agent = make_agent(config, self.spaces)
        capacity = min(config.buffer_size, config.total_timesteps)
        self.replay = ReplayBuffer(capacity, (self.spaces.obs_dim,), self.spaces.obs_dtype, self.spaces.action_shape)
        self.streams = seeds.Streams(config.seed)
        self.store = CheckpointStore(self.directory, config.checkpoint_interval)
        self.eval_envs = [self.make() for _ in range(config.eval_episodes)]
        self.eval_seeds = [seeds.number(config.seed, seeds.EVALUATION, i) for i in range(config.eval_episodes)]
        self.step = 0
        self.episode = 0
        self.episode_start = 0  # the number of the episode's first transition
        self.episode_return = 0.0
        self.episode_actions: list[Any] = []
        self.losses: dict[str, float] = {}
        self.best: float | None = None
        self.best_policy: bytes | None = None
        self.best_evaluation: dict[str, Any] | None = None
        self.before_the_end: Snapshot | None = None  # if the last evaluation is one that only the end calls for
        self.obs: NDArray[Any] = np.empty(0)
        self.signals = StopRequest(self._kept)
        self.stopped = False  # by the callback
        self.evaluation_due = False  # of the step that was made last
        self.told_of_cuts = False
        self.reward = 0.0
        self.last: float | None = None  # mean return of the last evaluation
        self.spent = {"evaluation": 0.0, "recalibration": 0.0, "checkpoint": 0.0}
        self.threads_begun_with, self.planned = config.threads, config.total_timesteps
        self.warnings = _doubts(config)
        self._warn: Callable[[str], None] = self.warnings.append
        self.tracker: Tracker | None = None
        self.wasserstein: WassersteinLog | None = None

    # --- starting ----------------------------------------------------------------------------------------------------

    def _check_directory(self) -> None:
        """Refuse a directory that holds anything else than this run."""
        theirs = stored(self.directory)
        if theirs is not None:
            check_same(self.directory, theirs, self.config)
            check_steps(self.directory, self.store.newest(), self.config)
            self.threads_begun_with, self.planned = theirs.threads, theirs.total_timesteps
        elif never_learns(self.config):  # one that an earlier version has begun goes on
            raise ValueError(never_learns(self.config))

    def _open(self) -> bool:
        """Prepare the directory and restore the newest checkpoint; says whether there is anything left to do."""
        self._check_directory()  # again: until the lock was taken, somebody else may have begun here
        self.directory.mkdir(parents=True, exist_ok=True)
        check_logs(self.directory, self.config)
        write_identity(self.directory, replace(self.config, threads=self.threads_begun_with))
        write_spaces(self.directory, *own_spaces(self.env))
        check = checker(self.directory / "metrics.jsonl", self.config)
        loaded = self.store.load_latest(self.warnings.append, self.config.total_timesteps, check)
        changes = compare_versions(self.directory, self.config, loaded is not None)
        if self.threads_begun_with != self.config.threads:
            changes.append(f"--threads {self.threads_begun_with} and goes on with {self.config.threads}")
        if loaded is not None and loaded.step < self.config.total_timesteps:
            self.warnings += [
                f"this run began with {change}: it resumes, but an exact repetition is no longer promised"
                for change in changes
            ]
        if loaded is not None and self.planned > self.config.total_timesteps:
            self.warnings.append(
                f"this run was to have {self.planned:,} steps, and now ends after {self.config.total_timesteps:,}"
            )
        if loaded is not None and loaded.was_last:
            self.warnings.append(
                f"the evaluation at step {loaded.step:,} was made only because the run ended there; as it goes on, it "
                f"is withdrawn, and with it the best policy if it was that"
            )
        self.metrics = LineFile(self.directory / "metrics.jsonl")
        self.timing = LineFile(self.directory / "timing.jsonl")
        if "wasserstein" in self.config.measure:
            self.wasserstein = WassersteinLog(self.directory, self.config.seed)
        self._cut_logs(loaded)
        if loaded is None or loaded.step < self.config.total_timesteps:
            remove_own_conversion(self.directory, self.config)  # it would be that of a shorter run
        if loaded is None:
            self._begin_episode()
            return True
        state, tensors = checked_state(loaded.snapshot.state, self.directory), loaded.snapshot.tensors
        self.episode_actions = list(tensors.pop("episode_actions").numpy())
        self.agent.load_state_dict(tensors)
        for start, rows in loaded.segments:
            self.replay.restore(start, rows)
        self.streams.restore(state["streams"])
        self.step, self.best = loaded.step, state["best"]
        self.best_policy, self.best_evaluation = loaded.snapshot.best, state.get("best_evaluation")
        self.episode, self.episode_start = state["episode"], state["episode_start"]
        self.episode_return, self.losses = state["episode_return"], state["losses"]
        was_due = bool(state.get("evaluation_due"))  # and it is not, if the run no longer ends here
        self.evaluation_due = was_due and (
            self.step == self.config.total_timesteps or is_regular(self.step, self.config)
        )
        self.store.forget_after(loaded.step)
        self.store.clean(self._warn)
        self._replay_episode()
        other_end = loaded.was_last or was_due > self.evaluation_due
        if other_end and self.step % self.config.checkpoint_interval == 0:
            self._checkpoint()  # as a longer run makes it
        self._write_derived()  # in case the run was killed between its checkpoint and these
        self._vouch(self.metrics.secure())
        return self.step < self.config.total_timesteps or self.evaluation_due

    def _cut_logs(self, loaded: Loaded | None) -> None:
        """Back to where the run goes on; first only that much is vouched for, because this may be cut short too."""
        metrics = 0 if loaded is None else loaded.snapshot.state["metrics_bytes"]
        lengths = {self.metrics: metrics}
        if self.wasserstein is not None:
            # before an evaluation, also that of the step itself is still to come
            step = 0
            if loaded is not None:
                step = loaded.step - (loaded.was_last or bool(loaded.snapshot.state.get("evaluation_due")))
            lengths[self.wasserstein.file] = self.wasserstein.length_until(step)
        vouch(self.directory, {log.path.name: log.until(length) for log, length in lengths.items()})
        for log, length in lengths.items():
            log.cut_back(length)

    def _vouch(self, metrics: tuple[int, str]) -> None:
        logs = {self.metrics.path.name: metrics}
        if self.wasserstein is not None:
            logs[self.wasserstein.file.path.name] = self.wasserstein.file.secure()
        vouch(self.directory, logs)

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

    @property
    def stop_asked(self) -> int | None:
        """The signal that asks the run to stop, if one does."""
        return self.signals.asked

    @stop_asked.setter
    def stop_asked(self, number: int | None) -> None:
        self.signals.asked = number

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
        began, first = time.monotonic(), self.step
        try:
            newest = newest_return(read_rows(self.metrics.path))
            shown = ProgressDisplay(
                config.total_timesteps, self.step, config.quiet, newest, self.best, self.learning_starts
            )
            with self.signals.heard(), shown as display:
                self._warn = display.warn
                if self.step:
                    display.resumed()
                else:
                    display.begun(config.title(), self.directory)
                for text in self.warnings:
                    display.warn(text)
                while self.step < config.total_timesteps or self.evaluation_due:
                    if not self.evaluation_due:
                        self._one_step()
                        display.advance(self.step)
                        self._tell("step")
                    last = self.step == config.total_timesteps
                    if last or is_regular(self.step, config):
                        self._evaluate_unless_stopped(display)
                        if not self.evaluation_due:
                            self._tell("evaluation")
                            elapsed = time.monotonic() - began
                            self._record(self.timing, with_checksum({
                                "step": self.step, "charts/SPS": (self.step - first) / elapsed, "time/elapsed": elapsed,
                                **{f"time/{name}": seconds for name, seconds in self.spent.items()},
                            }))  # fmt: skip
                    if last or self.stop_asked or self.stopped or self.step % config.checkpoint_interval == 0:
                        self._checkpoint()
                        self._tell("checkpoint")
                    if self.stop_asked and (not last or self.evaluation_due):
                        text = f"stopped at step {self.step:,}; the same command resumes it"
                        raise InterruptedRun(text, self.stop_asked)
                    if self.stopped:
                        break
            return True
        except Stop as stop:  # in the middle of a step
            raise InterruptedRun(
                f"stopped while compiling at step {self.step + 1:,}; {self._kept()}", stop.number
            ) from None
        finally:
            self.close()

    def _tell(self, kind: Kind) -> None:
        """The callback hears of it, and may say that it is enough."""
        if self.hear is not None:
            total, losses, last = self.config.total_timesteps, dict(self.losses), self.last
            event = Event(kind, self.step, total, self.directory, self.reward, losses, last, self.best)
            self.stopped |= not self.hear(event)

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
        self.reward = reward
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

    def _evaluate_unless_stopped(self, display: ProgressDisplay) -> None:
        """Evaluate, or leave all as it was before: after resuming it is then made whole."""
        self.evaluation_due = True
        display.evaluating()
        if not is_regular(self.step, self.config):
            with self._saving():
                self.before_the_end = self._snapshot()
        agent, streams = self.agent.state_dict(), self.streams.state()
        try:
            result = self._evaluate()
        except Stop:
            self.agent.load_state_dict(agent)
            self.streams.restore(streams)
            return
        self.evaluation_due = False
        display.evaluated(self.step, result.mean, result.std)
        if result.cut and not self.told_of_cuts:
            self.told_of_cuts = True
            asked_by = "--eval-max-steps" if self.config.eval_max_steps else ""
            display.warn(cut_short(result, self.config.env_id, "--eval-max-steps", asked_by))

    def _greedy(self, obs: NDArray[Any]) -> NDArray[Any]:
        self.signals.obey()
        return self.agent.act(self._stored(obs), None)

    def _evaluate(self) -> Evaluation:
        config = self.config
        with self.signals.can_give_up():
            before = self._distances()
            t0 = time.monotonic()
            recalibrated = self.agent.recalibrate(self.replay, self.streams["recalibrate"])
            t1 = time.monotonic()
            with self._dated("in the evaluation at", self.step):
                result = evaluate(self._greedy, self.eval_envs, self.eval_seeds, config.env_id, config.eval_max_steps)
            t2 = time.monotonic()
            after = self._distances() if recalibrated else before
        self.spent["recalibration"] += t1 - t0
        self.spent["evaluation"] += t2 - t1
        self.last = result.mean
        self._keep_best(result)
        row: Row = {"eval/mean_return": result.mean, "eval/std_return": result.std}
        self._record(self.metrics, {"step": self.step, **row, "returns": result.returns, "lengths": result.lengths})
        if self.wasserstein is not None:
            self.wasserstein.write(self.step, before, after)
        return result

    def _distances(self) -> list[float]:
        if self.wasserstein is None:
            return []
        t0 = time.monotonic()
        distances = self.wasserstein.distances(self.agent.policy, self.replay, self.step)
        self.spent["measurement"] = self.spent.get("measurement", 0.0) + time.monotonic() - t0
        return distances

    def _keep_best(self, result: Evaluation) -> None:
        if self.best is None or result.mean > self.best:
            self.best = result.mean
            self.best_policy = policy_bytes(self._policy())
            self.best_evaluation = {
                "step": self.step, "mean_return": result.mean, "std_return": result.std, "returns": result.returns
            }  # fmt: skip

    def _snapshot(self) -> Snapshot:
        tensors = self.agent.state_dict()
        for name, tensor in tensors.items():
            if not torch.isfinite(tensor).all():
                raise NonFiniteError(f"{name} holds NaN or infinity at step {self.step:,}; {self._kept()}")
        tensors["episode_actions"] = torch.from_numpy(np.array(self.episode_actions))
        length, digest = self.metrics.secure()
        state = {
            "streams": self.streams.state(),
            "best": self.best,
            "best_evaluation": self.best_evaluation,
            "losses": dict(self.losses),
            "episode": self.episode,
            "episode_start": self.episode_start,
            "episode_return": self.episode_return,
            "metrics_bytes": length,
            "metrics_sha256": digest,
        }
        return Snapshot(tensors, state, self.best_policy)

    @contextmanager
    def _saving(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise OSError(
                f"cannot write a checkpoint to {self.directory} at step {self.step:,} ({error.strerror}); the one "
                f"before is intact: free some space and run the same command again"
            ) from error

    def _checkpoint(self) -> None:
        t0 = time.monotonic()
        with self._saving():
            now, before = self._snapshot(), self.before_the_end
            if self.evaluation_due:
                now.state["evaluation_due"], before = True, None  # it is what the run was before
            if self.wasserstein is not None:
                self.wasserstein.file.secure()
            self.store.save(self.step, now, self.replay, before, self._warn)
            self._write_derived()
            self._vouch((now.state["metrics_bytes"], now.state["metrics_sha256"]))
        self.spent["checkpoint"] += time.monotonic() - t0

    def _policy(self) -> dict[str, torch.Tensor]:
        policy = self.agent.policy.state_dict()
        if self.config.algo == "sac":  # what sampling needs besides
            own = self.agent.state_dict()
            policy |= {k.removeprefix("gaussian."): v for k, v in own.items() if k.startswith("gaussian.log_std.")}
        return policy

    def _write_derived(self) -> None:
        """What follows from the state of the run: the policies, and TensorBoard's view of the metrics."""
        write_policy(self.directory, self._policy())
        write_best(self.directory, self.best_policy, self.best_evaluation)
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

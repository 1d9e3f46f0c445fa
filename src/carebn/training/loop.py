"""A training run: step, evaluate and checkpoint on schedule, tell who listens, stop when asked; resume exactly."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import torch

from carebn.algorithm import find_algorithm
from carebn.machine import cores, peak_memory, processor
from carebn.stopping import Stop, StopRequest
from carebn.training.callbacks import Callback, Event, Kind, listeners, may_go_on
from carebn.training.checkpoint import Snapshot
from carebn.training.config import TrainConfig
from carebn.training.environment import spaces_of, with_step_named
from carebn.training.evaluating import Evaluating
from carebn.training.evaluation import Evaluation, cut_short
from carebn.training.extension import is_on_schedule
from carebn.training.flat import own_spaces
from carebn.training.identity import default_directory
from carebn.training.lock import lock
from carebn.training.observers import Observer, check_observers
from carebn.training.progress import ProgressDisplay
from carebn.training.record import newest_return, read_rows
from carebn.training.run_directory import RunDirectory
from carebn.training.run_state import RunState
from carebn.training.schedule import reaches
from carebn.training.side_by_side import SideBySide
from carebn.training.sparsity import firing
from carebn.training.stepping import Stepping
from carebn.training.track import require_wandb
from carebn.training.warm_up import as_begun
from carebn.training.worlds import MakeEnv, env_of


def _doubts(config: TrainConfig, asked: TrainConfig) -> list[str]:
    """What can be meant, but seldom is."""
    doubts = []
    if config.total_timesteps > asked.total_timesteps:
        doubts.append(
            f"--total-timesteps {asked.total_timesteps:,} becomes {config.total_timesteps:,}: {config.num_envs} "
            f"environments make {config.num_envs} steps at a time"
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
    """One run directory. ``Run(config).train()`` starts it, resumes it, or finds it complete.

    For another schedule it has verbs: ``open``, then ``make_step``, ``evaluate`` and ``save`` as often as wanted, and
    ``close``. They take no lock and tell no callback.
    """

    def __init__(
        self,
        config: TrainConfig,
        make: MakeEnv | None = None,
        callback: Callback | None = None,
        observers: Sequence[Observer] = (),
    ) -> None:
        """``make`` stands for the environment of the configuration, ``callback`` hears what happens (``callbacks``),
        ``observers`` make the measurements that the configuration asks for (``observers``)."""
        asked, self.config = config, as_begun(config).checked()
        config = self.config
        check_observers(observers, config.measure)
        torch.set_num_threads(config.threads)
        self.directory = config.run_dir if config.run_dir is not None else default_directory(config)
        self.make = make if make is not None else partial(env_of, config, True)  # who trains has said what to import
        self._listeners = listeners(callback)
        self.warnings = _doubts(config, asked)
        self._warn: Callable[[str], None] = self.warnings.append
        self.env = self.make()
        self.spaces = spaces_of(self.env, config.env_id)
        self.envs = SideBySide(self.env, self.make, config.num_envs, config.vector, config.env_id, self.spaces)
        self.eval_envs = [self.make() for _ in range(config.eval_episodes)]
        self.state = RunState(config, self.spaces)
        self.agent, self.replay = self.state.agent, self.state.replay
        self.files = RunDirectory(self.directory, config, observers, lambda text: self._warn(text))
        self.signals = StopRequest(self.files.kept)
        self.spent = {"evaluation": 0.0, "recalibration": 0.0, "checkpoint": 0.0}  # seconds
        self.stepping = Stepping(config, self.state, self.envs, self.spaces, self.files.record, self.files.kept)
        self.evaluating = Evaluating(
            config, self.state, self.files, self.eval_envs, self.spaces, self.signals, self._policy, self.spent
        )
        self.evaluation_due = False  # of the step that was made last
        self.last_return: float | None = None  # mean of the last evaluation
        self._before_the_end: Snapshot | None = None  # if the last evaluation is one that only the end calls for
        self._is_saved = True  # and can be restored as it is, or has not begun
        self._stopped = False  # by the callback
        self._told_of_cuts = False

    @property
    def step(self) -> int:
        """Steps made so far."""
        return self.state.step

    @property
    def best(self) -> float | None:
        """The mean return of the best evaluation so far."""
        return self.state.best

    @property
    def is_complete(self) -> bool:
        return self.step >= self.config.total_timesteps and not self.evaluation_due

    @property
    def stop_asked(self) -> int | None:
        """The signal that asks the run to stop, if one does."""
        return self.signals.asked

    @stop_asked.setter
    def stop_asked(self, number: int | None) -> None:
        self.signals.asked = number

    # --- the verbs ---------------------------------------------------------------------------------------------------

    def open(self) -> bool:
        """Prepare the directory and restore the newest checkpoint; says whether there is anything left to do."""
        loaded = self.files.open(*own_spaces(self.env))
        if loaded is None:
            self.stepping.begin_episodes()
            return True
        self.state.restore(loaded, self.directory)
        was_due = bool(loaded.snapshot.state.get("evaluation_due"))
        self.evaluation_due = was_due and self._is_evaluated_here()  # it is not, if the run no longer ends here
        self.files.forget_after(loaded.step)
        self.stepping.replay_episodes(self._warn)
        other_end = loaded.was_last or was_due > self.evaluation_due
        if other_end and self._is_saved_here():
            self.save()  # as a longer run makes it
        else:
            self._write_derived()  # in case the run was killed between its checkpoint and these
        return not self.is_complete

    def make_step(self) -> None:
        """Act, step all environments, store the transitions, learn."""
        self._is_saved = False
        self.stepping.make_step()

    def evaluate(self) -> Evaluation:
        self._is_saved = False
        return self.evaluating.evaluate()

    def save(self) -> None:
        """A checkpoint, and what follows from it."""
        began = time.monotonic()
        with self._saving():
            now, before = self._snapshot(), self._before_the_end
            if self.evaluation_due:
                now.state["evaluation_due"], before = True, None  # it is what the run was before
            self.files.save(self.step, now, self.replay, before)
            self._write_derived()
        self._is_saved = True
        self.spent["checkpoint"] += time.monotonic() - began

    def close(self) -> None:
        self.envs.close()
        for env in (self.env, *self.eval_envs):
            env.close()
        self.files.close()

    # --- the schedule ------------------------------------------------------------------------------------------------

    def train(self) -> bool:
        """Returns whether anything was left to do. Refuses a directory that another process is training in."""
        self.files.check()
        if self.config.track:
            require_wandb()  # before anything is made
        with lock(self.directory):
            try:
                return self.open() and self._train()
            finally:
                self.close()

    def _train(self) -> bool:
        config = self.config
        if config.track:
            self.files.track()
        newest = newest_return(read_rows(self.files.metrics.path))
        shown = ProgressDisplay(
            config.total_timesteps, self.step, config.quiet, newest, self.best, self.stepping.learning_starts
        )
        try:
            with self.signals.heard(), shown as display:
                self._warn = display.warn
                display.begun(config.title(), self.directory)
                for text in self.warnings:
                    display.warn(text)
                self._follow_schedule(display)
        except Stop as stop:  # in the middle of a step
            raise InterruptedRun(
                f"stopped while compiling at step {self.step + 1:,}; {self.files.kept()}", stop.number
            ) from None
        if self.stop_asked and not self.is_complete:
            raise InterruptedRun(f"stopped at step {self.step:,}; the same command resumes it", self.stop_asked)
        return True

    def _follow_schedule(self, display: ProgressDisplay) -> None:
        config = self.config
        began, first, worked = time.monotonic(), self.step, time.process_time()
        self._tell("training_start")
        while not (self.is_complete or self._stopped):
            if not self.evaluation_due:
                self._tell("before_step")
                if self._stopped:
                    break
                self.make_step()
                display.advance(self.step)
                self._tell("step")
            if self._is_evaluated_here():
                self._evaluate_unless_stopped(display)
                if not self.evaluation_due:
                    self._tell("evaluation")
                    elapsed = time.monotonic() - began
                    self.files.record_timing({
                        "step": self.step, "charts/SPS": (self.step - first) / elapsed, "time/elapsed": elapsed,
                        **{f"time/{name}": seconds for name, seconds in self.spent.items()},
                        "time/processor": time.process_time() - worked, "memory/peak": peak_memory(),
                        "processor": processor(),
                    })  # fmt: skip
            last = self.step == config.total_timesteps
            if last or self.stop_asked or self._stopped or self._is_saved_here():
                self._save_and_tell()
            if self.stop_asked:
                break
        if not self._is_saved:
            self._save_and_tell()
        self._tell("training_end")

    def _is_evaluated_here(self) -> bool:
        return self.step == self.config.total_timesteps or is_on_schedule(self.step, self.config)

    def _is_saved_here(self) -> bool:
        return reaches(self.step, self.config.checkpoint_interval, self.config.num_envs)

    def _save_and_tell(self) -> None:
        self.save()
        self._tell("checkpoint")

    def _tell(self, kind: Kind) -> None:
        """The callback hears of it, and may say that it is enough."""
        hearing = self._listeners.get(kind)
        if hearing:
            total, losses, reward = self.config.total_timesteps, dict(self.state.losses), self.stepping.reward
            event = Event(kind, self.step, total, self.directory, reward, losses, self.last_return, self.best)
            self._stopped |= not may_go_on(hearing, event)

    def _evaluate_unless_stopped(self, display: ProgressDisplay) -> None:
        """Evaluate, or leave all as it was before: after resuming it is then made whole. A run that was stopped by its
        step still makes the evaluation of that step."""
        self.evaluation_due = True
        stopped_before = self._stopped
        self._tell("before_evaluation")
        if self._stopped and not stopped_before:
            return
        display.evaluating()
        if not is_on_schedule(self.step, self.config):
            with self._saving():
                self._before_the_end = self._snapshot()
        result = self.evaluating.evaluate_unless_stopped()
        if result is None:
            return
        self.evaluation_due = self._is_saved = False
        self.last_return = result.mean
        display.evaluated(self.step, result.mean, result.std, firing(self.state.losses))
        if result.cut and not self._told_of_cuts:
            self._told_of_cuts = True
            asked_by = "--eval-max-steps" if self.config.eval_max_steps else ""
            display.warn(cut_short(result, self.config.env_id, "--eval-max-steps", asked_by))

    # --- saving ------------------------------------------------------------------------------------------------------

    def _snapshot(self) -> Snapshot:
        with with_step_named("at", self.step, self.files.kept):
            return self.state.snapshot(self.files.metrics)

    @contextmanager
    def _saving(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise OSError(
                f"cannot write a checkpoint to {self.directory} at step {self.step:,} ({error.strerror}); the one "
                f"before is intact: free some space and run the same command again"
            ) from error

    def _policy(self) -> dict[str, torch.Tensor]:
        return find_algorithm(self.config.algo).policy_tensors(self.agent)

    def _write_derived(self) -> None:
        self.files.write_derived(self._policy(), self.state.best_policy, self.state.best_evaluation)

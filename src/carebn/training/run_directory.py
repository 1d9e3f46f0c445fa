"""The directory of a run: opened for exactly this run, brought back to its newest checkpoint, and written to.

The order in which files are written is such that a crash at any instant leaves a directory that resumes.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gymnasium.spaces import Space
from torch import Tensor

from carebn.algorithm import ReplayBuffer
from carebn.training.best import write_best
from carebn.training.checkpoint import CheckpointStore, Loaded, Snapshot
from carebn.training.config import TrainConfig
from carebn.training.conversion import remove_own_conversion
from carebn.training.extension import resumable_check
from carebn.training.identity import check_same, check_steps, stored_config
from carebn.training.kept import refuse_to_go_on
from carebn.training.observers import Observer, ObserverLog
from carebn.training.policy_file import policy_bytes
from carebn.training.record import LineFile, Row, read_rows, with_checksum, write_tensorboard
from carebn.training.spaces_file import write_spaces
from carebn.training.track import Tracker
from carebn.training.versions import compare_versions
from carebn.training.vouch import check_logs, replace_policy, vouch, write_identity
from carebn.training.warm_up import never_learns


class RunDirectory:
    def __init__(
        self, path: Path, config: TrainConfig, observers: Sequence[Observer], warn: Callable[[str], None]
    ) -> None:
        self.path, self.config = path, config
        self.store = CheckpointStore(path, config.checkpoint_interval, config.num_envs)
        self.metrics: LineFile
        self.timing: LineFile
        self.observer_logs: list[ObserverLog] = []
        self.observers, self._warn = observers, warn
        self._threads_begun_with, self._planned = config.threads, config.total_timesteps
        self._tracker: Tracker | None = None
        self._line_files: list[LineFile] = []

    # --- opening -----------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Refuse a directory that holds anything else than this run."""
        refuse_to_go_on(self.path)
        theirs = stored_config(self.path)
        if theirs is not None:
            check_same(self.path, theirs, self.config)
            check_steps(self.path, self.store.newest(), self.config)
            self._threads_begun_with, self._planned = theirs.threads, theirs.total_timesteps
        elif never_learns(self.config):  # one that an earlier version has begun goes on
            raise ValueError(never_learns(self.config))

    def open(self, observations: Space[Any], actions: Space[Any]) -> Loaded | None:
        """The checkpoint to go on from, with all files as they were then; None: the run begins."""
        self.check()  # again: until the lock was taken, somebody else may have begun here
        self.path.mkdir(parents=True, exist_ok=True)
        check_logs(self.path, self.config)
        write_identity(self.path, replace(self.config, threads=self._threads_begun_with))
        write_spaces(self.path, observations, actions)
        check = resumable_check(self.path / "metrics.jsonl", self.config)
        loaded = self.store.load_latest(self._warn, self.config.total_timesteps, check)
        changes = compare_versions(self.path, self.config, loaded is not None)
        if loaded is not None:
            self._tell_of_changes(loaded, changes)
        self.metrics = self._kept_open(LineFile(self.path / "metrics.jsonl"))
        self.timing = self._kept_open(LineFile(self.path / "timing.jsonl"))
        for observer in self.observers:
            log = ObserverLog(observer, self.path)
            self._kept_open(log.file)
            self.observer_logs.append(log)
        self._cut_logs(loaded)
        if loaded is None or loaded.step < self.config.total_timesteps:
            remove_own_conversion(self.path, self.config)  # it would be that of a shorter run
        return loaded

    def _kept_open(self, file: LineFile) -> LineFile:
        self._line_files.append(file)
        return file

    def _tell_of_changes(self, loaded: Loaded, changes: list[str]) -> None:
        config = self.config
        if self._threads_begun_with != config.threads:
            changes = [*changes, f"--threads {self._threads_begun_with} and goes on with {config.threads}"]
        for change in changes if loaded.step < config.total_timesteps else []:
            self._warn(f"this run began with {change}: it resumes, but an exact repetition is no longer promised")
        if self._planned > config.total_timesteps:
            self._warn(f"this run was to have {self._planned:,} steps, and now ends after {config.total_timesteps:,}")
        if loaded.was_last:
            self._warn(
                f"the evaluation at step {loaded.step:,} was made only because the run ended there; as it goes on, it "
                f"is withdrawn, and with it the best policy if it was that"
            )

    def _cut_logs(self, loaded: Loaded | None) -> None:
        """Back to where the run goes on; first only that much is vouched for, because this may be cut short too."""
        metrics, step = 0, 0
        if loaded is not None:
            metrics = loaded.snapshot.state["metrics_bytes"]
            # before an evaluation, also that of the step itself is still to come
            step = loaded.step - (loaded.was_last or bool(loaded.snapshot.state.get("evaluation_due")))
        lengths = {self.metrics: metrics} | {log.file: log.length_until(step) for log in self.observer_logs}
        vouch(self.path, {log.path.name: log.until(length) for log, length in lengths.items()})
        for log, length in lengths.items():
            log.cut_back(length)

    def forget_after(self, step: int) -> None:
        """Checkpoints that were passed over, and leftovers."""
        self.store.forget_after(step)
        self.store.clean(self._warn)

    # --- writing -----------------------------------------------------------------------------------------------------

    def track(self) -> None:
        """From now on, what is recorded is also sent to Weights & Biases."""
        self._tracker = Tracker(self.path.name, self.config.as_json())

    def record(self, row: Row) -> None:
        """A line of metrics."""
        self._write(self.metrics, row)

    def record_timing(self, row: Row) -> None:
        self._write(self.timing, with_checksum(row))

    def _write(self, file: LineFile, row: Row) -> None:
        file.write(row)
        if self._tracker is not None:
            self._tracker.log(row)

    def save(self, step: int, now: Snapshot, replay: ReplayBuffer, before_the_end: Snapshot | None) -> None:
        """A checkpoint, for which all lines have reached the disk. What follows from it is the next to be written."""
        for log in self.observer_logs:
            log.file.secure()
        self.store.save(step, now, replay, before_the_end, self._warn)

    def write_derived(
        self, policy: dict[str, Tensor], best_policy: bytes | None, best_evaluation: dict[str, Any] | None
    ) -> None:
        """What follows from the state of the run: the policies, and TensorBoard's view of the metrics; and vouch."""
        data = policy_bytes(policy)
        replace_policy(self.path, data)
        write_best(self.path, best_policy, best_evaluation)
        write_tensorboard(read_rows(self.metrics.path), self.path / "tensorboard")
        vouch(self.path, {file.path.name: file.secure() for file in self._vouched_files()}, data)

    def _vouched_files(self) -> list[LineFile]:
        return [self.metrics, *(log.file for log in self.observer_logs)]

    def kept(self) -> str:
        """A sentence about what is left of the run if it fails now."""
        newest = self.store.newest()
        if newest is None:
            return "there is no checkpoint yet, so the same command begins anew"
        return f"the last checkpoint is kept, and the same command resumes from it (step {newest:,})"

    def close(self) -> None:
        for file in self._line_files:
            file.close()
        if self._tracker is not None:
            self._tracker.close()
            self._tracker = None

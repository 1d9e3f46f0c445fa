"""A sweep: every run is brought to its end once, whatever dies on the way; what is done already is left alone.

The run directory is the only memory. A sweep that is stopped, killed or started twice finds there what is complete,
what can be resumed, and (by its lock) what somebody else is working on.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from carebn.reading import parse_object, regular_file
from carebn.study.bars import Bars
from carebn.study.evidence.runs import DamagedRun, read_run
from carebn.study.sweep.place import Executor
from carebn.study.worker import Order
from carebn.training.config import TrainConfig
from carebn.training.lock import is_locked

DEATHS = 3  # in a row, without a new checkpoint between them, before a run is given up
POLL = 0.1  # seconds
BUSY_PAUSE = 2.0  # seconds until a run that somebody else trains is looked at again
TAIL = 64 * 1024  # bytes at the end of the metrics that tell how far a run is

WAITING, RUNNING, ELSEWHERE = "waiting", "running", "elsewhere"
DONE, GIVEN_UP, FAILED, STOPPED = "done", "given up", "failed", "stopped"
OVER = (DONE, GIVEN_UP, FAILED, STOPPED)


@dataclass
class Job:
    """A run of the sweep."""

    config: TrainConfig
    directory: Path
    state: str = WAITING
    message: str = ""
    handle: Any = None
    found: bool = False  # complete before the sweep began
    retries: int = 0  # of the whole sweep
    deaths: int = 0  # since the last progress
    checkpoint: int = 0  # the newest when it was last submitted
    not_before: float = 0.0
    step: int = 0
    score: float | None = None  # mean return of the last evaluation
    speed: float = 0.0
    seen: tuple[float, int] = field(default=(0.0, -1))  # when which step was first seen in this sitting

    @property
    def name(self) -> str:
        return self.directory.name

    @property
    def total(self) -> int:
        return self.config.total_timesteps

    def is_complete(self) -> bool:
        try:
            run = read_run(self.directory)
            return run.complete and run.total == self.total  # somebody may have given it more steps
        except DamagedRun:
            return False  # what is wrong, if anything is, training will say

    def look(self) -> None:
        """How far it is, from the end of its metrics."""
        self.step, self.score = last_progress(self.directory)
        now = time.monotonic()
        if self.seen[1] < 0 or self.step < self.seen[1]:
            self.seen = (now, self.step)
        elapsed = now - self.seen[0]
        self.speed = (self.step - self.seen[1]) / elapsed if elapsed > 0 else 0.0


def last_progress(directory: Path) -> tuple[int, float | None]:
    """The last step that was recorded, and the last evaluation's mean return if it is near."""
    try:
        with open(regular_file(directory / "metrics.jsonl"), "rb") as file:
            file.seek(0, 2)
            start = max(0, file.tell() - TAIL)
            file.seek(start)
            lines = file.read().split(b"\n")
    except OSError:
        return 0, None
    step, score = 0, None
    for line in lines[1 if start else 0 : -1]:  # whole lines only
        try:
            row = parse_object(line)
            step, score = int(row["step"]), row.get("eval/mean_return", score)
        except (ValueError, KeyError, TypeError):
            continue  # the run itself, or reading it back, will say what is wrong
    return step, score


def newest_checkpoint(directory: Path) -> int:
    checkpoints = directory / "checkpoint"
    if not checkpoints.is_dir():
        return 0
    return max((int(path.name) for path in checkpoints.iterdir() if path.name.isdigit()), default=0)


class Display:
    """What a sweep tells while it goes on; this one keeps silent."""

    def say(self, text: str) -> None: ...

    def show(self, jobs: Sequence[Job]) -> None: ...


class Sweep:
    def __init__(
        self, configs: Sequence[TrainConfig], runs: Path, display: Display | None = None, bars: Bars = ()
    ) -> None:
        """``bars``: a run that stays below one of them is given up."""
        by_name = {config.name(): config for config in configs}  # a run that two studies share is one run
        self.jobs = [Job(config, (runs / name).absolute()) for name, config in by_name.items()]
        self.display = display or Display()
        self.bars = bars
        self.stopping = False
        self._told: set[str] = set()  # what is said once, however many runs it concerns
        for job in self.jobs:
            if job.is_complete():
                job.state, job.found, job.step = DONE, True, job.total

    @property
    def open_jobs(self) -> list[Job]:
        return [job for job in self.jobs if job.state in (WAITING, RUNNING, ELSEWHERE)]

    def failed(self) -> list[Job]:
        return [job for job in self.jobs if job.state == FAILED]

    def run(self, executor: Executor) -> bool:
        """Until all is done or has failed for good; after an interruption, until all is saved. Says whether all is
        done."""
        while self.open_jobs:
            try:
                self._submit(executor)
                self._collect(executor)
                self.display.show(self.jobs)
                time.sleep(POLL)
            except KeyboardInterrupt:
                self._stop(executor)
        self.display.show(self.jobs)
        return all(job.state == DONE for job in self.jobs)

    def _stop(self, executor: Executor) -> None:
        """First time: ask the runs to save themselves. Again: do not wait for it."""
        self.display.say("stopping: every run is saved first" if not self.stopping else "stopping at once")
        self.stopping = True
        executor.stop()
        for job in self.jobs:
            if job.state in (WAITING, ELSEWHERE):
                job.state = STOPPED

    def _submit(self, executor: Executor) -> None:
        free = executor.slots - sum(job.state == RUNNING for job in self.jobs)
        for job in self.jobs:
            if free <= 0 or self.stopping:
                return
            if job.state not in (WAITING, ELSEWHERE) or time.monotonic() < job.not_before:
                continue
            if is_locked(job.directory):
                self._elsewhere(job)
            elif job.state == ELSEWHERE and job.is_complete():
                job.state = DONE
                self.display.say(f"{job.name}: done elsewhere")
            else:
                job.checkpoint = newest_checkpoint(job.directory)
                job.seen = (0.0, -1)
                order = Order(job.config.as_json(), str(job.directory), job.config.measure, tuple(self.bars))
                job.handle = executor.submit(order)
                job.state = RUNNING
                free -= 1

    def _elsewhere(self, job: Job) -> None:
        if job.state != ELSEWHERE:
            self.display.say(f"{job.name}: another process is training it; waiting for that")
        job.state, job.not_before = ELSEWHERE, time.monotonic() + BUSY_PAUSE

    def _collect(self, executor: Executor) -> None:
        for job in self.jobs:
            if job.state != RUNNING:
                continue
            outcome = executor.outcome(job.handle)
            if outcome is None:
                continue
            job.handle = None
            {"done": self._done, "given up": self._given_up, "failed": self._failed, "died": self._died,
             "unseen": self._unseen, "busy": self._busy, "interrupted": self._interrupted,
            }[outcome.state](job, outcome.message)  # fmt: skip

    def _done(self, job: Job, message: str) -> None:
        job.state = DONE
        job.look()
        self.display.say(f"{job.name}: done" + ("" if job.score is None else f", last return {job.score:.1f}"))

    def _given_up(self, job: Job, message: str) -> None:
        job.state = GIVEN_UP
        job.look()

    def _failed(self, job: Job, message: str) -> None:
        job.state, job.message = FAILED, message
        self.display.say(f"{job.name}: failed: {message}")

    def _died(self, job: Job, message: str) -> None:
        progress = newest_checkpoint(job.directory)
        job.deaths = 1 if progress > job.checkpoint else job.deaths + 1
        if self.stopping:
            job.state = STOPPED
        elif job.deaths >= DEATHS:
            self._failed(job, f"it died {DEATHS} times without coming any further ({message})")
        else:
            job.state = WAITING
            job.retries += 1
            self.display.say(f"{job.name}: {message}; trying again from step {progress:,}")

    def _unseen(self, job: Job, message: str) -> None:
        """The executor does not ask that node again."""
        job.state = STOPPED if self.stopping else WAITING
        if message not in self._told:
            self.display.say(f"{message}; its runs go to other nodes")
            self._told.add(message)

    def _busy(self, job: Job, message: str) -> None:
        job.state = WAITING
        self._elsewhere(job)

    def _interrupted(self, job: Job, message: str) -> None:
        """Somebody stopped the run, or with it the sweep."""
        job.state = STOPPED

"""A sweep for people to watch: a live table in a terminal, plain lines elsewhere."""

import time
from collections import Counter
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from carebn.study.sweep.jobs import DONE, ELSEWHERE, FAILED, RUNNING, STOPPED, WAITING, Display, Job

REFRESH = 0.5  # seconds between two looks at the runs
PLAIN_SECONDS = 30  # between two plain lines
ORDER = (RUNNING, ELSEWHERE, FAILED, STOPPED, WAITING, DONE)  # of importance, if not all fit
STYLES = {RUNNING: "cyan", ELSEWHERE: "magenta", FAILED: "bold red", STOPPED: "yellow", DONE: "green", WAITING: "dim"}


class SweepDisplay(Display):
    """Every run's state, step, speed and last return."""

    def __init__(self) -> None:
        self.console = Console(stderr=True)
        self._live = Live(console=self.console, auto_refresh=False) if self.console.is_terminal else None
        self._looked = 0.0
        self._printed = time.monotonic()

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()

    def say(self, text: str) -> None:
        self.console.print(Text(text), soft_wrap=True)

    def show(self, jobs: Sequence[Job]) -> None:
        now = time.monotonic()
        over = all(job.state in (DONE, FAILED, STOPPED) for job in jobs)
        if not over and now - self._looked < REFRESH:
            return
        self._looked = now
        for job in jobs:
            if job.state in (RUNNING, ELSEWHERE, STOPPED):
                job.look()
        if self._live is not None:
            self._live.update(Group(self._table(jobs), Text(summary(jobs))), refresh=True)
        elif over or now - self._printed >= PLAIN_SECONDS:
            self._printed = now
            for job in jobs:
                if job.state == RUNNING:
                    self.say(f"{job.name}: step {job.step:,} of {job.total:,}, {job.speed:.0f} steps/s")
            self.say(summary(jobs))

    def _table(self, jobs: Sequence[Job]) -> Table:
        table = Table(expand=False)
        table.add_column("run", overflow="fold")
        table.add_column("state")
        for name in ("step", "", "steps/s", "return"):
            table.add_column(name, justify="right", no_wrap=True)
        room = max(3, self.console.height - 8)
        shown = sorted(jobs, key=lambda job: ORDER.index(job.state))[:room]
        for job in shown:
            table.add_row(
                Text(job.name),
                Text(job.state + (f" (retry {job.retries})" if job.retries else ""), style=STYLES[job.state]),
                f"{job.step:,}/{job.total:,}",
                f"{job.step / job.total:.0%}",
                f"{job.speed:.0f}" if job.state == RUNNING else "",
                "" if job.score is None else f"{job.score:.1f}",
            )
        if len(jobs) > room:
            table.caption = f"and {len(jobs) - room} more"
        return table


def summary(jobs: Sequence[Job]) -> str:
    """How many are in which state."""
    states = Counter(job.state for job in jobs)
    return f"{len(jobs)} runs: " + ", ".join(
        f"{states[state]} {state}" for state in (DONE, *ORDER[:-1]) if states[state]
    )

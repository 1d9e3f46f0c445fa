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

from carebn.study.sweep.jobs import DONE, ELSEWHERE, FAILED, GIVEN_UP, OVER, RUNNING, STOPPED, WAITING, Display, Job
from carebn.training.progress import spelled

REFRESH = 0.5  # seconds between two looks at the runs
PLAIN_SECONDS = 30  # between two plain lines
ORDER = (RUNNING, ELSEWHERE, FAILED, STOPPED, WAITING, GIVEN_UP, DONE)  # of importance, if not all fit
AT_WORK = ORDER[:4]  # what is worth a line of its own in a sweep of more runs than lines
WIDE = 120  # columns in which the name of a run stands on one line
ENOUGH = 3  # runs that have ended in this sitting, before they tell how long the others will take
STYLES = {
    RUNNING: "cyan",
    ELSEWHERE: "magenta",
    FAILED: "bold red",
    STOPPED: "yellow",
    WAITING: "dim",
    GIVEN_UP: "blue",
    DONE: "green",
}


class SweepDisplay(Display):
    """Every run's state, step, speed and last return. ``closing``: also says how many are in which state at the end."""

    def __init__(self, quiet: bool = False, closing: bool = True) -> None:
        self.console = Console(stderr=True, quiet=quiet)
        self._closing = closing
        self._live = Live(console=self.console, auto_refresh=False) if self.console.is_terminal else None
        self._looked = 0.0
        self._began = self._printed = time.monotonic()
        self._told_the_end = False

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
        over = all(job.state in OVER for job in jobs)
        if not over and now - self._looked < REFRESH:
            return
        self._looked = now
        for job in jobs:
            if job.state in (RUNNING, ELSEWHERE, STOPPED):
                job.look()
        if self._live is not None:
            self._live.update(Group(self._table(jobs), Text(self._summary(jobs))), refresh=True)
        elif (over and self._closing and not self._told_the_end) or now - self._printed >= PLAIN_SECONDS:
            self._printed, self._told_the_end = now, over
            for job in jobs:
                if job.state == RUNNING:
                    self.say(f"{job.name}: step {job.step:,} of {job.total:,}, {job.speed:.0f} steps/s")
            self.say(self._summary(jobs))

    def _summary(self, jobs: Sequence[Job]) -> str:
        """With the time that is left, judged by the runs that have ended in this sitting."""
        ended = sum(job.state in (DONE, FAILED) and not job.found for job in jobs)
        left = sum(job.state in (RUNNING, WAITING) for job in jobs)
        if ended < ENOUGH or not left:
            return summary(jobs)
        return f"{summary(jobs)}; about {spelled((time.monotonic() - self._began) / ended * left)} left"

    def _table(self, jobs: Sequence[Job]) -> Table:
        table = Table(expand=False)
        table.add_column("run", overflow="fold")
        table.add_column("state")
        for name in ("step", "", "steps/s", "return"):
            table.add_column(name, justify="right", no_wrap=True)
        room = max(3, (self.console.height - 8) // (1 if self.console.width >= WIDE else 2))
        shown = sorted(jobs, key=lambda job: ORDER.index(job.state))
        if len(jobs) > room:  # the line below counts the others; hundreds that wait have nothing to tell
            shown = [job for job in shown if job.state in AT_WORK][:room]
        for job in shown:
            table.add_row(
                Text(job.name),
                Text(job.state + (f" (retry {job.retries})" if job.retries else ""), style=STYLES[job.state]),
                f"{job.step:,}/{job.total:,}",
                f"{job.step / job.total:.0%}",
                f"{job.speed:.0f}" if job.state == RUNNING else "",
                "" if job.score is None else f"{job.score:.1f}",
            )
        hidden = sum(job.state in AT_WORK for job in jobs) - len(shown)
        if hidden > 0:
            table.caption = f"and {hidden:,} more at work or failed"
        return table


def summary(jobs: Sequence[Job]) -> str:
    """How many are in which state."""
    states = Counter(job.state for job in jobs)
    return f"{len(jobs):,} runs: " + ", ".join(
        f"{states[state]:,} {state}" for state in (DONE, *ORDER[:-1]) if states[state]
    )

"""Progress for people: a live line in a terminal, plain lines elsewhere."""

import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

PLAIN_SECONDS = 30  # between two plain lines
SETTLING = 20  # steps at the start of learning that do not count: kernels are loaded, or compiled, in them
UNKNOWN = "…"
WIDE, NARROW = 100, 80  # columns of a terminal; below, words and then the returns are left out, and no number is cut


def spelled(seconds: float) -> str:
    """For people: ``3 h 20 min``."""
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:.0f} s"
    if minutes < 90:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} days {hours % 24} h"


def _is_notebook() -> bool:
    """Whether this process is a notebook's kernel; that ipykernel was imported does not make it one."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")


class ProgressDisplay:
    """Step, steps per second, time left; the return of the newest evaluation, and of the best.

    A random warm-up is ten times as fast as learning, so it tells nothing of the time that is left.
    """

    def __init__(
        self,
        total: int,
        start: int,
        quiet: bool,
        newest: float | None = None,
        best: float | None = None,
        learning_starts: int = 0,
    ) -> None:
        """A run that is resumed brings the newest and the best return of its evaluations so far."""
        # A notebook shows stderr as errors, and each of rich's lines as a block of its own: there plain lines will do.
        self.notebook = _is_notebook()
        self.console = Console(stderr=not self.notebook, force_jupyter=False, quiet=quiet)
        self.total, self.start, self.step = total, start, start
        self.newest, self.best = newest, best
        self.settled = max(start, learning_starts) + SETTLING  # from this step on it goes at the speed of learning
        self._counted_from, self._since = start, time.monotonic()
        self._printed = self._since
        self._live: Progress | None = None
        if self.console.is_terminal and not self.console.is_dumb_terminal and not quiet:
            unit = " steps" if self.console.width >= WIDE else ""
            self._live = Progress(
                BarColumn(bar_width=None),
                TextColumn("{task.completed:,.0f}/{task.total:,.0f}" + unit),
                TextColumn("{task.fields[speed]}/s"),
                TextColumn("{task.fields[left]} left"),
                *([TextColumn("{task.fields[returns]}")] if self.console.width >= NARROW else []),
                console=self.console,
                refresh_per_second=4,
                expand=True,
            )
            self._task = self._live.add_task(
                "", total=total, completed=start, speed=UNKNOWN, left=UNKNOWN, returns=self._returns()
            )

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()

    def begun(self, title: str, directory: Path) -> None:
        """Not in a notebook, whose cell says it."""
        if self.start:
            self.say(f"{title}: resuming from step {self.start:,} of {self.total:,}")
        elif not self.notebook:
            self.say(f"{title}: {self.total:,} steps, in {directory}")

    @property
    def speed(self) -> float:
        """Steps per second: of the warm-up in it, of learning afterwards."""
        return (self.step - self._counted_from) / max(time.monotonic() - self._since, 1e-9)

    def _speed(self) -> str:
        return f"{self.speed:.0f}" if self.speed >= 10 else f"{self.speed:.1f}"

    @property
    def left(self) -> str:
        if self.step < self.settled + SETTLING or self.speed == 0:
            return UNKNOWN
        return spelled((self.total - self.step) / self.speed)

    def advance(self, step: int) -> None:
        before, self.step = self.step, step
        if before < self.settled <= step:
            self._counted_from, self._since = step, time.monotonic()
        if before // 10 == step // 10:
            return
        if self._live is not None:
            self._live.update(self._task, completed=step, speed=self._speed(), left=self.left)
        elif time.monotonic() - self._printed > PLAIN_SECONDS:
            self._printed = time.monotonic()
            self.say(
                f"step {step:,}/{self.total:,}, {self._speed()} steps/s, {self.left} left"
                + (f", newest {self._returns()}" if self.newest is not None else "")
            )

    def evaluating(self) -> None:
        """Which may take long, where episodes have no end of their own."""
        if self._live is not None:
            self._live.update(self._task, completed=self.step, returns="evaluating")

    def evaluated(self, step: int, mean: float, std: float, firing: str = "") -> None:
        self.newest, self.best = mean, mean if self.best is None else max(self.best, mean)
        if self._live is not None:
            self._live.update(self._task, completed=step, returns=self._returns())
        told = f"; firing: {firing}" if firing else ""
        self.say(f"step {step:,}: return {mean:.1f} ± {std:.1f}, best {self.best:.1f}{told}")

    def warn(self, text: str) -> None:
        """Also in a quiet run: it is not about progress."""
        with_bar = self._live is not None
        console = self.console if with_bar else Console(stderr=True)
        console.print(f"warning: {text}", highlight=False, soft_wrap=True, markup=False)

    def _returns(self) -> str:
        if self.newest is None or self.best is None:
            return "not evaluated yet"
        return f"return {self.newest:.1f}, best {self.best:.1f}"

    def say(self, text: str) -> None:
        self.console.print(text, highlight=False, soft_wrap=True, markup=False)  # one sentence, one line

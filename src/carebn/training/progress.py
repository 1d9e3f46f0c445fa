"""Progress for people: a live line in a terminal, plain lines elsewhere."""

import sys
import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

PLAIN_SECONDS = 30  # between two plain lines


class ProgressDisplay:
    """Step, steps per second, time left; the return of the newest evaluation, and of the best."""

    def __init__(
        self, total: int, start: int, quiet: bool, newest: float | None = None, best: float | None = None
    ) -> None:
        """A run that is resumed brings the newest and the best return of its evaluations so far."""
        # A notebook shows stderr as errors, and each of rich's lines as a block of its own: there plain lines will do.
        notebook = "ipykernel" in sys.modules
        self.console = Console(stderr=not notebook, force_jupyter=False, quiet=quiet)
        self.total, self.start, self.step = total, start, start
        self.newest, self.best = newest, best
        self._began = self._printed = time.monotonic()
        self._live: Progress | None = None
        if self.console.is_terminal and not quiet:
            self._live = Progress(
                BarColumn(bar_width=None),
                TextColumn("{task.completed:,.0f}/{task.total:,.0f} steps"),
                TextColumn("{task.fields[speed]:.0f}/s"),
                TimeRemainingColumn(compact=True),
                TextColumn("{task.fields[returns]}"),
                console=self.console,
                refresh_per_second=4,
                expand=True,
            )
            self._task = self._live.add_task("", total=total, completed=start, speed=0.0, returns=self._returns())

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()

    def resumed(self) -> None:
        self.say(f"resuming from step {self.start:,}")

    @property
    def speed(self) -> float:
        return (self.step - self.start) / max(time.monotonic() - self._began, 1e-9)

    def advance(self, step: int) -> None:
        self.step = step
        if step % 10:
            return
        if self._live is not None:
            self._live.update(self._task, completed=step, speed=self.speed)
        elif time.monotonic() - self._printed > PLAIN_SECONDS:
            self._printed = time.monotonic()
            left = (self.total - step) / max(self.speed, 1e-9)
            self.say(
                f"step {step:,}/{self.total:,}, {self.speed:.0f} steps/s, {left / 60:.0f} min left"
                + (f", {self._returns()}" if self.newest is not None else "")
            )

    def evaluating(self) -> None:
        """Which may take long, where episodes have no end of their own."""
        if self._live is not None:
            self._live.update(self._task, completed=self.step, returns="evaluating")

    def evaluated(self, step: int, mean: float, std: float) -> None:
        self.newest, self.best = mean, mean if self.best is None else max(self.best, mean)
        if self._live is not None:
            self._live.update(self._task, completed=step, returns=self._returns())
        self.say(f"step {step:,}: return {mean:.1f} ± {std:.1f}, best {self.best:.1f}")

    def warn(self, text: str) -> None:
        """Also in a quiet run: it is not about progress."""
        with_bar = self._live is not None
        console = self.console if with_bar else Console(stderr=True)
        console.print(f"warning: {text}", highlight=False, soft_wrap=True, markup=False)

    def _returns(self) -> str:
        if self.newest is None or self.best is None:
            return "not evaluated yet"
        return f"newest return {self.newest:.1f}, best {self.best:.1f}"

    def say(self, text: str) -> None:
        self.console.print(text, highlight=False, soft_wrap=True)  # one sentence, one line

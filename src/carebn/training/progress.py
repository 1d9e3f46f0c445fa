"""Progress for people: a live line in a terminal, plain lines elsewhere."""

import sys
import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

PLAIN_SECONDS = 30  # between two plain lines


class ProgressDisplay:
    """Step, steps per second, time left, last and best return."""

    def __init__(self, total: int, start: int, quiet: bool) -> None:
        # A notebook shows stderr as errors, and each of rich's lines as a block of its own: there plain lines will do.
        notebook = "ipykernel" in sys.modules
        self.console = Console(stderr=not notebook, force_jupyter=False, quiet=quiet)
        self.total, self.start, self.step = total, start, start
        self.last: float | None = None
        self.best: float | None = None
        self._began = self._printed = time.monotonic()
        self._live: Progress | None = None
        if self.console.is_terminal and not quiet:
            self._live = Progress(
                BarColumn(),
                TaskProgressColumn(),
                TextColumn("{task.completed:,.0f}/{task.total:,.0f} steps"),
                TextColumn("{task.fields[speed]:.0f}/s"),
                TimeRemainingColumn(),
                TextColumn("return {task.fields[last]} best {task.fields[best]}"),
                console=self.console,
                refresh_per_second=4,
            )
            self._task = self._live.add_task("", total=total, completed=start, speed=0.0, last="–", best="–")

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
            last, best = (("–" if x is None else f"{x:.1f}") for x in (self.last, self.best))
            self._live.update(self._task, completed=step, speed=self.speed, last=last, best=best)
        elif time.monotonic() - self._printed > PLAIN_SECONDS:
            self._printed = time.monotonic()
            left = (self.total - step) / max(self.speed, 1e-9)
            self.say(
                f"step {step:,}/{self.total:,}, {self.speed:.0f} steps/s, {left / 60:.0f} min left"
                + ("" if self.last is None else f", return {self.last:.1f}, best {self.best:.1f}")
            )

    def evaluated(self, step: int, mean: float, std: float) -> None:
        self.last, self.best = mean, mean if self.best is None else max(self.best, mean)
        self.say(f"step {step:,}: return {mean:.1f} ± {std:.1f}, best {self.best:.1f}")

    def warn(self, text: str) -> None:
        """Also in a quiet run: it is not about progress."""
        with_bar = self._live is not None
        console = self.console if with_bar else Console(stderr=True)
        console.print(f"warning: {text}", highlight=False, soft_wrap=True, markup=False)

    def say(self, text: str) -> None:
        self.console.print(text, highlight=False, soft_wrap=True)  # one sentence, one line

"""Progress of something that is counted: a live line in a terminal, a plain line now and then elsewhere."""

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

PLAIN_SECONDS = 10  # between two plain lines


class Counter:
    """``total``: how many at most; None if nobody knows."""

    def __init__(self, what: str, total: int | None, quiet: bool = False) -> None:
        self.what, self.total, self.done = what, total, 0
        self.console = Console(stderr=True, quiet=quiet)
        self._live: Progress | None = None
        if self.console.is_terminal and not self.console.is_dumb_terminal and not quiet:
            self._live = Progress(
                BarColumn(),
                TextColumn("{task.completed:,.0f} " + what),
                TimeElapsedColumn(),
                console=self.console,
                refresh_per_second=4,
                transient=True,
            )
            self._task = self._live.add_task("", total=total)

    def __enter__(self) -> Self:
        self._began = self._printed = time.monotonic()
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()

    def advance(self, number: int = 1) -> None:
        self.done += number
        if self._live is not None:
            self._live.update(self._task, completed=self.done)
        elif time.monotonic() - self._printed > PLAIN_SECONDS:
            self._printed = time.monotonic()
            speed = self.done / (self._printed - self._began)
            of = f" of at most {self.total:,}" if self.total is not None else ""
            self.console.print(f"{self.done:,}{of} {self.what}, {speed:.0f}/s", highlight=False)

"""Ctrl-C and SIGTERM (Slurm, Docker): heard at once, obeyed as soon as nothing is lost; a second one at once.

A handler runs between two instructions of whatever is at work, so it speaks past Python's own streams.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

from carebn import compiling

STOPPED = "carebn: stopped"
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stop(KeyboardInterrupt):
    """Whatever cleans up after Ctrl-C does so after SIGTERM."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number, self.code = number, 128 + number  # the code as a shell reports it


def tell(sentence: str) -> None:
    """In a terminal over what stands on the line: ^C, and perhaps a progress bar, which is drawn again below."""
    erase = "\r\x1b[2K" if _draws() else ""
    os.write(2, f"{erase}{sentence}\n".encode())


def _draws() -> bool:
    """Whether standard error is a terminal that knows more than letters."""
    return os.isatty(2) and os.environ.get("TERM", "dumb") != "dumb"


def leave(number: int, sentence: str) -> NoReturn:
    """Without another word of any library's, and with the cursor that a progress bar may have hidden."""
    tell(sentence + ("\x1b[?25h" if _draws() else ""))
    os._exit(128 + number)


class StopRequest:
    """What signals mean to a run in training. The first is acknowledged and remembered in ``asked``; the run saves
    itself after its step. Work that can be given up ends there and then, by ``Stop``. The second ends the process."""

    def __init__(self, kept: Callable[[], str]) -> None:
        """``kept``: a sentence about what is left of the run if it does not save itself."""
        self.asked: int | None = None
        self._kept = kept
        self._can_be_given_up = False

    @contextmanager
    def heard(self) -> Iterator[None]:
        """Inside, signals come here; only the main thread can have that."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._hear) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            leave(number, f"{STOPPED} without saving; {self._kept()}")
        self.asked = number
        if compiling.now():
            tell("stopping; a step that is compiling cannot be saved")
            compiling.interrupt(Stop(number), frame)
            return
        tell("stopping after this step, saving; again to stop without saving")
        if self._can_be_given_up:
            compiling.interrupt(Stop(number), frame)

    @contextmanager
    def can_give_up(self) -> Iterator[None]:
        """Around work that is repeated as a whole if it is stopped."""
        self.obey()
        self._can_be_given_up = True
        try:
            yield
        finally:
            self._can_be_given_up = False

    def obey(self) -> None:
        """For between two steps of such work, in case somebody else has caught what the handler raised."""
        if self.asked:
            raise Stop(self.asked)


@contextmanager
def obeyed_at_once() -> Iterator[None]:
    """For work with nothing to save: the first signal raises ``Stop``, and the second ends the process.

    A signal that somebody had ignored (nohup) stays so.
    """
    asked = False

    def hear(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            leave(number, STOPPED)
        asked = True
        compiling.interrupt(Stop(number), frame)

    with handled_by(hear):
        yield


@contextmanager
def handled_by(handler: Any) -> Iterator[None]:
    """Signals go to ``handler``, unless somebody had them ignored."""
    usual: dict[int, Any] = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    ours = [number for number, before in usual.items() if signal.getsignal(number) is before]
    for number in ours:
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, usual[number])

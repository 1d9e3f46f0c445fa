"""Numba at work on the kernels: said once to whoever waits for it, and asked by whoever may interrupt it.

It takes up to a minute when kernels are first used; afterwards they come from the disk.
"""

from collections.abc import Callable
from importlib import import_module
from types import FrameType
from typing import Any

_held = 0  # how many times over numba's compiler is locked; also while a kernel is loaded from disk
_compiles = False  # rather than loads
_listening = False
_waiting: BaseException | None = None  # to be raised


def now() -> bool:
    return _held > 0 and _compiles


def interrupt(error: BaseException, frame: FrameType | None) -> None:
    """Raises ``error``, for a signal handler that was called at ``frame``.

    What is raised while LLVM calls back into Python is printed and lost: then it waits for numba's next event, which
    comes at the latest when the kernel is compiled.
    """
    global _waiting
    if _listening and _called_back(frame):
        _waiting = error
    else:
        raise error


def _called_back(frame: FrameType | None) -> bool:
    while frame is not None:
        code = frame.f_code
        if code.co_name.startswith("_raw_") and "llvmlite" in code.co_filename:
            return True
        frame = frame.f_back
    return False


def _raise_what_waits() -> None:
    global _waiting
    if _waiting is not None:
        error, _waiting = _waiting, None
        raise error


def listen(announce: Callable[[], None]) -> None:
    """From here on ``now`` knows; ``announce`` is called when numba first compiles anything."""
    global _listening
    if _listening:
        return
    _listening = True
    event: Any = import_module("numba.core.event")  # heavy, and without types

    class Lock(event.Listener):  # type: ignore[misc]
        def on_start(self, _: Any) -> None:
            global _held
            _held += 1

        def on_end(self, _: Any) -> None:
            global _held, _compiles
            _held -= 1
            _compiles = _compiles and _held > 0
            _raise_what_waits()

    class Pass(event.Listener):  # type: ignore[misc]
        announced = False

        def on_start(self, _: Any) -> None:
            global _compiles
            _compiles = True
            if not self.announced:
                self.announced = True
                announce()
            _raise_what_waits()

        def on_end(self, _: Any) -> None: ...

    event.register("numba:compiler_lock", Lock())
    event.register("numba:run_pass", Pass())

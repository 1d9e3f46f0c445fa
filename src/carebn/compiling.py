"""Numba at work on the kernels: said once to whoever waits for it, and asked by whoever may interrupt it.

It takes up to a minute when kernels are first used; afterwards they come from the disk.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any

_held = 0  # how many times over numba's compiler is locked; also while a kernel is loaded from disk
_compiles = False  # rather than loads
_listening = False


def now() -> bool:
    return _held > 0 and _compiles


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

    class Pass(event.Listener):  # type: ignore[misc]
        announced = False

        def on_start(self, _: Any) -> None:
            global _compiles
            _compiles = True
            if not self.announced:
                self.announced = True
                announce()

        def on_end(self, _: Any) -> None: ...

    event.register("numba:compiler_lock", Lock())
    event.register("numba:run_pass", Pass())

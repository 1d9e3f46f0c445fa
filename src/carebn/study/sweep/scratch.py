"""A sweep's own directory beside the runs: nodes that see it see the runs, and what a killed sweep left is cleared."""

import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from filelock import FileLock, Timeout

PREFIX, LOCK = ".sweep-", "lock"


class Scratch:
    """Locked as long as the sweep lives; the operating system takes the lock back, however it dies."""

    def __init__(self, runs: Path, clear: Callable[[Path], None] = lambda left: None) -> None:
        """``clear`` is called with the directory of each sweep that died, before it is removed."""
        runs.mkdir(parents=True, exist_ok=True)
        for left in runs.absolute().glob(f"{PREFIX}*"):
            _clear_if_left(left, clear)
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=runs.absolute()))
        self._lock = FileLock(self.path / LOCK)
        self._lock.acquire()

    def remove(self) -> None:
        self._lock.release()
        shutil.rmtree(self.path, ignore_errors=True)


def _clear_if_left(left: Path, clear: Callable[[Path], None]) -> None:
    if not (left / LOCK).exists():
        return  # another sweep is just making it; or it is nothing of ours
    with suppress(Timeout, OSError), FileLock(left / LOCK, timeout=0):
        clear(left)
        shutil.rmtree(left, ignore_errors=True)

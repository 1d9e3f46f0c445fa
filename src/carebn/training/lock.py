"""One process per run directory: a lock that the operating system takes back when its holder dies, however it dies."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

LOCK_FILE = ".lock"  # empty; where it stays, as on Linux, it means nothing by itself
PATIENCE, PAUSE = 0.15, 0.05  # seconds; somebody who only looks (``is_locked``) holds it for a moment


class BusyRun(ValueError):  # noqa: N818  # nothing is wrong, only taken
    """Another process is training in this directory."""


@contextmanager
def lock(directory: Path) -> Iterator[None]:
    held = FileLock(directory / LOCK_FILE)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        held.acquire(timeout=PATIENCE, poll_interval=PAUSE)
    except Timeout:
        busy = f"another process is training in {directory}; wait for it, or choose another --run-dir"
        raise BusyRun(busy) from None
    except OSError as error:
        raise ValueError(f"cannot write to {directory} ({error.strerror}); choose another --run-dir") from error
    try:
        yield
    finally:
        held.release()


def is_locked(directory: Path) -> bool:
    """Whether somebody is training there right now."""
    if not (directory / LOCK_FILE).exists():
        return False
    try:
        with lock(directory):
            return False
    except BusyRun:
        return True

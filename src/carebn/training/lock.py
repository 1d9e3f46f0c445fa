"""One process per run directory: a lock that the operating system takes back when its holder dies, however it dies."""

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LOCK_FILE = ".lock"  # empty, and stays: removing it would let two processes lock two files of the same name
ATTEMPTS, PAUSE = 4, 0.05  # somebody who only looks (``is_locked``) holds it for a moment


class BusyRun(ValueError):  # noqa: N818  # nothing is wrong, only taken
    """Another process is training in this directory."""


@contextmanager
def lock(directory: Path) -> Iterator[None]:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        file = open(directory / LOCK_FILE, "ab")  # noqa: SIM115  # closed below
    except OSError as error:
        raise ValueError(f"cannot write to {directory} ({error.strerror}); choose another --run-dir") from error
    with file:
        for _ in range(ATTEMPTS):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(PAUSE)
        else:
            raise BusyRun(f"another process is training in {directory}; wait for it, or choose another --run-dir")
        yield


def is_locked(directory: Path) -> bool:
    """Whether somebody is training there right now."""
    if not (directory / LOCK_FILE).exists():
        return False
    try:
        with lock(directory):
            return False
    except BusyRun:
        return True

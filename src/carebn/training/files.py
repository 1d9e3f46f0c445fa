"""Files that are either whole or absent: written beside, flushed to disk, renamed."""

import errno
import os
from contextlib import suppress
from pathlib import Path

from carebn.checksums import as_json as as_json
from carebn.checksums import sha256 as sha256
from carebn.reading import regular_file


def flush_directory(path: Path) -> None:
    """A rename is safe only when the directory that records it has reached the disk.

    Windows opens no directories, and looks after their records itself.
    """
    if not hasattr(os, "O_DIRECTORY"):
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_file(path: Path, data: bytes) -> None:
    """Plain write and flush, for files inside a directory that is itself still hidden."""
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def replaceable(path: Path) -> Path:
    """The path, if there is nothing yet or a file: a rename would put one in place of a pipe or a device too."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "it is a directory", str(path))
    if path.exists():
        regular_file(path)
    return path


def write_atomically(path: Path, data: bytes) -> None:
    hidden = replaceable(path).with_name(f".{path.name}.part")
    try:
        write_file(hidden, data)
        os.replace(hidden, path)
    except OSError:
        with suppress(OSError):
            hidden.unlink()
        raise
    flush_directory(path.parent)

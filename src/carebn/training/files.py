"""Files that are either whole or absent: written beside, flushed to disk, renamed."""

import os
from pathlib import Path

from carebn.checksums import as_json as as_json
from carebn.checksums import sha256 as sha256


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


def write_atomically(path: Path, data: bytes) -> None:
    hidden = path.with_name(f".{path.name}.part")
    write_file(hidden, data)
    os.replace(hidden, path)
    flush_directory(path.parent)

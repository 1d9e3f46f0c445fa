"""Files that are either whole or absent: written beside, flushed to disk, renamed."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def as_json(data: Any) -> bytes:
    return (json.dumps(data, indent=1, sort_keys=True) + "\n").encode()


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

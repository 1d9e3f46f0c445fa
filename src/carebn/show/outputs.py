"""Where results go: found out before the work, not after it."""

import os
from pathlib import Path


def writable_directory(path: Path) -> Path:
    """The directory, made if need be; one sentence if nothing can be written there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(f"cannot make the directory {path}: {error.strerror}") from None
    if not os.access(path, os.W_OK | os.X_OK):
        raise OSError(f"cannot write to {path}: permission denied; choose another --out")
    return path


def writable_file(path: Path) -> Path:
    """The path of a file that can be written; its directory is made if need be."""
    if path.is_dir():
        raise OSError(f"{path} is a directory; --out needs the name of a file")
    writable_directory(path.parent)
    return path

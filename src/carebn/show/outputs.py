"""Where results go: found out before the work, not after it."""

from pathlib import Path
from tempfile import TemporaryFile

from carebn.training.files import replaceable


def writable_directory(path: Path, option: str = "--out") -> Path:
    """The directory, made if need be; one sentence if nothing can be written there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(f"cannot make the directory {path}: {error.strerror}; choose another {option}") from None
    try:
        with TemporaryFile(dir=path):  # permissions do not tell all: there are file systems that take no file at all
            pass
    except OSError as error:
        raise OSError(f"no file can be made in {path} ({error.strerror}); choose another {option}") from None
    return path


def writable_file(path: Path) -> Path:
    """The path of a file that can be written; its directory is made if need be."""
    try:
        replaceable(path)
    except OSError as error:
        raise OSError(f"{path} cannot be written ({error.strerror}); --out needs the name of a file") from error
    writable_directory(path.parent)
    return path

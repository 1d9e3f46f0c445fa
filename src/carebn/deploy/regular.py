"""Only regular files are opened: a named pipe would wait for ever, a device would be read without end."""

import stat
from pathlib import Path

from carebn.reading import KINDS


def check_regular(path: Path) -> None:
    """FileNotFoundError if there is no such file, ValueError if it is something else than a file."""
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(f"there is no file {path}") from None
    if not stat.S_ISREG(mode):
        raise ValueError(f"{path} is {KINDS.get(stat.S_IFMT(mode), 'something else')}, and a regular file is expected")

"""A numpy archive as a policy: opened without executing anything, and what is wrong with it in one sentence."""

import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from carebn.deploy.regular import check_regular
from carebn.reading import parse_object

# what a damaged or made-up archive can raise
UNREADABLE = (
    ValueError, LookupError, TypeError, AttributeError, EOFError, ArithmeticError, MemoryError, RuntimeError,
    zipfile.BadZipFile, zlib.error,
)  # fmt: skip
Made = TypeVar("Made")


def opened(path: Path | str, build: Callable[[dict[str, Any], dict[str, NDArray[Any]]], Made]) -> Made:
    """What ``build`` makes of the archive's description and arrays."""
    path = Path(path)
    if path.is_dir():
        raise ValueError(f"{path} is a directory; export a run first: carebn export {path} --to numpy --out FILE")
    check_regular(path)
    try:
        if not zipfile.is_zipfile(path):  # numpy would speak of pickles
            raise ValueError("only what carebn export --to numpy wrote can be loaded")
        with np.load(path, allow_pickle=False) as file:
            if "description" not in file:
                raise ValueError("it is not a policy of carebn")
            description = parse_object(str(file["description"]))
            arrays = {name: file[name] for name in file.files if name != "description"}
        return build(description, arrays)
    except UNREADABLE as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else error
        raise ValueError(f"{path} cannot be read as a policy: {reason}") from error

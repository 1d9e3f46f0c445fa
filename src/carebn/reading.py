"""Files are read whole and only if they are files; JSON has to be of the shape that was expected."""

import errno
import json
import os
import stat
from pathlib import Path
from typing import Any

KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
    stat.S_IFDIR: "a directory",
}
MOST_JSON = 256 * 2**20  # bytes of one document
LONGEST_NUMBER = 60  # digits; no whole number of ours has more than forty


class NotAFile(OSError):  # noqa: N818  # it is a finding first
    """A pipe would keep its reader waiting, and a device may have no end."""


def regular_file(path: Path | str) -> Path:
    """The path, if it is that of a regular file; to be asked before a library opens it."""
    kind = stat.S_IFMT(os.stat(path).st_mode)
    if kind != stat.S_IFREG:
        raise NotAFile(errno.EINVAL, f"it is {KINDS.get(kind, 'something else')}, not a file", str(path))
    return Path(path)


def read_file(path: Path | str) -> bytes:
    return regular_file(path).read_bytes()


def parse_json(text: bytes | str) -> Any:
    """Any JSON; a ValueError says what is wrong with it."""
    try:
        return _DECODER.decode(text if isinstance(text, str) else text.decode())
    except RecursionError:
        raise ValueError("it is not readable as JSON (nested too deeply)") from None
    except UnicodeDecodeError:
        raise ValueError("it is not readable as JSON (no text in UTF-8)") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not readable as JSON ({error})") from None


def _whole(digits: str) -> int:
    if len(digits) > LONGEST_NUMBER:
        raise ValueError(f"it holds a number of {len(digits):,} digits")
    return int(digits)


_DECODER = json.JSONDecoder(parse_int=_whole)


def parse_object(text: bytes | str) -> dict[str, Any]:
    data = parse_json(text)
    if not isinstance(data, dict):
        raise ValueError(f"it holds {_kind(data)} where an object with names was expected")
    return data


def read_object(path: Path | str) -> dict[str, Any]:
    """The object of a JSON file. An OSError says why there is no such file, a ValueError what it holds instead."""
    if regular_file(path).stat().st_size > MOST_JSON:
        raise ValueError(f"it has more than {MOST_JSON // 2**20} MiB")
    return parse_object(read_file(path))


def parse_rows(data: bytes) -> list[dict[str, Any]]:
    """An object a line; a last line without an end is one that is still being written."""
    rows = []
    for number, line in enumerate(data.split(b"\n")[:-1], 1):
        try:
            rows.append(parse_object(line))
        except ValueError as error:
            raise ValueError(f"line {number:,} cannot be read: {error}") from None
    return rows


def _kind(data: Any) -> str:
    return {list: "a list", str: "a text", bool: "a truth value", type(None): "null"}.get(type(data), "a number")

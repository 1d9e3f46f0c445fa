"""Which bytes a directory stands for: ``checksums.json``, and JSON files that carry a checksum of their own.

``checksums.json`` is written at every checkpoint. It vouches for whole files, for logs that only grow up to the length
they had, and for the policy: that file vouches only for itself, so an older one of the same run, or the best, would be
taken for the last. While the policy is being replaced, the one before is right as well. What an earlier version made
has none of this and is taken as it is. Needs the standard library alone.
"""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from carebn.reading import parse_json, read_file

NAME = "checksums.json"
SEAL = "sha256"


class Mismatch(ValueError):  # noqa: N818  # it is a finding first
    """A file is not what was written; the message names it."""


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def as_json(data: Any) -> bytes:
    return (json.dumps(data, indent=1, sort_keys=True) + "\n").encode()


def read_json(path: Path) -> Any:
    """What the file holds; a ValueError of one sentence if that is no JSON. OSErrors are left to the caller."""
    try:
        return parse_json(read_file(path))
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {error}") from error


def sealed(data: dict[str, Any]) -> bytes:
    """As JSON, with a checksum of it inside."""
    return as_json(data | {SEAL: sha256(as_json(data))})


def read_sealed(path: Path, *, always: bool = False) -> dict[str, Any]:
    """What was sealed; also what an earlier version left without a seal, unless all have one ``always``."""
    data = read_json(path)
    if not isinstance(data, dict):
        raise Mismatch(f"{path} is damaged: it does not hold what was written")
    if not is_sealed(data, or_never_was=not always):
        raise Mismatch(f"{path} is damaged: it does not match its checksum")
    return without_seal(data)


def is_sealed(data: dict[str, Any], or_never_was: bool = False) -> bool:
    """Whether the seal inside is that of the rest."""
    return data[SEAL] == sha256(as_json(without_seal(data))) if SEAL in data else or_never_was


def without_seal(data: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in data.items() if name != SEAL}


def vouching(
    directory: Path, whole: Iterable[str], logs: dict[str, tuple[int, str]], policies: Iterable[str] = ()
) -> bytes:
    """``checksums.json`` for files as they are on disk, for logs by length and checksum, and for the policy by the
    checksums it may have."""
    files = {name: sha256(read_file(directory / name)) for name in whole}
    grown = {name: {"bytes": length, SEAL: digest} for name, (length, digest) in logs.items()}
    known = sorted(set(policies))
    return sealed({"files": files, "logs": grown} | ({"policy": known} if known else {}))


class Vouched:
    """What ``checksums.json`` says of a directory; one without it (an earlier version's) vouches for nothing."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._files: dict[str, str] = {}
        self._logs: dict[str, tuple[int, str]] = {}
        self.policies: list[str] = []  # the checksums that the policy may have; none: nothing is known of it
        path = directory / NAME
        if not path.exists():
            return
        data = read_sealed(path)
        try:
            self._files = {str(name): str(digest) for name, digest in data["files"].items()}
            self._logs = {str(name): (int(log["bytes"]), str(log[SEAL])) for name, log in data["logs"].items()}
            self.policies = [str(digest) for digest in data.get("policy", [])]
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise Mismatch(f"{path} is damaged: it does not hold checksums") from error

    def __bool__(self) -> bool:
        return bool(self._files or self._logs)

    def check(self, *names: str) -> None:
        """Raises if one of these files is vouched for and is not what it was."""
        for name in names:
            if name in self._files and sha256(self._bytes(name)) != self._files[name]:
                raise Mismatch(self._wrong(name, "does not match its checksum"))

    def log(self, name: str) -> bytes:
        """The part of a log that is vouched for; all of it if nothing is known; nothing if there is no such file."""
        if name not in self._logs:
            path = self.directory / name
            return read_file(path) if path.exists() else b""
        length, digest = self._logs[name]
        data = self._bytes(name)
        if len(data) < length:
            raise Mismatch(self._wrong(name, "is shorter than it was"))
        if sha256(data[:length]) != digest:
            raise Mismatch(self._wrong(name, "does not match its checksum"))
        return data[:length]

    def check_policy(self, name: str, remedy: str) -> None:
        """Raises if another policy is there than the one that was saved last; a missing one is left to the reader."""
        path = self.directory / name
        if self.policies and path.is_file() and sha256(read_file(path)) not in self.policies:
            raise Mismatch(f"{path} is not the policy that was saved here last, by {NAME} beside it; {remedy}")

    def logs(self) -> list[str]:
        return sorted(self._logs)

    def _bytes(self, name: str) -> bytes:
        try:
            return read_file(self.directory / name)
        except FileNotFoundError:
            raise Mismatch(self._wrong(name, "is missing")) from None

    def _wrong(self, name: str, what: str) -> str:
        return (
            f"{self.directory / name} {what}: put it back as it was, or remove {NAME} beside it to take all files as "
            f"they are now"
        )

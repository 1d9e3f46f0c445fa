"""What a file can be instead of itself."""

import hashlib
import json
import os
import random
import shutil
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from carebn.checksums import sealed, without_seal

DEPTH = 100_000
ALIEN_JSON = {
    "array": "[]",
    "rows": '[[1, 2], {"step": 3}]',
    "number": "17",
    "word": '"config"',
    "null": "null",
    "deep": "[" * DEPTH + "]" * DEPTH,
    "deep object": '{"a":' * DEPTH + "1" + "}" * DEPTH,
    "huge integer": '{"step": ' + "9" * 5000 + "}",
    "large integer": '{"step": ' + "9" * 400 + "}",
    "NaN": '{"step": NaN, "seed": -Infinity}',
    "twice": '{"step": 1, "step": {"step": 2}}',
    "other": '{"name": "package", "version": "1.0.0", "dependencies": {}}',
    "cut": '{"step": 1, "ev',
    "words for numbers": '{"step": "one", "eval/mean_return": "two", "eval/std_return": [3]}',
}
NASTY_VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 10**30, 10**400, 1e39, float("nan"), float("inf"), "", "x" * 5000, "\ud800", [], [[]], [0], {},
    {"a": {"b": []}}, "../../..", "/dev/zero", [10**9, 10**9], [-1], 2**31, 2**63,
)  # fmt: skip


def picture() -> bytes:
    def part(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    head = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + part(b"IHDR", head) + part(b"IDAT", zlib.compress(bytes(4))) + part(b"IEND", b"")


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    elif path.exists() or path.is_symlink():
        path.unlink()


def make_node(path: Path, minor: int) -> None:
    """A device as in /dev, with a name that may be overwritten; who may not make one gets a link to it."""
    try:
        os.mknod(path, 0o600 | 0o020000, os.makedev(1, minor))
    except OSError:
        path.symlink_to({3: "/dev/null", 5: "/dev/zero", 7: "/dev/full"}[minor])


def _rewritten(change: Callable[[dict[str, Any], random.Random], None]) -> Callable[[bytes, random.Random], bytes]:
    """One object of a JSON file, or of a row of it, is changed."""

    def rewrite(before: bytes, rng: random.Random) -> bytes:
        whole = before.lstrip().startswith(b"{\n")
        texts = [before] if whole else before.splitlines()
        if not texts:
            return b"{}\n"
        place = rng.randrange(len(texts))
        try:
            data = json.loads(texts[place])
            change(data, rng)
            texts[place] = json.dumps(data).encode()
        except (ValueError, TypeError, AttributeError, IndexError):
            return before
        return b"\n".join(texts) + b"\n"

    return rewrite


def _set(data: dict[str, Any], rng: random.Random) -> None:
    data[rng.choice(sorted(data))] = rng.choice(NASTY_VALUES)


def _drop(data: dict[str, Any], rng: random.Random) -> None:
    del data[rng.choice(sorted(data))]


def _add(data: dict[str, Any], rng: random.Random) -> None:
    data["nobody_knows_this"] = rng.choice(NASTY_VALUES)


def _stretched(before: bytes, rng: random.Random) -> bytes:
    """A header that promises more than there is, as of safetensors."""
    return struct.pack("<Q", rng.choice([2**63, 2**40, 8, 0])) + before[8:]


def _holding(text: str, after: bool) -> Callable[[bytes, random.Random], bytes]:
    return lambda before, rng: (before if after else b"") + f"{text}\n".encode()


CONTENTS: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "empty": lambda before, rng: b"",
    "half": lambda before, rng: before[: len(before) // 2],
    "flipped": lambda before, rng: _flipped(before, rng),
    "noise": lambda before, rng: rng.randbytes(300),
    "picture": lambda before, rng: picture(),
    "latin": lambda before, rng: '{"step": "né"}\n'.encode("latin-1"),
    "set": _rewritten(_set),
    "drop": _rewritten(_drop),
    "add": _rewritten(_add),
    "stretched": _stretched,
    **{f"json {name}": _holding(text, after=False) for name, text in ALIEN_JSON.items()},
    **{f"more {name}": _holding(text, after=True) for name, text in ALIEN_JSON.items()},
}
KINDS: dict[str, Callable[[Path], None]] = {
    "absent": lambda path: None,
    "directory": lambda path: path.mkdir(),
    "pipe": lambda path: os.mkfifo(path),
    "zero": lambda path: make_node(path, 5),
    "null": lambda path: make_node(path, 3),
    "loop": lambda path: path.symlink_to(path.name),
    "dangling": lambda path: path.symlink_to("nowhere"),
    "link to a pipe": lambda path: path.symlink_to(_pipe_beside(path).name),
}


def _pipe_beside(path: Path) -> Path:
    beside = path.with_name("a-pipe")
    if not beside.exists():
        os.mkfifo(beside)
    return beside


def _flipped(before: bytes, rng: random.Random) -> bytes:
    if not before:
        return b"\x00"
    place = rng.randrange(len(before))
    return before[:place] + bytes([before[place] ^ 1 << rng.randrange(8)]) + before[place + 1 :]


def damage(path: Path, kind: str, seed: int) -> None:
    """Replace the file by something else; ``signed:`` before the kind: its checksum in the manifest is made right."""
    signed, kind = kind.startswith("signed:"), kind.removeprefix("signed:")
    try:
        before = path.read_bytes() if path.is_file() else b""
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError:
        return  # what it lies in is damaged already
    _remove(path)
    if kind in KINDS:
        KINDS[kind](path)
        return
    path.write_bytes(CONTENTS[kind](before, random.Random(seed)))
    if signed:
        _sign(path)


def _sign(path: Path) -> None:
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    for manifest in (path.parent / "manifest.json", *path.parent.parent.glob("checkpoint/*/manifest.json")):
        if manifest.is_file():
            data = json.loads(manifest.read_bytes())
            for names in (data["files"], data["replay"]):
                if path.name in names:
                    names[path.name] = digest
            manifest.write_bytes(sealed(without_seal(data)))

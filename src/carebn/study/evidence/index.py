"""What thousands of run directories said when they were last read, kept beside them: believed only where it matches.

    .carebn-index.jsonl   a line for each run: its place, the stamps of all that was read, the record, a checksum

A stamp is size, time of change, time of the inode's change (which nobody can set back) and inode. An entry is believed
if every stamp is what it was, that of the directory included, which changes with the names in it. It is made only of
files that had been left alone for a while: a file that is written twice within one tick of the clock looks the same.
Without the index, or with a damaged one, everything is read as ever; nothing but time depends on it.
"""

import json
import os
import time
import zlib
from array import array
from base64 import b64decode, b64encode
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from carebn.checksums import NAME as CHECKSUMS
from carebn.study.evidence.timing import Timing

INDEX = ".carebn-index.jsonl"
WORTH_IT = 200  # runs; fewer are read as fast
QUIET = 3 * 10**9  # nanoseconds that all must have been unchanged for: the clocks of some file systems tick in seconds
READ = ("config.json", "command.txt", "versions.json", "metrics.jsonl", "timing.jsonl", CHECKSUMS)
BEGIN, NEXT, SEALED = b'{"run": ', b', "stamps": ', b', "crc32": '
EPISODES = {"episode_steps": "q", "episode_returns": "d"}

Stamps = dict[str, list[int]]
Values = dict[str, Any]  # the fields of a record but its directory


class Index:
    """Of the runs below one root. Lines stay in the file until they are asked for: there may be a lot in them."""

    def __init__(self, root: Path) -> None:
        self.root, self.path = root, root / INDEX
        self._file: BinaryIO | None = None
        self._places: dict[str, int] = {}  # where the line of a run begins
        self._believed: list[str] = []
        self._new: list[bytes] = []
        with suppress(OSError, ValueError, RecursionError):
            self._file = open(self.path, "rb")  # noqa: SIM115  # until it is closed
            place = 0
            for line in self._file:
                end = line.find(NEXT)
                if line.startswith(BEGIN) and end > 0:
                    self._places[str(json.loads(line[len(BEGIN) : end]))] = place
                place += len(line)

    def find(self, directory: Path, found: Stamps | None, episodes: bool, measures: bool) -> Values | None:
        """The record of a run whose stamps are these; None: it has to be read."""
        name = self._name(directory)
        if found is None or name not in self._places:
            return None
        try:
            entry = json.loads(self._line(name))
            has_all = (entry["episodes"] or not episodes) and (entry["measures"] or not measures)
            if entry["run"] != name or entry["stamps"] != found or not has_all:
                return None
            values: Values = entry["record"]
            for field, kind in EPISODES.items():
                numbers = array(kind)
                numbers.frombytes(b64decode(values[field]) if episodes else b"")
                values[field] = numbers
            values["timing"] = Timing.of_json(values["timing"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None  # damaged: it is read again, and written anew
        self._believed.append(name)
        return values if measures else values | {"measures": {}}

    def keep(self, directory: Path, found: Stamps | None, values: Values, episodes: bool, measures: bool) -> None:
        """What was just read; the stamps are from just before that."""
        if found is None or not _is_quiet(found):
            return
        packed = {field: b64encode(array(kind, values[field]).tobytes()).decode() for field, kind in EPISODES.items()}
        entry = {
            "run": self._name(directory), "stamps": found, "episodes": episodes, "measures": measures,
            "record": values | packed | {"timing": values["timing"].as_json()},
        }  # fmt: skip
        text = json.dumps(entry).encode()[:-1]
        self._new.append(text + SEALED + b"%d}\n" % zlib.crc32(text))

    def close(self) -> None:
        """Write it if there is anything new to say; a place that cannot be written to does without."""
        gone = len(self._places) > len(self._believed)
        if len(self._new) + len(self._believed) >= WORTH_IT and (self._new or gone):
            hidden = self.path.with_name(f"{INDEX}.part")
            try:
                with open(hidden, "wb") as file:
                    for name in self._believed:
                        file.write(self._line(name))
                    file.writelines(self._new)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(hidden, self.path)
            except (OSError, ValueError):
                with suppress(OSError):
                    hidden.unlink()
        if self._file is not None:
            self._file.close()

    def _line(self, name: str) -> bytes:
        """Of this run; a ValueError if it is not as it was written."""
        assert self._file is not None
        self._file.seek(self._places[name])
        line = self._file.readline()
        text, _, end = line.rpartition(SEALED)
        if end != b"%d}\n" % zlib.crc32(text):
            raise ValueError("damaged")
        return line

    def _name(self, directory: Path) -> str:
        return str(directory.relative_to(self.root))


def stamps(directory: Path) -> Stamps | None:
    """Of all that the record of a run is made of; None: not all of it can be stamped."""
    try:
        names = os.listdir(directory)
        if CHECKSUMS not in names:  # of an earlier version: what it holds in its checkpoints counts too
            return None
        read = [".", *READ, *sorted(name for name in names if name.startswith("measure-"))]
        for converted in sorted(name for name in names if name.startswith("converted-")):
            read += [converted, f"{converted}/evaluation.json", f"{converted}/{CHECKSUMS}"]
        found = {}
        for name in read:
            with suppress(FileNotFoundError, NotADirectoryError):
                stat = os.stat(f"{directory}/{name}")
                found[name] = [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino]
    except OSError:
        return None
    return found


def _is_quiet(found: Stamps) -> bool:
    newest = max(max(changed, inode_changed) for _, changed, inode_changed, _ in found.values())
    return time.time_ns() - newest > QUIET

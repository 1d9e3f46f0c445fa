"""What a run writes down as it goes: metrics (deterministic) and timing (not), one JSON object per line."""

import hashlib
import json
import os
import zlib
from pathlib import Path
from typing import Any

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

from carebn.reading import parse_rows, read_file
from carebn.training.files import flush_directory, sha256

Row = dict[str, Any]


class LineFile:
    """Lines appended to a file, which can be cut back to an earlier length."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._sha = hashlib.sha256(read_file(path) if path.exists() else b"")
        self._file = open(path, "ab")  # noqa: SIM115  # open for the whole run

    def write(self, row: Row) -> None:
        line = (json.dumps(row) + "\n").encode()
        self._file.write(line)
        self._file.flush()  # a reader sees it at once
        self._sha.update(line)

    def secure(self) -> tuple[int, str]:
        """Everything to disk; returns the length in bytes and the checksum."""
        self._file.flush()
        os.fsync(self._file.fileno())
        return self._file.tell(), self._sha.hexdigest()

    def until(self, length: int) -> tuple[int, str]:
        """Length and checksum of the beginning."""
        if self.path.stat().st_size < length:
            raise ValueError(f"{self.path} is shorter than its checkpoint says: it was cut or replaced")
        return length, sha256(self.path.read_bytes()[:length])

    def cut_back(self, length: int) -> None:
        if self.path.stat().st_size < length:
            raise ValueError(f"{self.path} is shorter than its checkpoint says: it was cut or replaced")
        self._file.truncate(length)
        self._file.seek(length)
        self._sha = hashlib.sha256(self.path.read_bytes())

    def close(self) -> None:
        self._file.close()


def with_checksum(row: Row) -> Row:
    """Of a line that nothing else vouches for."""
    return row | {"crc32": zlib.crc32(json.dumps(row)[:-1].encode())}


def read_rows(path: Path) -> list[Row]:
    """All complete lines of a metrics or timing file."""
    if not path.exists():
        return []
    try:
        return parse_rows(read_file(path))
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {error}") from error


def newest_return(rows: list[Row]) -> float | None:
    """The mean return of the last evaluation."""
    return next((float(row["eval/mean_return"]) for row in reversed(rows) if "eval/mean_return" in row), None)


def write_tensorboard(rows: list[Row], directory: Path) -> None:
    """The numbers of ``rows`` as TensorBoard events. Their wall time is the step, so that the file is reproducible."""
    directory.mkdir(parents=True, exist_ok=True)
    final, hidden = directory / "events.out.tfevents.0.carebn", directory / ".part"
    with open(hidden, "wb") as file:
        writer = RecordWriter(file)
        writer.write(Event(wall_time=0.0, file_version="brain.Event:2").SerializeToString())
        for row in rows:
            step = int(row["step"])
            values = [
                Summary.Value(tag=tag, simple_value=float(value))
                for tag, value in row.items()
                if "/" in tag and isinstance(value, (int, float))
            ]
            event = Event(wall_time=float(step), step=step, summary=Summary(value=values))
            writer.write(event.SerializeToString())
        file.flush()
        os.fsync(file.fileno())
    os.replace(hidden, final)
    flush_directory(directory)

"""What a run took, out of ``timing.jsonl``: wall clock, processor time and memory, over all of its sittings."""

import re
import zlib
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from carebn.checksums import Mismatch
from carebn.study.evidence.lines import numbers

TIMING = re.compile(rb'\{"step": (\d+), "charts/SPS": ([^,\n]+), "time/elapsed": ([^,\n]+), [^\n]*\}\n')
# Lines of versions before 0.2.0 end before these.
USED = re.compile(rb', "time/processor": ([^,\n]+), "memory/peak": ([^,\n]+), "processor": "([^"\n]*)"')
CRC = b', "crc32": '  # the end of a line of wall-clock figures


@dataclass(frozen=True)
class Timing:
    seconds: float = 0.0  # wall clock of training; 0 if none is recorded
    steps: int = 0  # taken in that time; those repeated after a kill count twice
    at: dict[int, float] = field(default_factory=dict)  # wall clock at the evaluation of each step
    processor_seconds: float | None = None  # of all threads; None: not recorded
    mebibytes: float | None = None  # the most that a sitting occupied
    processor: str = ""  # its name, of the last sitting

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"at": [*self.at.items()]}

    @classmethod
    def of_json(cls, data: dict[str, Any]) -> Self:
        return cls(**data | {"at": dict(data["at"])})


def read_timing(data: bytes, path: Path, evaluated: list[int]) -> Timing:
    """Seconds and steps, summed over sittings. Both count from the start of a sitting, so each counts by its last row;
    a new one shows in another first step, or in a clock that has gone back."""
    rows = numbers(data, TIMING, ("step", "charts/SPS", "time/elapsed"))
    if not _is_whole(data) or (CRC in data and not set(evaluated) <= {int(row[0]) for row in rows}):
        raise Mismatch(f"{path} is damaged: not all of its lines are as they were written; remove it to do without")
    found = USED.findall(data)
    used = found if len(found) == len(rows) else []  # a run that an older version began
    at: dict[int, float] = {}
    sittings: list[tuple[float, int, float]] = []  # seconds, steps and seconds of the processor
    last_first, last_elapsed = -1, 0.0
    for place, (step, speed, elapsed) in enumerate(rows):
        steps = round(speed * elapsed)
        first = int(step) - steps
        if first == last_first and elapsed >= last_elapsed:
            sittings.pop()
        at[int(step)] = sum(seconds for seconds, *_ in sittings) + elapsed
        sittings.append((elapsed, steps, float(used[place][0]) if used else 0.0))
        last_first, last_elapsed = first, elapsed
    peaks = [float(peak) for _, peak, _ in used if peak != b"null"]
    return Timing(
        seconds=sum(seconds for seconds, *_ in sittings),
        steps=sum(steps for _, steps, _ in sittings),
        at=at,
        processor_seconds=sum(worked for *_, worked in sittings) if used else None,
        mebibytes=max(peaks, default=None),
        processor=used[-1][2].decode(errors="replace") if used else "",
    )


def _is_whole(data: bytes) -> bool:
    """Lines of wall-clock figures, which nothing else vouches for, end in a checksum; older ones do not."""
    parts = [line.rpartition(CRC) for line in data.split(b"\n")[:-1]]
    return all(end == b"%d}" % zlib.crc32(start) for start, found, end in parts if found)

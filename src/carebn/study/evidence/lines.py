"""Numbers out of logs whose lines are our own JSON, thousands of them, without parsing each."""

import re

from carebn.reading import parse_object


def numbers(data: bytes, pattern: re.Pattern[bytes], names: tuple[str, str, str]) -> list[tuple[float, float, float]]:
    """Three numbers of every complete line that holds them: by the pattern, or if a line does not fit it (another
    version wrote it, or it is damaged) as JSON."""
    markers = [f'"{name}"'.encode() for name in names[1:]]
    data = data[: data.rfind(b"\n") + 1]
    found = pattern.findall(data)
    if all(data.count(marker) == len(found) for marker in markers):
        return [(int(a), float(b), float(c)) for a, b, c in found]
    rows = [parse_object(line) for line in data.split(b"\n") if any(marker in line for marker in markers)]
    return [(int(row[names[0]]), float(row[names[1]]), float(row[names[2]])) for row in rows]

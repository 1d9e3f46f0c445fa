"""A search space as data: which options are tried, and between which values."""

import json
import math
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, get_type_hints

from carebn.errors import LONGEST, unknown_name
from carebn.reading import parse_object, read_file
from carebn.training.config import OUTSIDE, TrainConfig
from carebn.training.defaults import flag

OWN = "algo_options."  # begins the name of an option that one algorithm alone has
FIXED = {*OUTSIDE, "env_id", "import_modules", "env_kwargs", "wrappers", "algo_options", "seed", "threads", "device",
         "total_timesteps"}  # fmt: skip  # what all trials share
MOST_CHOICES = 1000
AS = "as NAME=LOW:HIGH, NAME=log:LOW:HIGH or NAME=A,B,C"


@dataclass(frozen=True)
class Range:
    low: float
    high: float
    log: bool = False  # as likely between 1 and 10 as between 10 and 100
    whole: bool = False

    def examples(self) -> list[Any]:
        return [self.low, self.high]

    def as_json(self) -> dict[str, Any]:
        return {"low": self.low, "high": self.high, "log": self.log}


@dataclass(frozen=True)
class Choice:
    values: tuple[Any, ...]

    def examples(self) -> list[Any]:
        return list(self.values)

    def as_json(self) -> dict[str, Any]:
        return {"choices": list(self.values)}


Space = dict[str, Range | Choice]


def tunable() -> set[str]:
    return {f.name for f in fields(TrainConfig)} - FIXED


def space_of(words: Sequence[str], file: Path | None, base: TrainConfig) -> Space:
    """From the command line and a file, whose options it may replace; every end and choice is tried on ``base``."""
    described = described_space(words, file)
    if not described:
        raise ValueError(f"there is nothing to search: give --search {AS[3:]}, or --space FILE")
    space = {name: _part(name, about) for name, about in described.items()}
    for name, part in space.items():
        for value in part.examples():
            try:
                applied(base, {name: value}).checked()
            except ValueError as error:
                raise ValueError(f"the search space has {name} = {_short(value)}: {error}") from error
    return space


def described_space(words: Sequence[str], file: Path | None) -> dict[str, Any]:
    """What is said of each option that is searched, not yet understood."""
    said: dict[str, Any] = {}
    for word in words:
        name, equals, values = word.partition("=")
        if not equals or not values:
            raise ValueError(f"--search wants an option and its values, {AS}, got {word!r}")
        name = name.strip().replace("-", "_")
        if name in said:
            raise ValueError(f"--search names {name} twice; give all of its values at once")
        said[name] = _described(word, values)
    return said if file is None else read_space(file) | said


def check_not_fixed(searched: Collection[str], named: Collection[str], algo_options: Collection[str]) -> None:
    """Refuse what a command line both fixes and searches: one of the two would be lost without a word."""
    both = [name for name in searched if name in named or (name.startswith(OWN) and name[len(OWN) :] in algo_options)]
    if both:
        option = f"--algo-options {both[0][len(OWN) :]}=…" if both[0].startswith(OWN) else flag(both[0])
        raise ValueError(f"{both[0]} is searched, so {option} would have no effect; leave out one of the two")


def read_space(path: Path) -> dict[str, Any]:
    """Of a JSON or TOML file: each option with {low, high, log} or {choices}."""
    try:
        text = read_file(path)
    except OSError as error:
        raise ValueError(f"--space {path} cannot be read: {error.strerror}") from error
    try:
        return tomllib.loads(text.decode()) if path.suffix == ".toml" else parse_object(text)
    except (ValueError, RecursionError) as error:  # of tomllib too
        kind = "TOML" if path.suffix == ".toml" else "JSON"
        raise ValueError(f"--space {path} does not hold a search space as {kind}: {str(error)[:LONGEST]}") from error


def _described(word: str, values: str) -> dict[str, Any]:
    """What stands after the equals sign, as a file would say it."""
    kind, _, rest = values.partition(":")
    log = kind == "log"
    ends = (rest if log else values).split(":")
    if len(ends) == 2:
        try:
            low, high = (json.loads(end) for end in ends)
        except ValueError:
            raise ValueError(f"--search {word}: {' and '.join(ends)} are not two numbers; {AS}") from None
        return {"low": low, "high": high, "log": log}
    if ":" in values:
        raise ValueError(f"--search {word}: a range has two ends, {AS}")
    try:
        return {"choices": json.loads(f"[{values}]")}
    except ValueError:
        return {"choices": values.split(",")}


def _part(name: str, about: Any) -> Range | Choice:
    known = tunable()
    if name not in known and not (name.startswith(OWN) and name[len(OWN) :].isidentifier()):
        if name in FIXED:
            raise ValueError(f"{name} cannot be searched: all trials share it")
        raise ValueError(unknown_name("option to search", name, known))
    if not isinstance(about, dict) or not (
        {"low", "high"} <= about.keys() <= {"low", "high", "log"} or about.keys() == {"choices"}
    ):
        raise ValueError(f"the search space says of {name} neither low and high (and perhaps log) nor choices")
    if "choices" in about:
        values = about["choices"]
        if not isinstance(values, list) or not 1 <= len(values) <= MOST_CHOICES:
            raise ValueError(f"the search space has no list of one to {MOST_CHOICES:,} choices for {name}")
        return Choice(tuple(values))
    low, high, log = about["low"], about["high"], about.get("log", False)
    if any(type(end) not in (int, float) or not math.isfinite(end) for end in (low, high)) or type(log) is not bool:
        raise ValueError(f"the search space needs two finite numbers for {name}, got {_short(low)} and {_short(high)}")
    if low >= high or (log and low <= 0):
        above = " above zero" if log else ""
        raise ValueError(f"the range of {name} needs a low end{above} that is below the high one, got {low} and {high}")
    hint = get_type_hints(TrainConfig).get(name, float)
    kinds = (hint, *getattr(hint, "__args__", ()))
    whole = int in kinds and float not in kinds
    if whole and not (float(low).is_integer() and float(high).is_integer()):
        raise ValueError(f"{name} is a whole number, so the ends of its range must be, got {low} and {high}")
    return Range(int(low), int(high), log, True) if whole else Range(float(low), float(high), log)


def _short(value: Any) -> str:
    return str(value)[:LONGEST]


def applied(base: TrainConfig, values: Mapping[str, Any]) -> TrainConfig:
    """The configuration of a trial."""
    own = {name[len(OWN) :]: value for name, value in values.items() if name.startswith(OWN)}
    shared = {name: value for name, value in values.items() if not name.startswith(OWN)}
    # As a file's, so that a choice of the wrong kind is told as such.
    checked = TrainConfig.from_json({k: list(v) if isinstance(v, (list, tuple)) else v for k, v in shared.items()})
    found = {name: getattr(checked, name) for name in shared}
    return replace(base, **found, algo_options={**base.algo_options, **own})

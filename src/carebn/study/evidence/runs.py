"""Run directories read back as small records; a directory that cannot be read costs one sentence, not the others.

Needs neither torch nor the configuration class, so that thousands of directories are a matter of seconds and a run
made by another version can still be shown.
"""

import json
import math
import os
import re
import time
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from carebn.checksums import Mismatch, Vouched, read_sealed
from carebn.reading import parse_object, parse_rows, read_file, read_object
from carebn.study.evidence.index import Index, stamps
from carebn.study.evidence.lines import numbers
from carebn.study.evidence.timing import Timing, read_timing
from carebn.study.same_cell import NOT_OF_THE_CELL

# Lines that a run holds by the thousand are not parsed as JSON one by one: the format is our own.
# They begin with plain text, not with an anchor: that is what makes the search fast.
EPISODE = re.compile(rb'\{"step": (\d+), "charts/episodic_return": ([^,\n]+), "charts/episodic_length": \d+\}\n')
EVALUATION = re.compile(rb'\{"step": (\d+), "eval/mean_return": ([^,\n]+), "eval/std_return": ([^,\n]+), [^\n]*\}\n')
MAIN_OPTIONS = {"env_id": str, "algo": str, "method": str, "neuron": str, "seed": int, "total_timesteps": int}
NAMED = 3  # runs in one sentence; the others are counted
MOMENT = 0.05  # seconds: longer than it takes to write two small files


class DamagedRun(ValueError):  # noqa: N818  # it is a finding first
    """A run directory that cannot be used; the message names it and says why."""


@dataclass(frozen=True)
class RunRecord:
    """What one run directory says."""

    directory: Path
    config: dict[str, Any]  # as in config.json
    steps: list[int]  # of the evaluations, ascending
    returns: list[float]  # mean return of each evaluation
    stds: list[float]  # over its episodes
    step: int  # the last that was evaluated in training; 0 before the first evaluation
    complete: bool  # the last evaluation is that of the last step, and a policy was saved
    timing: Timing
    command: str
    versions: dict[str, str]
    episode_steps: Sequence[int] = ()  # of finished training episodes; only if asked for
    episode_returns: Sequence[float] = ()
    measures: dict[str, list[dict[str, Any]]] = field(default_factory=dict)  # rows of measure-*.jsonl; only if asked

    @property
    def env_id(self) -> str:
        return str(self.config["env_id"])

    @property
    def algo(self) -> str:
        return str(self.config["algo"])

    @property
    def method(self) -> str:
        return str(self.config["method"])

    @property
    def neuron(self) -> str:
        return str(self.config["neuron"])

    @property
    def seed(self) -> int:
        return int(self.config["seed"])

    @property
    def total(self) -> int:
        """Steps that the run was asked for."""
        return int(self.config["total_timesteps"])

    @property
    def converted(self) -> bool:
        """Whether its one evaluation is that of its final policy, converted at the end."""
        return self.config.get("conversion_steps") is not None

    @property
    def best(self) -> float | None:
        """The paper's score of a run: the maximum over evaluations of the mean return; a converted policy has none."""
        return None if self.converted else max(self.returns, default=None)

    @property
    def seconds(self) -> float:
        """Wall clock of training, over all sittings; 0 if none is recorded."""
        return self.timing.seconds

    @property
    def speed(self) -> float | None:
        """Environment steps per second, evaluations and checkpoints included."""
        return self.timing.steps / self.seconds if self.seconds > 0 else None

    def cell(self) -> str:
        """The same for two runs that differ only in their seed."""
        return json.dumps({k: v for k, v in self.config.items() if k not in NOT_OF_THE_CELL}, sort_keys=True)


class Runs(NamedTuple):
    records: list[RunRecord]
    problems: list[str]  # one sentence for each directory that was skipped

    def gaps(self) -> list[str]:
        """A sentence for each kind of file that runs lack without being damaged, and what is unknown without it."""
        lacking = {
            "command.txt": ("the command is", [run for run in self.records if not run.command]),
            "versions.json": ("versions are", [run for run in self.records if not run.versions]),
            "timing.jsonl": ("the time is", [run for run in self.records if run.step and not run.seconds]),
        }
        told = []
        for file, (what, runs) in lacking.items():
            if runs:
                names = ", ".join(run.directory.name for run in runs[:NAMED])
                more = f" and {len(runs) - NAMED} more" if len(runs) > NAMED else ""
                lack = "lacks" if len(runs) == 1 else "lack"
                told.append(f"{len(runs)} of {len(self.records)} runs {lack} {file} ({names}{more}): {what} not known")
        return told


def read_runs(roots: Iterable[Path | str], episodes: bool = False, measures: bool = False) -> Runs:
    """All runs at or below ``roots``, by directory name; those that cannot be read are named in ``problems``."""
    places = list(dict.fromkeys(map(Path, roots)))
    directories = find_runs(places)
    indexes = [Index(place) for place in places]
    records, problems = [], []
    for directory in directories:
        index = next(one for one in indexes if directory.is_relative_to(one.root))
        found = stamps(directory)
        values = index.find(directory, found, episodes, measures)
        try:
            record = read_run(directory, episodes, measures) if values is None else RunRecord(directory, **values)
        except DamagedRun as damage:
            problems.append(f"{damage}; it is left out")
            continue
        if values is None:
            values = {name: value for name, value in vars(record).items() if name != "directory"}
            index.keep(directory, found, values, episodes, measures)
        records.append(record)
    for index in indexes:
        index.close()
    return Runs(records, problems)


def find_runs(roots: Iterable[Path | str]) -> list[Path]:
    """Run directories at or below ``roots``, each once, sorted. A root that is not there is a ValueError."""
    found: dict[Path, Path] = {}
    for root in map(Path, roots):
        if not root.is_dir():
            raise ValueError(f"{root} is not a directory; name a run directory or one that holds run directories")
        for path, is_run in _walk(root):
            if is_run:
                found.setdefault(path.resolve(), path)
    return sorted(found.values())


def holding_runs(roots: Iterable[Path | str]) -> list[Path]:
    """``roots`` and every directory below them that is not part of a run, each once."""
    found: dict[Path, Path] = {}
    for root in map(Path, roots):
        for path, is_run in _walk(root):
            if not is_run:
                found.setdefault(path.resolve(), path)
    return list(found.values())


def _walk(root: Path) -> Iterator[tuple[Path, bool]]:
    """Every directory at or below ``root``, and whether it is a run; a run holds no runs."""
    for place, directories, files in os.walk(root):
        is_run = "config.json" in files or "metrics.jsonl" in files
        directories[:] = [] if is_run else sorted(name for name in directories if not name.startswith("."))
        yield Path(place), is_run


def read_run(directory: Path, episodes: bool = False, measures: bool = False) -> RunRecord:
    """One run directory; training episodes and measurements only if wanted, because they are many.

    Of a run with checksums, only what they vouch for is read: all up to its last checkpoint.
    """
    try:
        return _read_run(directory, episodes, measures)
    except Mismatch:  # perhaps it was just given more steps
        time.sleep(MOMENT)
    try:
        return _read_run(directory, episodes, measures)
    except Mismatch as mismatch:
        raise DamagedRun(str(mismatch)) from mismatch


def _read_run(directory: Path, episodes: bool, measures: bool) -> RunRecord:
    config = _config(directory)
    try:
        vouched = Vouched(directory)
        vouched.check("config.json", "command.txt", "versions.json")
        data = vouched.log("metrics.jsonl")
        steps, returns, stds = _evaluations(data)
        complete = _is_complete(directory, config["total_timesteps"], steps, bool(vouched))
        step, evaluated = steps[-1] if steps else 0, steps
        if config.get("conversion_steps") is not None:
            steps, returns, stds = _converted(directory, config["total_timesteps"]) if complete else ([], [], [])
            complete = bool(steps)
        marks = EPISODE.findall(data) if episodes else []
        times = directory / "timing.jsonl"
        return RunRecord(
            directory=directory,
            config=config,
            steps=steps,
            returns=returns,
            stds=stds,
            step=step,
            complete=complete,
            timing=read_timing(_bytes(times), times, evaluated),
            command=_bytes(directory / "command.txt").decode(errors="replace").strip(),
            versions=_versions(directory / "versions.json"),
            episode_steps=array("q", (int(step) for step, _ in marks)),  # a tenth of what a list takes
            episode_returns=array("d", (float(score) for _, score in marks)),
            measures=_measures(directory, vouched) if measures else {},
        )
    except Mismatch:
        raise
    except OSError as error:
        raise DamagedRun(f"{directory} cannot be read ({error.strerror})") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        reason = str(error).splitlines()[0] if isinstance(error, ValueError) and str(error) else repr(error)
        raise DamagedRun(f"{directory} is damaged: its records cannot be read ({reason})") from error


def _config(directory: Path) -> dict[str, Any]:
    path = directory / "config.json"
    try:
        config = read_object(path)
    except FileNotFoundError:
        raise DamagedRun(f"{directory} is not a run directory: it has no config.json") from None
    except OSError as error:
        raise DamagedRun(f"{path} cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise DamagedRun(f"{path} does not hold the configuration of a run: {error}") from error
    for name, kind in MAIN_OPTIONS.items():
        if type(config.get(name)) is not kind:
            raise DamagedRun(f"{path} does not hold the configuration of a run: {name!r} is {config.get(name)!r}")
    return config


def _bytes(path: Path) -> bytes:
    try:
        return read_file(path)
    except FileNotFoundError:
        return b""


def _converted(directory: Path, total: int) -> tuple[list[int], list[float], list[float]]:
    """Of a method that converts its ANN at the end, only the converted policy counts: one evaluation, or none yet."""
    for place in sorted(directory.glob("converted-*")):
        path = place / "evaluation.json"
        Vouched(place).check(path.name)
        if not path.exists():
            continue
        scores = read_sealed(path)
        mean, std = float(scores["mean_return"]), float(scores["std_return"])
        if not (math.isfinite(mean) and math.isfinite(std)):
            raise ValueError("the evaluation of its converted policy is not a finite number")
        return [total], [mean], [std]
    return [], [], []


def _evaluations(data: bytes) -> tuple[list[int], list[float], list[float]]:
    rows = numbers(data, EVALUATION, ("step", "eval/mean_return", "eval/std_return"))
    steps = [int(row[0]) for row in rows]
    returns, stds = [row[1] for row in rows], [row[2] for row in rows]
    if any(a >= b for a, b in pairwise(steps)):
        raise ValueError("the steps of its evaluations do not ascend")
    if not all(map(math.isfinite, (*returns, *stds))):
        raise ValueError("an evaluation is not a finite number")
    return steps, returns, stds


def _is_complete(directory: Path, total: int, steps: list[int], vouched: bool) -> bool:
    """A run that was thinned out for keeping has no checkpoints; of one kept for its numbers alone, the policy went
    with them. While a run is under way it always has some."""
    if not steps or steps[-1] != total:
        return False
    checkpoints = directory / "checkpoint"
    if not checkpoints.is_dir():
        return True
    has_policy = (directory / "policy.safetensors").exists()
    if vouched:  # the last evaluation was, and that is the last thing to happen
        if not has_policy:
            raise ValueError("policy.safetensors is missing; the same carebn train command again restores it")
        return True
    return has_policy and (checkpoints / f"{total:09d}" / "manifest.json").exists()


def _versions(path: Path) -> dict[str, str]:
    data = _bytes(path)
    return {str(name): str(version) for name, version in parse_object(data).items()} if data else {}


def _measures(directory: Path, vouched: Vouched) -> dict[str, list[dict[str, Any]]]:
    """Rows by the name of the measurement: a step, and lists of numbers, one per layer."""
    found = {}
    names = {path.name for path in directory.glob("measure-*.jsonl")} | {
        name for name in vouched.logs() if name.startswith("measure-")
    }
    for path in sorted(directory / name for name in names):
        rows = parse_rows(vouched.log(path.name))
        for row in rows:
            lists = [value for name, value in row.items() if name != "step"]
            if type(row["step"]) is not int or not all(isinstance(x, float | int) for values in lists for x in values):
                raise ValueError(f"{path.name} holds something else than measurements")
        found[path.stem.removeprefix("measure-")] = rows
    return found

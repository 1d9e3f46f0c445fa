"""Checkpoints of a run: nothing half-written, nothing executed on load, and only new transitions written each time.

    checkpoint/000005000/   agent.safetensors, state.json, and manifest.json with the checksums of all it needs
    replay/0000000000-0000005000.safetensors   transitions by number; never changed once written

A checkpoint directory is filled under a hidden name and renamed when complete. The two newest regular ones are kept
(those at multiples of the interval), and one made by an interruption until the next regular one; so what is on disk at
the end does not depend on how often a run was interrupted.
"""

import os
import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import safetensors.numpy
import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

from carebn.algorithm.replay import Arrays, ReplayBuffer
from carebn.reading import parse_object, read_file, read_object
from carebn.training.files import as_json, flush_directory, sha256, write_atomically, write_file

KEPT = 2


def _segment_name(start: int, stop: int) -> str:
    return f"{start:010d}-{stop:010d}.safetensors"


class Damaged(ValueError):  # noqa: N818  # it is a finding first
    """A checkpoint that cannot be used; the message says why."""


class Loaded(NamedTuple):
    step: int
    tensors: dict[str, Tensor]
    state: dict[str, Any]
    segments: list[tuple[int, Arrays]]


class CheckpointStore:
    def __init__(self, run_dir: Path, interval: int) -> None:
        self.directory = run_dir / "checkpoint"
        self.replay_directory = run_dir / "replay"
        self.interval = interval
        self._digests: dict[str, str] = {}  # of the segments on disk that are known to be good

    # --- writing -----------------------------------------------------------------------------------------------------

    def save(self, step: int, tensors: dict[str, Tensor], state: dict[str, Any], replay: ReplayBuffer) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        self.replay_directory.mkdir(parents=True, exist_ok=True)
        segments = [self._save_segment(start, stop, replay) for start, stop in self._ranges(replay)]
        contents = {"agent.safetensors": safetensors.torch.save(tensors), "state.json": as_json(state)}
        manifest = {
            "step": step,
            "files": {name: sha256(data) for name, data in contents.items()},
            "replay": {name: self._digests[name] for name in segments},
        }
        hidden = self.directory / f".{step:09d}.part"
        shutil.rmtree(hidden, ignore_errors=True)
        hidden.mkdir()
        for name, data in contents.items():
            write_file(hidden / name, data)
        write_file(hidden / "manifest.json", as_json(manifest))
        flush_directory(hidden)
        final = self.directory / f"{step:09d}"
        shutil.rmtree(final, ignore_errors=True)
        os.replace(hidden, final)
        flush_directory(self.directory)
        self.clean()

    def _ranges(self, replay: ReplayBuffer) -> list[tuple[int, int]]:
        """Segments that cover all held transitions; whole intervals, and a shorter one at the end if need be."""
        first = max(0, replay.added - replay.capacity)
        start = first - first % self.interval
        edges = [*range(start, replay.added, self.interval), replay.added]
        # A segment whose oldest rows have left the ring is already on disk, whole.
        on_disk = self._digests.keys()
        return [(a if _segment_name(a, b) in on_disk else max(a, first), b) for a, b in pairwise(edges)]

    def _save_segment(self, start: int, stop: int, replay: ReplayBuffer) -> str:
        name = _segment_name(start, stop)
        if name not in self._digests:
            data = safetensors.numpy.save(dict(replay.rows(start, stop)))
            write_atomically(self.replay_directory / name, data)
            self._digests[name] = sha256(data)
        return name

    def clean(self) -> None:
        """Remove what no kept checkpoint needs, and leftovers of writes that were cut short."""
        steps = self._steps()
        regular = [s for s in steps if s % self.interval == 0]
        kept = set(regular[-KEPT:])
        if steps and steps[-1] not in kept:
            kept.add(steps[-1])
        needed: set[str] = set()
        for path in sorted(self.directory.iterdir()):
            if not path.name.isdigit() or int(path.name) not in kept:
                shutil.rmtree(path, ignore_errors=True)
        for step in kept:
            try:
                needed |= self._manifest(step)["replay"].keys()
            except Damaged:
                return  # keep every segment while anything is unclear
        for path in sorted(self.replay_directory.iterdir()):
            if path.name not in needed:
                path.unlink()
                self._digests.pop(path.name, None)

    # --- reading -----------------------------------------------------------------------------------------------------

    def _steps(self) -> list[int]:
        if not self.directory.is_dir():
            return []
        return sorted(int(path.name) for path in self.directory.iterdir() if path.name.isdigit())

    def newest(self) -> int | None:
        """The step of the newest checkpoint."""
        return max(self._steps(), default=None)

    def _manifest(self, step: int) -> dict[str, Any]:
        path = self.directory / f"{step:09d}" / "manifest.json"
        try:
            manifest = read_object(path)
            if manifest["step"] != step or not isinstance(manifest["files"], dict):
                raise Damaged(f"{path} does not belong to it")
            if not all(Path(name).name == name for name in (*manifest["files"], *manifest["replay"])):
                raise Damaged(f"{path} names files elsewhere")
            return manifest
        except OSError as error:
            raise Damaged(f"{path} cannot be read ({error.strerror})") from error
        except (ValueError, KeyError, TypeError) as error:
            raise error if isinstance(error, Damaged) else Damaged(f"{path} is not a manifest") from error

    def load_latest(self, warn: Callable[[str], None]) -> Loaded | None:
        """The newest checkpoint that is whole; a damaged one is named and passed over. None: there was none at all."""
        wrong: list[str] = []
        for step in reversed(self._steps()):
            try:
                return self._load(step)
            except Damaged as damage:
                warn(f"the checkpoint at step {step} is damaged: {damage}; falling back to the one before")
                wrong.append(str(damage))
        if wrong:
            files = ", ".join(dict.fromkeys(wrong))  # a replay file is often what several of them need
            raise Damaged(
                f"no checkpoint of this run is whole ({files}); put back what is wrong, or start it afresh in another "
                f"directory"
            )
        return None

    def _load(self, step: int) -> Loaded:
        manifest = self._manifest(step)
        directory = self.directory / f"{step:09d}"
        contents = {name: _verified(directory / name, digest) for name, digest in manifest["files"].items()}
        segments = []
        for name, digest in sorted(manifest["replay"].items()):
            data = _verified(self.replay_directory / name, digest)
            try:
                segments.append((int(name.split("-")[0]), safetensors.numpy.load(data)))
            except (SafetensorError, ValueError) as error:
                raise Damaged(f"{self.replay_directory / name} cannot be read ({error})") from error
            self._digests[name] = digest
        try:
            tensors = safetensors.torch.load(contents["agent.safetensors"])
            state = parse_object(contents["state.json"])
        except (SafetensorError, ValueError, KeyError) as error:
            raise Damaged(f"the contents of {directory} cannot be read ({error})") from error
        return Loaded(step, tensors, state, segments)

    def forget_after(self, step: int) -> None:
        """Drop checkpoints newer than ``step``: damaged ones that were passed over."""
        for newer in self._steps():
            if newer > step:
                shutil.rmtree(self.directory / f"{newer:09d}")


def checked_state(state: dict[str, Any], run_dir: Path) -> dict[str, Any]:
    """What a run needs to go on; its checksum was right, so another program must have written something else."""
    kinds = {
        "streams": dict, "losses": dict, "episode": int, "episode_start": int, "episode_return": float,
        "metrics_bytes": int,
    }  # fmt: skip
    for name, kind in kinds.items():
        if type(state.get(name)) not in (kind, int if kind is float else kind):
            raise Damaged(f"a checkpoint of {run_dir} does not hold the state of a run: {name!r} is missing or wrong")
    if not isinstance(state.get("best", ""), int | float | None):
        raise Damaged(f"a checkpoint of {run_dir} does not hold the state of a run: 'best' is missing or wrong")
    return state


def _verified(path: Path, digest: str) -> bytes:
    try:
        data = read_file(path)
    except OSError as error:
        reason = "is missing" if isinstance(error, FileNotFoundError) else f"cannot be read ({error.strerror})"
        raise Damaged(f"{path} {reason}") from error
    if sha256(data) != digest:
        raise Damaged(f"{path} does not match its checksum")
    return data

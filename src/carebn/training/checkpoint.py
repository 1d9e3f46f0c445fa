"""Checkpoints of a run: nothing half-written, nothing executed on load, and only new transitions written each time.

    checkpoint/000005000/   agent.safetensors, state.json, best.safetensors (the best policy so far), and manifest.json
                            with the checksums of all it needs
    replay/0000000000-0000005000.safetensors   transitions by number; never changed once written

A checkpoint directory is filled under a hidden name and renamed when complete. The two newest regular ones are kept
(those that reach a multiple of the interval), and one made by an interruption until the next regular one; so what is on
disk at the end does not depend on how often a run was interrupted.

A run that ends between two evaluations makes one more, which a longer run would not have made. What the run was before
that is kept in its last checkpoint too, under the same names with ``before-``: from there the run can be extended.

A manifest carries a checksum of itself. That is the second format; those of the first have no number and no checksum.
One that this version could not read has its number in the manifest as ``format``, and is refused, not taken for damage.
"""

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, Self

import safetensors.numpy
import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

from carebn.algorithm.replay import Arrays, ReplayBuffer
from carebn.checksums import is_sealed, sealed
from carebn.reading import parse_object, read_file, read_object
from carebn.training.config import TrainConfig
from carebn.training.files import as_json, flush_directory, sha256, write_atomically, write_file
from carebn.training.kept import kept_step
from carebn.training.policy import read_conversion
from carebn.training.schedule import reaches

KEPT = 2
FORMAT = 2
FIRST = {"step", "files", "replay"}  # what a manifest of the first format holds, which does not say so


def _segment_name(start: int, stop: int) -> str:
    return f"{start:010d}-{stop:010d}.safetensors"


class Damaged(ValueError):  # noqa: N818  # it is a finding first
    """A checkpoint that cannot be used; the message says why."""


class OtherFormat(ValueError):  # noqa: N818  # nothing is wrong with it
    """A checkpoint that another version has written, and this one cannot read."""


class NotOnTheWay(Damaged):
    """A checkpoint that is whole, but that a run of this length would not pass through; the message says why."""


class Snapshot(NamedTuple):
    """What a run is at a step, besides its replay."""

    tensors: dict[str, Tensor]
    state: dict[str, Any]
    best: bytes | None  # the best policy so far, as a file; None: no evaluation yet

    def files(self, prefix: str = "") -> dict[str, bytes]:
        contents = {"agent.safetensors": safetensors.torch.save(self.tensors), "state.json": as_json(self.state)}
        if self.best is not None:
            contents["best.safetensors"] = self.best
        return {prefix + name: data for name, data in contents.items()}

    @classmethod
    def of(cls, files: dict[str, bytes], prefix: str = "") -> Self:
        tensors = safetensors.torch.load(files[f"{prefix}agent.safetensors"])
        return cls(tensors, parse_object(files[f"{prefix}state.json"]), files.get(f"{prefix}best.safetensors"))


class Loaded(NamedTuple):
    step: int
    snapshot: Snapshot
    segments: list[tuple[int, Arrays]]
    was_last: bool  # of a shorter run: the checkpoint holds more than the snapshot, the end of that run


Warn = Callable[[str], None]
Check = Callable[[int, Snapshot], None]  # raises Damaged if the checkpoint cannot be gone on from


class CheckpointStore:
    def __init__(self, run_dir: Path, interval: int, num_envs: int = 1) -> None:
        """``num_envs`` tells which checkpoints are regular; who only reads need not know."""
        self.directory = run_dir / "checkpoint"
        self.replay_directory = run_dir / "replay"
        self.interval, self.num_envs = interval, num_envs
        self._digests: dict[str, str] = {}  # of the segments on disk that are known to be good
        self._told: set[int] = set()  # checkpoints that are known to be damaged

    # --- writing -----------------------------------------------------------------------------------------------------

    def save(
        self, step: int, now: Snapshot, replay: ReplayBuffer, before: Snapshot | None = None, warn: Warn | None = None
    ) -> None:
        """``before``: what the run was before the evaluation that only its end calls for."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self.replay_directory.mkdir(parents=True, exist_ok=True)
        segments = [self._save_segment(start, stop, replay) for start, stop in self._ranges(replay)]
        contents = now.files() | ({} if before is None else before.files("before-"))
        manifest = {
            "format": FORMAT,
            "step": step,
            "files": {name: sha256(data) for name, data in contents.items()},
            "replay": {name: self._digests[name] for name in segments},
        }
        hidden = self.directory / f".{step:09d}.part"
        shutil.rmtree(hidden, ignore_errors=True)
        hidden.mkdir()
        for name, data in contents.items():
            write_file(hidden / name, data)
        write_file(hidden / "manifest.json", sealed(manifest))
        flush_directory(hidden)
        final = self.directory / f"{step:09d}"
        if final.exists():  # saved while its evaluation was due; never half there, whatever happens now
            old = self.directory / f".{step:09d}.old"
            shutil.rmtree(old, ignore_errors=True)
            os.replace(final, old)
        os.replace(hidden, final)
        flush_directory(self.directory)
        self.clean(warn)

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

    def clean(self, warn: Warn | None = None) -> None:
        """Remove what no kept checkpoint needs, and leftovers of writes that were cut short. An older checkpoint is
        looked at before it is needed: ``warn`` is told if it is damaged."""
        steps = self._steps()
        regular = [s for s in steps if reaches(s, self.interval, self.num_envs)]
        kept = set(regular[-KEPT:])
        if steps and steps[-1] not in kept:
            kept.add(steps[-1])
        needed: set[str] = set()
        unclear = False
        for path in sorted(self.directory.iterdir()):
            if not path.name.isdigit() or int(path.name) not in kept:
                shutil.rmtree(path, ignore_errors=True)
        for step in kept:
            try:
                needed |= self._manifest(step)["replay"].keys()
            except Damaged:
                unclear = True
        for path in [] if unclear else sorted(self.replay_directory.iterdir()):  # while anything is unclear, keep all
            if path.name not in needed:
                path.unlink()
                self._digests.pop(path.name, None)
        for step in sorted(kept)[:-1]:
            self._look_at(step, warn)

    def _look_at(self, step: int, warn: Warn | None) -> None:
        """Segments that are known to be good only have to be there: a replay can be large."""
        try:
            manifest = self._manifest(step)
            for name, digest in manifest["files"].items():
                _verified(self.directory / f"{step:09d}" / name, digest)
            for name, digest in manifest["replay"].items():
                if self._digests.get(name) != digest:
                    _verified(self.replay_directory / name, digest)
                    self._digests[name] = digest
                elif not (self.replay_directory / name).is_file():
                    raise Damaged(f"{self.replay_directory / name} is missing")
        except Damaged as damage:
            if warn is not None and step not in self._told:
                self._told.add(step)
                warn(f"the checkpoint at step {step}, kept in case the newest is lost, is damaged: {damage}")

    # --- reading -----------------------------------------------------------------------------------------------------

    def _steps(self) -> list[int]:
        if not self.directory.is_dir():
            return []
        return sorted(int(path.name) for path in self.directory.iterdir() if path.name.isdigit())

    def newest(self) -> int | None:
        """The step of the newest checkpoint."""
        return max(self._steps(), default=None)

    def evaluation_is_due(self, step: int) -> bool:
        """Whether the run was stopped between this step and the re-calibration and evaluation that follow it."""
        try:
            return bool(read_object(self.directory / f"{step:09d}" / "state.json").get("evaluation_due"))
        except (OSError, ValueError):
            return False  # whoever needs the checkpoint itself will say what is wrong

    def _manifest(self, step: int) -> dict[str, Any]:
        path = self.directory / f"{step:09d}" / "manifest.json"
        try:
            manifest = read_object(path)
            _check_format(manifest, path)
            if manifest["step"] != step or not isinstance(manifest["files"] | manifest["replay"], dict):
                raise Damaged(f"{path} does not belong to it")
            if not all(Path(name).name == name for name in (*manifest["files"], *manifest["replay"])):
                raise Damaged(f"{path} names files elsewhere")
            return manifest
        except OSError as error:
            raise Damaged(f"{path} cannot be read ({error.strerror})") from error
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            known = isinstance(error, Damaged | OtherFormat)
            raise error if known else Damaged(f"{path} is not a manifest") from error

    def load_latest(self, warn: Warn, total: int | None = None, check: Check | None = None) -> Loaded | None:
        """The newest checkpoint that is whole; a damaged one is named and passed over. None: there was none at all.

        With ``total`` it is to be gone on from, up to that step; ``check`` may find more that is wrong with it.
        """
        wrong: list[str] = []
        self._refuse_other_formats()
        for step in reversed(self._steps()):
            try:
                loaded = self._load(step, total)
                if check is not None:
                    check(step, loaded.snapshot)
                return loaded
            except NotOnTheWay as reason:
                warn(f"the checkpoint at step {step} is passed over: {reason}")
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

    def _refuse_other_formats(self) -> None:
        """Also in an older checkpoint: what its files are for is not known, so nothing here could be cleaned up."""
        for step in self._steps():
            with suppress(Damaged):
                self._manifest(step)

    def _load(self, step: int, total: int | None) -> Loaded:
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
        was_last = total is not None and step < total and "before-state.json" in contents
        try:
            snapshot = Snapshot.of(contents, "before-" if was_last else "")
        except (SafetensorError, ValueError, KeyError) as error:
            raise Damaged(f"the contents of {directory} cannot be read ({error})") from error
        return Loaded(step, snapshot, segments, was_last)

    def check_replay(self) -> None:
        """Raises if a segment that the newest readable manifest names is not what it was."""
        for step in reversed(self._steps()):
            try:
                manifest = self._manifest(step)
            except Damaged:
                continue
            for name, digest in manifest["replay"].items():
                _verified(self.replay_directory / name, digest)
            return

    def forget_after(self, step: int) -> None:
        """Drop checkpoints newer than ``step``: damaged ones that were passed over."""
        for newer in self._steps():
            if newer > step:
                shutil.rmtree(self.directory / f"{newer:09d}")


def checked_state(state: dict[str, Any], run_dir: Path, num_envs: int) -> dict[str, Any]:
    """What a run needs to go on; its checksum was right, so another program must have written something else."""
    whole, real = (int,), (float, int)
    kinds = {"streams": (dict,), "losses": (dict,), "metrics_bytes": whole}
    of_each = {"episode": whole, "episode_start": whole, "episode_return": real}
    for name, kind in (kinds | of_each).items():
        value = state.get(name)
        values = value if name in of_each and num_envs > 1 and isinstance(value, list) else [value]
        expected = num_envs if name in of_each else 1
        if len(values) != expected or not all(type(one) in kind for one in values):
            raise Damaged(f"a checkpoint of {run_dir} does not hold the state of a run: {name!r} is missing or wrong")
    if not isinstance(state.get("best", ""), int | float | None):
        raise Damaged(f"a checkpoint of {run_dir} does not hold the state of a run: 'best' is missing or wrong")
    return state


def unfinished(run_dir: Path, config: TrainConfig) -> str | None:
    """One sentence if the policy of this run is not that of a finished training; None if it is."""
    if read_conversion(run_dir) is not None:
        return None  # only finished runs are converted
    store = CheckpointStore(run_dir, config.checkpoint_interval)
    step, total = store.newest(), config.total_timesteps
    if step is None and kept_step(run_dir) is not None:
        return None  # nor are others kept without checkpoints
    if step is None:
        return f"{run_dir} has no checkpoints, so how far its policy was trained is not known"
    if step <= (config.learning_starts or 0):
        return f"the policy of {run_dir} is untrained: at step {step:,} its random warm-up was not over"
    if step < total:
        return f"the training of {run_dir} is unfinished: step {step:,} of {total:,}"
    if store.evaluation_is_due(step):
        return f"the training of {run_dir} is unfinished: its last evaluation is due"
    return None


def _check_format(manifest: dict[str, Any], path: Path) -> None:
    number = manifest.get("format", 1)
    if not is_sealed(manifest, or_never_was=number != FORMAT):
        raise Damaged(f"{path} does not match its checksum")
    if number == 1 and not manifest.keys() <= FIRST | {"format"}:
        raise Damaged(f"{path} is not a manifest")
    if number not in (1, FORMAT):
        raise OtherFormat(
            f"{path} has the checkpoint format {number!r}, and this version of carebn reads formats 1 and {FORMAT}: "
            f"install a newer one, or the one that wrote it"
        )


def _verified(path: Path, digest: str) -> bytes:
    try:
        data = read_file(path)
    except OSError as error:
        reason = "is missing" if isinstance(error, FileNotFoundError) else f"cannot be read ({error.strerror})"
        raise Damaged(f"{path} {reason}") from error
    if sha256(data) != digest:
        raise Damaged(f"{path} does not match its checksum")
    return data

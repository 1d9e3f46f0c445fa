"""What is kept of a finished run for others: what plays, and what vouches for it; the directory opens like a run.

Checkpoints, replay and the rows of training episodes stay behind: they are most of its size.
"""

import os
import shutil
from pathlib import Path
from tempfile import mkdtemp

from carebn.checksums import NAME as CHECKSUMS
from carebn.checksums import Vouched, sha256, vouching
from carebn.reading import read_file
from carebn.training.best import POLICY as BEST
from carebn.training.best import RECORD as BEST_RECORD
from carebn.training.checkpoint import unfinished
from carebn.training.files import flush_directory, write_file
from carebn.training.kept import RECORD, kept_record
from carebn.training.lock import is_locked
from carebn.training.policy import Policy, load
from carebn.training.policy_file import NAME as POLICY
from carebn.training.spaces_file import NAME as SPACES
from carebn.training.spaces_file import write_spaces
from carebn.training.worlds import Trust

METRICS = "metrics.jsonl"
WHOLE = ("config.json", "command.txt", "versions.json", "evaluation.json")  # where there is one
EVALUATION = b'"eval/mean_return"'
# Of a run that shall go on elsewhere; what else lies in its directory is nobody's business.
ALL_FILES = (*WHOLE, CHECKSUMS, METRICS, "timing.jsonl", POLICY, BEST, BEST_RECORD, SPACES, RECORD)
ALL_DIRECTORIES = ("checkpoint", "replay")


def finished_policy(run_dir: Path, trust: Trust = False) -> Policy:
    policy = load(run_dir, trust=trust)
    doubt = unfinished(run_dir, policy.config)
    if doubt is not None:
        raise ValueError(f"{doubt}; only finished runs are kept for others")
    return policy


def keep(run_dir: Path, to: Path, trust: Trust = False) -> None:
    """Fill the empty directory ``to``. All that is read is checked, as when a run is opened."""
    policy = finished_policy(run_dir, trust)
    vouched = Vouched(run_dir)
    whole = [name for name in WHOLE if (run_dir / name).is_file()]
    vouched.check(*whole)
    for name in whole:
        write_file(to / name, read_file(run_dir / name))
    tensors = read_file(run_dir / POLICY)
    write_file(to / POLICY, tensors)
    if policy.own is not None:
        write_spaces(to, *policy.own)
    rows = b"".join(line for line in vouched.log(METRICS).splitlines(keepends=True) if EVALUATION in line)
    logs = {}
    if rows:
        write_file(to / METRICS, rows)
        logs[METRICS] = (len(rows), sha256(rows))
    write_file(to / RECORD, kept_record(tensors, policy.config.total_timesteps))
    write_file(to / CHECKSUMS, vouching(to, whole, logs))


def copy_whole(run_dir: Path, to: Path, trust: Trust = False) -> None:
    """The same with checkpoints and replay, so that the run can go on where it is taken to."""
    if is_locked(run_dir):
        raise ValueError(f"another process is training in {run_dir}; wait for it")
    load(run_dir, trust=trust)
    for path in sorted(run_dir.iterdir()):
        if path.is_file() and (path.name in ALL_FILES or path.match("measure-*.jsonl")):
            shutil.copyfile(path, to / path.name)
        elif path.is_dir() and path.name in ALL_DIRECTORIES:
            shutil.copytree(path, to / path.name)


class Hidden:
    """A directory that is filled under a hidden name and is there only when complete: ``with Hidden(path) as place``.

    One that is there already gives way then."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> Path:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._place = Path(mkdtemp(prefix=f".{self.path.name}.", suffix=".part", dir=self.path.parent))
        self._place.chmod(0o755)  # temporary ones are closed to others
        self._old = self._place.with_suffix(".old")
        return self._place

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            if kind is None:
                if self.path.exists():
                    os.replace(self.path, self._old)
                os.replace(self._place, self.path)
                flush_directory(self.path.parent)
        finally:
            for path in (self._place, self._old):
                shutil.rmtree(path, ignore_errors=True)

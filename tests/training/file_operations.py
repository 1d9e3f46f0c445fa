"""Kills a run at each of its file operations in turn, lets it resume, and compares every file. Run by
``test_file_operations.py`` and ``make kill-test``; by hand: ``python file_operations.py td3 --share 0.1 --seed 1``.

A run of 45 steps is extended to 74, so that the operations of both are among those it is killed at. An operation is
opening for writing, writing (killed halfway), truncating, renaming, removing, making a directory, flushing to disk.
"""

import argparse
import builtins
import json
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

KINDS: dict[str, dict[str, Any]] = {
    "td3": {"env_id": "InvertedPendulum-v4", "method": "care-bn"},
    "dqn": {"env_id": "CartPole-v1", "algo": "dqn", "method": "care-bn", "measure": ("wasserstein",)},
    "converted": {"env_id": "InvertedPendulum-v4", "method": "crpi"},
    "ann-snn": {"env_id": "CartPole-v1", "algo": "dqn", "method": "ann-snn", "conversion_steps": 5},
}
STEPS, MORE_STEPS = 45, 74
KILLED = 137
CHANGES = ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate")


class Operations:
    """From now on, what this process does below ``directory`` is counted; the n-th operation is its last."""

    def __init__(self, directory: Path, last: int | None) -> None:
        self.directory, self.last = str(directory), last
        self.count = 0
        self.names: list[str] = []
        self._open, self._fsync = builtins.open, os.fsync
        builtins.open, os.fsync = self.open, self.fsync  # type: ignore[assignment]
        sys.addaudithook(self._hear)

    def _is_ours(self, path: Any) -> bool:
        return isinstance(path, str | os.PathLike) and os.fspath(path).startswith(self.directory)

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            if isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) and self._is_ours(path):
                self.happens("open")
        # A path that is relative to an open directory is one of shutil.rmtree's.
        removed = event in ("os.remove", "os.rmdir") and arguments[1] != -1
        if removed or (event in CHANGES and self._is_ours(arguments[0])):
            self.happens(event)

    def happens(self, name: str, halfway: Callable[[], object] = lambda: None) -> None:
        self.count += 1
        self.names.append(name)
        if self.count == self.last:
            halfway()
            os._exit(KILLED)

    def open(self, file: Any, mode: str = "r", *more: Any, **options: Any) -> Any:
        opened = self._open(file, mode, *more, **options)
        return Written(opened, self) if set(mode) & set("wax+") and self._is_ours(file) else opened

    def fsync(self, handle: Any) -> None:
        self.happens("fsync")
        self._fsync(handle)


class Written:
    """A file whose writes are counted."""

    def __init__(self, file: Any, operations: Operations) -> None:
        self._file, self._operations = file, operations

    def write(self, data: Any) -> Any:
        self._operations.happens("write", lambda: (self._file.write(data[: len(data) // 2]), self._file.flush()))
        return self._file.write(data)

    def truncate(self, *size: int) -> Any:
        self._operations.happens("truncate")
        return self._file.truncate(*size)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> "Written":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def contents(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name != "timing.jsonl"
    }


def train(kind: str, directory: Path, steps: int) -> None:
    from carebn.commands.train import run
    from carebn.training import TrainConfig

    options = KINDS[kind] | {"total_timesteps": steps, "run_dir": directory}
    run(TrainConfig(
        learning_starts=20, hidden=(8,), batch_size=8, eval_interval=20, eval_episodes=1, checkpoint_interval=15,
        recalibration_batches=2, log_interval=7, quiet=True, **options,
    ))  # fmt: skip


def in_a_child(work: Callable[[], None], said: Path) -> int:
    """Forked, because importing torch takes longer than all the rest; its exit code."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            with open(said, "w") as file:
                os.dup2(file.fileno(), 1)
                os.dup2(file.fileno(), 2)
            work()
            code = 0
        except BaseException as error:
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
        os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def explore(kind: str, share: float, seed: int) -> dict[str, Any]:
    place = Path(tempfile.mkdtemp(prefix="carebn-kills-"))
    said = place / "said"
    train(kind, place / "whole", MORE_STEPS)  # here, so that what is compiled is there for the children
    expected = contents(place / "whole")

    def run_and_extend(directory: Path, last: int | None) -> None:
        operations = Operations(directory, last)
        train(kind, directory, STEPS)
        train(kind, directory, MORE_STEPS)
        (place / "operations").write_text(json.dumps(operations.names))

    if in_a_child(lambda: run_and_extend(place / "counted", None), said) != 0:
        raise RuntimeError(said.read_text())
    names = json.loads((place / "operations").read_text())
    chosen = sorted(random.Random(seed).sample(range(1, len(names) + 1), max(1, round(share * len(names)))))
    wrong: list[str] = []
    directory = place / "killed"
    for last in chosen:
        code = in_a_child(partial(run_and_extend, directory, last), said)
        if code != KILLED:
            wrong.append(f"operation {last} ({names[last - 1]}) was not reached: {said.read_text()}")
        if in_a_child(lambda: train(kind, directory, MORE_STEPS), said) != 0:
            wrong.append(f"killed at operation {last} ({names[last - 1]}) it does not resume: {said.read_text()}")
        else:
            found = contents(directory)
            different = [name for name in expected | found if expected.get(name) != found.get(name)]
            if different:
                wrong.append(f"killed at operation {last} ({names[last - 1]}) it differs in {', '.join(different)}")
        shutil.rmtree(directory)
    shutil.rmtree(place)
    return {"operations": len(names), "killed": len(chosen), "kinds": sorted(set(names)), "wrong": wrong}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    import torch

    torch.set_num_threads(1)  # a process with more cannot be forked safely
    out = os.dup(1)
    os.dup2(2, 1)  # what training prints is not the answer
    answer = explore(options.kind, options.share, options.seed)
    os.write(out, (json.dumps(answer) + "\n").encode())

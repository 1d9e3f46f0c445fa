"""Damages the files of a run at random and gives it to the commands: each must refuse, or fall back and say so, or give
exactly what it gave before. Run by ``test_mutations.py`` and ``make damage-test``; by hand:
``python mutations.py --count 100 --seed 1``.
"""

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from file_operations import contents

COMMON: dict[str, Any] = {
    "total_timesteps": 45, "learning_starts": 20, "eval_interval": 20, "checkpoint_interval": 15, "log_interval": 7,
    "quiet": True,
}  # fmt: skip
SMALL: dict[str, Any] = {"hidden": (8,), "batch_size": 8, "eval_episodes": 1, "recalibration_batches": 2}
RUNS: dict[str, dict[str, Any]] = {
    # As the paper has it, so that its numbers are in the paper's tables
    "paper": {"env_id": "InvertedDoublePendulum-v4", "measure": ("wasserstein",)},
    "dqn": SMALL | {"env_id": "CartPole-v1", "algo": "dqn"},
    "converted": SMALL | {"env_id": "InvertedPendulum-v4", "method": "crpi"},
}
SHAPES = [
    b"",
    b"[]",
    b"{}",
    b"null",
    b"7",
    b'"x"',
    b'{"step": 20}',
    b'{"a": [1, 2]}',
    b"[" * 100_000,
    b"NaN",
    b"\xff\xfe",
]
PATIENCE = 300  # seconds: nothing may hang


class Outcome(NamedTuple):
    code: int
    out: str
    err: str
    files: dict[str, bytes]  # what the command leaves


def commands(run: Path, which: str) -> dict[str, list[str]]:
    found = {
        "resume": ["train", "--run-dir", str(run), "--quiet"],
        "evaluate": ["evaluate", str(run), "--episodes", "1"],
        "best": ["evaluate", str(run), "--episodes", "1", "--which", "best"],
        "report": ["report", str(run), "--format", "md", "--out", "report.md"],
        "export": ["export", str(run), "--to", "numpy", "--out", "policy.npz", "--observations", "20"],
    }
    if which == "paper":
        found["study"] = ["study", "show", "main", "--runs", str(run.parent)]
    if which == "converted":
        [directory] = run.glob("converted-*")
        found["converted"] = ["evaluate", str(directory), "--episodes", "1"]
        found.pop("export")
    return found


def carebn(words: list[str], place: Path) -> Outcome:
    """The command in a fork of this process, in ``place``."""
    child = os.fork()
    if child == 0:
        os.chdir(place)
        for number, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        sys.argv = ["carebn", *words]
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(PATIENCE)
        code = 1
        try:
            from carebn.cli import main

            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0
        except BaseException:
            import traceback

            os.write(2, traceback.format_exc().encode())
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    out, err = ((place / name).read_text(errors="replace") for name in ("out", "err"))
    files = {name: (place / name).read_bytes() for name in ("report.md", "policy.npz") if (place / name).exists()}
    if words[0] == "train":
        files = contents(Path(words[2]))
    return Outcome(code, out, err, files)


def copied(run: Path, place: Path) -> Path:
    """Large files are linked: what is written anew is renamed into their place."""
    shutil.rmtree(place, ignore_errors=True)

    def copy(source: str, target: str) -> None:
        if os.path.getsize(source) > 100_000:
            os.link(source, target)
        else:
            shutil.copy(source, target)

    shutil.copytree(run, place / "runs" / "run", copy_function=copy)
    return place / "runs" / "run"


def damage(run: Path, rng: random.Random) -> str:
    """One file of the run is no longer what it was; tells which, and what happened to it."""
    paths = sorted(path for path in run.rglob("*") if path.is_file() and path.name != ".lock")
    path = rng.choice(paths)
    name = path.relative_to(run)
    data = path.read_bytes()
    kind = rng.choice(["bit", "bit", "digit", "digit", "truncate", "delete", "swap", "shape", "append", "drop line"])
    if kind == "swap":
        other = rng.choice(paths)
        theirs = other.read_bytes()
        for one, bytes_ in ((path, theirs), (other, data)):
            one.unlink()
            one.write_bytes(bytes_)
        return f"{name} swapped with {other.relative_to(run)}"
    path.unlink()
    if kind == "delete":
        return f"{name} deleted"
    changed, where = bytearray(data), rng.randrange(max(1, len(data)))
    digits = [i for i, byte in enumerate(data[:100_000]) if 48 <= byte <= 57]
    if kind == "bit" and data:
        changed[where] ^= 1 << rng.randrange(8)
    elif kind == "digit" and digits:
        where = rng.choice(digits)
        changed[where] = 48 + (changed[where] - 48 + rng.randrange(1, 10)) % 10
    elif kind == "truncate":
        changed = changed[:where]
    elif kind == "append":
        changed += data[data[:-1].rfind(b"\n") + 1 :] if rng.random() < 0.5 else b"x"
    elif kind == "drop line" and b"\n" in data:
        lines = data.splitlines(keepends=True)
        where = rng.randrange(len(lines))
        changed = bytearray(b"".join(lines[:where] + lines[where + 1 :]))
    else:
        changed = bytearray(rng.choice(SHAPES))
    path.write_bytes(changed)
    return f"{name}: {kind} at {where}"


def judged(before: Outcome, now: Outcome, is_resume: bool) -> str:
    """What is wrong with the outcome; empty: nothing."""
    if "Traceback" in now.err or now.code not in (0, 1):
        return f"exit {now.code}: {now.err[-600:]}"
    lines = now.err.splitlines()
    if any(not line.startswith(("carebn: ", "warning: ")) for line in lines):
        return f"not a sentence: {now.err[-600:]}"
    if now.code == 1:
        return "" if lines and lines[-1].startswith("carebn: ") else f"refused without a word: {now.err}"
    if lines:
        return ""
    if now.files != before.files:
        return f"silently different: {[n for n in before.files | now.files if before.files.get(n) != now.files.get(n)]}"
    return "" if is_resume or now.out == before.out else f"silently different: {before.out!r} became {now.out!r}"


def explore(count: int, seed: int) -> dict[str, Any]:
    from carebn.commands.train import run as train
    from carebn.training import TrainConfig

    place = Path(tempfile.mkdtemp(prefix="carebn-damage-"))
    rng = random.Random(seed)
    before: dict[str, dict[str, Outcome]] = {}
    for name, options in RUNS.items():
        train(TrainConfig(run_dir=place / "whole" / name, **COMMON | options))
    wrong, refused, same = [], 0, 0
    for i in range(count):
        which = list(RUNS)[i % len(RUNS)]
        whole, there = place / "whole" / which, place / "there"
        if which not in before:
            before[which] = {}
            for command in commands(whole, which):
                for _ in "ab":  # the first may say that it compiles kernels
                    words = commands(copied(whole, there), which)[command]
                    before[which][command] = carebn(words, there)
                if before[which][command].code or before[which][command].err:
                    raise RuntimeError(f"{command}: {before[which][command]._replace(files={})}")
        number = rng.random()
        for command in commands(whole, which):
            run = copied(whole, there)
            words = commands(run, which)[command]
            what = damage(run, random.Random(number))
            now = carebn(words, there)
            verdict = judged(before[which][command], now, command == "resume")
            if verdict:
                wrong.append(f"{which}, {what}, {command}: {verdict}")
                print(f"mutation {i + 1}: {wrong[-1]}", file=sys.stderr, flush=True)
            refused += now.code == 1
            same += now.code == 0 and not now.err
    shutil.rmtree(place)
    return {"mutations": count, "commands refused": refused, "as before": same, "wrong": wrong}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    os.environ["COLUMNS"] = "200"
    import torch

    torch.set_num_threads(1)  # a process with more cannot be forked safely
    out = os.dup(1)
    os.dup2(2, 1)  # what training prints is not the answer
    answer = explore(options.count, options.seed)
    os.write(out, (json.dumps(answer) + "\n").encode())

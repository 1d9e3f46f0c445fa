"""What many run directories cost those who read them all: ``carebn study show`` and ``carebn report``.

    python benchmarks/bench_index.py [--runs 10000] [--directory DIR]

Writes made-up runs of the paper's main table (their files as training leaves them, without checkpoints), reads them
without an index and with a warm one, changes one file by a digit, keeping its size and time, and reads again: the
change must be noticed. Seconds are those of the processor, memory is the most that the process had.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "study"))
from fake_runs import PROBE, write_run

from carebn.training.files import sha256
from carebn.training.vouch import vouch

ENVS = ("InvertedDoublePendulum-v4", "Ant-v4", "HalfCheetah-v4", "Hopper-v4", "Walker2d-v4")
METHODS = ("ann", "pop-san", "bn", "tdbn", "bntt", "tebn", "tab", "care-bn", "ca", "re")
QUIET = 3  # seconds after which the index believes a file that was just written


def write_runs(root: Path, number: int) -> None:
    cells = [(env_id, method) for env_id in ENVS for method in METHODS]
    for index in range(number):
        env_id, method = cells[index % len(cells)]
        seed = index // len(cells)
        run = write_run(root / f"{env_id}__{method}__{seed}", method, env_id, seed)
        logs = {path.name: path.read_bytes() for path in run.glob("*.jsonl") if path.name != "timing.jsonl"}
        vouch(run, {name: (len(data), sha256(data)) for name, data in logs.items()})


def measured(words: list[str]) -> tuple[str, str]:
    """What a command costs, and what it said."""
    before = os.times()
    said = subprocess.run([sys.executable, "-c", PROBE, *words], capture_output=True, text=True)
    after = os.times()
    if said.returncode:
        raise SystemExit(said.stderr)
    seconds = after.children_user + after.children_system - before.children_user - before.children_system
    peak = re.findall(r"peak MiB (\d+)", said.stderr)[0]
    return f"{seconds:.1f} s, {peak} MiB", said.stdout + said.stderr


def change_a_digit(run: Path) -> None:
    """In the middle of the metrics, where only the file itself can tell."""
    path = run / "metrics.jsonl"
    before, text = path.stat(), path.read_text()
    path.write_text(re.sub(r'("eval/mean_return": \d*)(\d)\.', lambda m: f"{m[1]}{9 - int(m[2])}.", text, count=1))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--directory", type=Path, help="where they are written; default: a temporary directory")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        root = (options.directory or Path(scratch)) / "runs"
        write_runs(root, options.runs)
        print(f"{options.runs:,} runs written", flush=True)
        time.sleep(QUIET)
        commands = {
            "study show": ["study", "show", "main", "--runs", str(root)],
            "report": ["report", str(root), "--out", str(root.parent / "report.html")],
        }
        for how in ("without an index", "with a warm one"):
            for name, words in commands.items():
                if how.startswith("without"):
                    (root / ".carebn-index.jsonl").unlink(missing_ok=True)
                print(f"{name}, {how}: {measured(words)[0]}", flush=True)
        changed = root / f"{ENVS[3]}__care-bn__0"
        change_a_digit(changed)
        for name, words in commands.items():
            cost, said = measured(words)
            noticed = changed.name in said
            print(f"{name}, after a change: {cost}; {'noticed' if noticed else 'NOT NOTICED'}", flush=True)


if __name__ == "__main__":
    main()

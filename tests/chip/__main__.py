"""The C file of a policy in whole numbers, built for this computer, a Cortex-M4 and RISC-V, and held to numpy.

For each of them: no floating point in the object file, the stack that the compiler states, the same commands bit for
bit on recorded and on random observations, instructions for an action as QEMU counts them, and a closed loop.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "examples" / "closed_loop"))

from board import BOARDS, Built, drawn  # noqa: E402
from closed_loop import exported, play  # noqa: E402

import carebn  # noqa: E402
from carebn.deploy.observations import observations  # noqa: E402

from .no_floats import helpers, instructions, undefined  # noqa: E402

RECORDED, COUNTED, SEED = 1000, 100, 7
KEPT = 0.95  # of the return
PACKAGES = (
    "gcc-arm-none-eabi libnewlib-arm-none-eabi gcc-riscv64-unknown-elf picolibc-riscv64-unknown-elf qemu-system-arm "
    "qemu-system-misc"
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="chip", description=__doc__)
    parser.add_argument("--run", type=Path, default=ROOT / "tests" / "deploy" / "trained_clif", help="a run directory")
    parser.add_argument("--weights", nargs="+", choices=("int8", "int16"), default=["int8", "int16"])
    parser.add_argument("--random", type=int, default=100_000, help="random observations")
    parser.add_argument("--boards", nargs="+", choices=BOARDS, default=list(BOARDS))
    parser.add_argument("--episodes", type=int, default=1, help="of the closed loop on each board; 0: none")
    parser.add_argument("--out", type=Path, help="the figures, as JSON")
    options = parser.parse_args()
    missing = [tool for name in options.boards for tool in BOARDS[name].missing()]
    if missing:
        print(f"make chip-test needs {', '.join(missing)}: install the packages {PACKAGES}", file=sys.stderr)
        return 1
    rows = [row for weights in options.weights for row in _checked(options, weights)]
    print(_table(rows))
    if options.out:
        options.out.write_text(json.dumps(rows, indent=1) + "\n")
    failed = [f"{row['weights']} on {row['board']}: {what}" for row in rows for what in row["failures"]]
    print("\n".join(failed) or "all of it equal")
    return int(bool(failed))


def _checked(options: argparse.Namespace, weights: str) -> list[dict]:
    trained = carebn.load(options.run)
    rows = []
    with tempfile.TemporaryDirectory() as directory:
        source, policy = exported(options.run, weights, Path(directory))
        recorded = policy.fixed(observations(options.run, trained, RECORDED).compared)
        random = drawn(options.random, policy.obs_dim, SEED)
        expected = policy.decide(recorded), policy.decide(random)
        env = trained.make_env()
        here = [_as_trained(trained, env, 3_000_000 + i) for i in range(options.episodes)]
        for board in options.boards:
            start = time.monotonic()
            built = Built(source, board)
            row = {"weights": weights, "board": board, "random": options.random, "failures": []}
            row |= _still(built, board, row["failures"])
            row |= _moving(built, recorded, expected, options.random, row["failures"])
            if options.episodes:
                with built.start() as line:
                    there = [play(line, policy, env, 3_000_000 + i) for i in range(options.episodes)]
                row |= {"return": float(np.mean(there)), "return as trained": float(np.mean(here))}
                if np.mean(there) < np.mean(here) - (1 - KEPT) * abs(np.mean(here)):
                    row["failures"].append(f"return {np.mean(there):.1f}, {np.mean(here):.1f} as trained")
            rows.append(row)
            print(f"{weights} on {board}: {time.monotonic() - start:.0f} s", flush=True)
    return rows


def _as_trained(policy, env, seed: int) -> float:
    obs, _ = env.reset(seed=seed)
    total, over = 0.0, False
    while not over:
        obs, reward, terminated, truncated, _ = env.step(policy.predict(obs)[0])
        total, over = total + float(reward), terminated or truncated
    return total


def _still(built: Built, board: str, failures: list[str]) -> dict:
    """What can be said without running it."""
    nm = built.tool("nm", "policy.o") if built.board.link else built._run("nm", "policy.o")
    dump = built.tool("objdump", "-d", "policy.o") if built.board.link else built._run("objdump", "-d", "policy.o")
    size = built.tool("size", "policy.o") if built.board.link else built._run("size", "policy.o")
    failures += [f"nm: {name}" for name in helpers(nm)] + [f"objdump: {line}" for line in instructions(dump, board)]
    asked = undefined(nm)
    failures += [f"allocates: {name}" for name in asked if name in ("malloc", "calloc", "realloc", "free", "alloca")]
    text, data, bss = map(int, size.splitlines()[1].split()[:3])
    frames = built.frames()
    return {"flash": text + data, "ram": data + bss, "stack": sum(frames.values()), "asks for": asked}


def _moving(built: Built, recorded, expected, count: int, failures: list[str]) -> dict:
    found = {}
    with built.start() as line:
        for name, got, wanted in (
            ("recorded", line.decide(recorded), expected[0]),
            ("random", line.decide_drawn(count, SEED), expected[1]),
        ):
            right = int((got[:, :-1] == wanted).all(1).sum())
            found[f"equal, {name}"] = right
            if right != len(wanted) or (got[:, -1] < 0).any():
                failures.append(f"{len(wanted) - right} of {len(wanted)} {name} observations differ")
        found["stack seen"] = line.stack_used()
    if built.board.counting:
        with built.start(counting=True) as line:
            instructions_ = line.decide(recorded[:COUNTED], b"i")[:, -1] * built.board.tick
        found |= {"instructions": round(instructions_.mean()), "most instructions": round(instructions_.max())}
    return found


def _table(rows: list[dict]) -> str:
    lines = [
        "| weights | on | flash | RAM | stack | instructions per action (most) | equal: recorded, random | return "
        "(as trained) |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        count = f"{row['instructions']:,} ({row['most instructions']:,})" if "instructions" in row else "–"
        played = f"{row['return']:.1f} ({row['return as trained']:.1f})" if "return" in row else "–"
        lines.append(
            f"| {row['weights']} | {row['board']} | {row['flash']:,} | {row['ram']:,} | {row['stack']:,} | {count} | "
            f"{row['equal, recorded']:,} of {RECORDED:,}, {row['equal, random']:,} of {row['random']:,} | {played} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())

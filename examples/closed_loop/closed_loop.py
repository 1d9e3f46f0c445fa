"""A trained policy acts from a process of its own, and the simulator asks it for every action.

    python examples/closed_loop/closed_loop.py RUN                    the C program, over a pipe
    python examples/closed_loop/closed_loop.py RUN --on cortex-m4     a Cortex-M4 in QEMU, over its serial port
    python examples/closed_loop/closed_loop.py RUN --on riscv32       a RISC-V board in QEMU, over its serial port
    python examples/closed_loop/closed_loop.py RUN --import my_robot  in an environment of your own, of my_robot.py

The policy is exported in whole numbers (``carebn export --weights int8``), compiled, and started. The simulator gives
an observation, which is turned into whole numbers as a sensor would; the program answers with a command in whole
numbers, which is turned into an action as a motor would. The same episodes are played by the policy as it was trained.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from board import BOARDS, Built, Line

import carebn
from carebn import deploy


def exported(
    run: Path, weights: str, directory: Path, episodes: int = 2, modules: Sequence[str] = ()
) -> tuple[Path, deploy.IntegerPolicy]:
    """The C file, and the same policy in numpy, which knows the units of observation and command.

    An export that fails says why, and ends this program with its code.
    """
    for to, name in (("c", "policy.c"), ("numpy", "policy.npz")):
        words = ["--to", to, "--weights", weights, "--out", str(directory / name), "--episodes", str(episodes)]
        words += ["--import", *modules] if modules else []
        done = subprocess.run(
            [sys.executable, "-m", "carebn", "export", str(run), *words], capture_output=True, text=True
        )
        if done.returncode:
            print(done.stderr, end="", file=sys.stderr)
            raise SystemExit(done.returncode)
    policy = deploy.load(directory / "policy.npz")
    assert isinstance(policy, deploy.IntegerPolicy)
    return directory / "policy.c", policy


def play(line: Line, units: deploy.IntegerPolicy, env, seed: int, steps: int = 100_000) -> float:
    """The return of one episode in which every action comes over the line."""
    obs, _ = env.reset(seed=seed)
    total = 0.0
    for _ in range(steps):
        row = np.asarray(obs).reshape(1, -1)
        *command, code = line.decide(units.fixed(row if units.byte_observations else row.astype(np.float32)))[0]
        if code < 0:
            raise ValueError(f"the policy refuses to act: code {code}")
        action = code  # of a discrete policy it is the number of the action
        if units.command is not None:
            action = (np.array(command) / 2.0**units.command.bits).astype(np.float32)
        obs, reward, terminated, truncated, _ = env.step(action)
        total += float(reward)
        if terminated or truncated:
            break
    return total


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="a run directory")
    parser.add_argument("--on", choices=BOARDS, default="computer", help="where the policy runs")
    parser.add_argument("--weights", choices=("int8", "int16"), default="int8")
    parser.add_argument("--episodes", type=int, default=3)
    parser.add_argument("--seed", type=int, default=3_000_000, help="of the first episode")
    parser.add_argument(
        "--import", dest="modules", metavar="MODULE", action="append", default=[],
        help="a Python module that the run's environment needs; may be given several times",
    )  # fmt: skip
    options = parser.parse_args()
    try:
        closed_loop(options)
    except (ValueError, OSError) as error:
        print(f"closed_loop: {error}", file=sys.stderr)
        return 1
    return 0


def closed_loop(options: argparse.Namespace) -> None:
    trained = carebn.load(options.run, trust=tuple(options.modules))
    with tempfile.TemporaryDirectory() as directory:
        say(f"exporting {options.run} with {options.weights} weights, as C and for numpy, each compared with the run")
        source, units = exported(options.run, options.weights, Path(directory), modules=options.modules)
        say(f"building the program for {options.on}")
        built = Built(source, options.on)
        env = trained.make_env()
        say(f"playing {options.episodes} episodes, each over the line and as trained")
        with built.start() as line:
            for seed in range(options.seed, options.seed + options.episodes):
                there = play(line, units, env, seed)
                here = trained.evaluate(1, seed).mean
                say(f"seed {seed}: return {there:.1f} over the line, {here:.1f} as trained")


def say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())

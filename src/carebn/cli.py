"""The command line: finds the command, limits the thread pools, and tells a user's mistake in one sentence."""

import os
import sys
from importlib import import_module

import tyro

from carebn.errors import unknown_name

# Each is a module of carebn.commands.
COMMANDS = {
    "train": "train an agent; the same command again resumes it",
    "evaluate": "play noise-free episodes with a trained policy",
    "convert": "turn a trained ANN into a spiking policy",
    "methods": "list what can be trained: every system of the paper's comparison",
    "export": "turn a trained policy into a file for a chip, a microcontroller or another runtime",
    "energy": "what a decision costs: synaptic operations, FLOPs and joules",
    "watch": "film a policy at work: environment, spikes of every layer, action, return",
    "spikes": "draw one decision: every spike of every layer",
    "study": "the paper's tables and figures: list them, make their runs, show them beside the published numbers",
    "measure": "input distributions of normalisers, training cost",
    "report": "a page, tables or figures from run directories",
}


def _limit_threads(arguments: list[str]) -> None:
    """Thread pools take their size when their library is loaded, so it has to be known before that."""
    threads = "1"
    for i, word in enumerate(arguments):
        if word == "--threads" and i + 1 < len(arguments):
            threads = arguments[i + 1]
        elif word.startswith("--threads="):
            threads = word.partition("=")[2]
    if threads.isdigit():
        for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
            os.environ[name] = threads


def _usage() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:{width}}  {summary}" for name, summary in COMMANDS.items()]
    return "\n".join(
        [
            "usage: carebn COMMAND [options]",
            "",
            "Spiking reinforcement learning with CaRe-BN.",
            "",
            *lines,
            "",
            "carebn COMMAND --help explains a command's options.",
        ]
    )


def _run(arguments: list[str]) -> int:
    name, *rest = arguments or ["--help"]
    if name in ("-h", "--help", "help"):
        print(_usage())
        return 0 if arguments else 2
    if name == "--version":
        from carebn import __version__

        print(f"carebn {__version__}")
        return 0
    if name not in COMMANDS:
        raise ValueError(unknown_name("command", name, COMMANDS))
    _limit_threads(rest)
    command = import_module(f"carebn.commands.{name.replace('-', '_')}")
    config = tyro.cli(command.Config, prog=f"carebn {name}", args=rest)
    code: int = command.run(config)
    return code


def main() -> None:
    try:
        code = _run(sys.argv[1:])
    except (ValueError, OSError) as mistake:
        print(f"carebn: {mistake}", file=sys.stderr)
        code = 1
    sys.exit(code)


if __name__ == "__main__":
    main()

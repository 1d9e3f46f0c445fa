"""The command line: finds the command, limits the thread pools, and tells a user's mistake in one sentence.

Nothing heavy is imported above: a signal should find ``main`` at work, whenever it comes.
"""

import os
import signal
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from io import TextIOWrapper
from types import FrameType
from typing import Any

from carebn.errors import CarebnWarning, told, unknown_name
from carebn.limits import THREADS, check_most

STOPPED = "carebn: stopped"

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
    try:
        number = int(threads)
    except ValueError:
        return  # the parser says what is wrong with it
    if number < 1:
        raise ValueError(f"--threads must be at least 1, got {number}")
    check_most("--threads", number, THREADS)
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
        os.environ[name] = str(number)


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
    with _signals(_leave):
        import tyro

        command = import_module(f"carebn.commands.{name.replace('-', '_')}")
        config = tyro.cli(command.Config, prog=f"carebn {name}", args=rest)
    with _signals(_stop):
        code: int = command.run(config)
    return code


@contextmanager
def _signals(handler: Any) -> Iterator[None]:
    """Ctrl-C and SIGTERM (Slurm, Docker) go to ``handler``, unless somebody had them ignored (nohup)."""
    usual: dict[int, Any] = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    ours = [number for number, before in usual.items() if signal.getsignal(number) is before]
    for number in ours:
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, usual[number])


def _leave(number: int, frame: FrameType | None) -> None:
    """While libraries are being imported: nothing is to be saved, and they would turn an exception into their own."""
    os.write(2, f"{STOPPED}\n".encode())
    os._exit(128 + number)


class _Stop(KeyboardInterrupt):
    """Whatever cleans up after Ctrl-C does so after SIGTERM."""

    def __init__(self, number: int) -> None:
        self.code = 128 + number


def _stop(number: int, frame: FrameType | None) -> None:
    raise _Stop(number)


def _tell(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> str:
    return f"warning: {message}\n" if issubclass(category, CarebnWarning) else _python_tells(message, category, *place)


_python_tells = warnings.formatwarning


def _write_anywhere() -> None:
    """A letter that an output cannot show, as γ in a Windows pipe, is no reason to fail."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")


def _give_up_output() -> None:
    """Of a full disk or a closed pipe the interpreter would complain once more at its end."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def main() -> None:
    _write_anywhere()
    warnings.formatwarning = _tell
    try:
        code = _run(sys.argv[1:])
        sys.stdout.flush()  # here, where it can still be told that nobody takes it
    except (ValueError, OSError, MemoryError, RuntimeError, ArithmeticError) as mistake:
        sentence = told(mistake)
        if sentence is None:
            raise
        print(f"carebn: {sentence}", file=sys.stderr)
        _give_up_output()
        code = 1
    except KeyboardInterrupt as stop:
        print(STOPPED, file=sys.stderr)
        code = stop.code if isinstance(stop, _Stop) else 130
    finally:
        warnings.formatwarning = _python_tells
    sys.exit(code)


if __name__ == "__main__":
    main()

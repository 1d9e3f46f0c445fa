"""The command line: finds the command, limits the thread pools, and tells a user's mistake in one sentence.

Nothing heavy is imported above: a signal should find ``main`` at work, whenever it comes.
"""

import os
import select
import sys
import warnings
from contextlib import suppress
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from types import FrameType
from typing import Any

from carebn import compiling
from carebn.errors import CarebnWarning, not_installed, told, unknown_name
from carebn.limits import THREADS, check_most
from carebn.machine import THREAD_VARIABLES, collect_seldom
from carebn.reading import read_object
from carebn.stopping import STOPPED, Stop, handled_by, leave, obeyed_at_once

UNREAD = 141  # as a shell reports a program that its pipe has ended

# Each is a module of carebn.commands.
COMMANDS = {
    "train": "train an agent; the same command again resumes it",
    "tune": "search for good options: many short runs, the best to their end",
    "evaluate": "play noise-free episodes with a trained policy",
    "convert": "turn a trained ANN into a spiking policy",
    "methods": "list what can be trained: every system of the paper's comparison",
    "export": "turn a policy into a file for a chip or another runtime",
    "energy": "what a decision costs: synaptic operations, FLOPs and joules",
    "watch": "film a policy at work: environment, spikes, action, return",
    "spikes": "draw one decision: every spike of every layer",
    "zoo": "list trained policies; their names go where a run goes",
    "card": "write a policy's card: return, firing rates, energy, use",
    "push": "upload a run and its card to the Hugging Face Hub",
    "study": "the paper's tables and figures: list, run, show, and results",
    "measure": "input distributions of normalisers, training cost",
    "report": "a page, tables or figures from run directories",
}


def _limit_threads(arguments: list[str]) -> None:
    """Thread pools take their size when their library is loaded, so it has to be known before that."""
    threads = _value_of("threads", arguments) or _threads_in_files(arguments) or "1"
    try:
        number = int(threads)
    except ValueError:
        return  # the parser says what is wrong with it
    if number < 1:
        raise ValueError(f"--threads must be at least 1, got {number}")
    check_most("--threads", number, THREADS)
    for name in THREAD_VARIABLES:
        os.environ[name] = str(number)


def _value_of(option: str, arguments: list[str]) -> str | None:
    """What the command line gives to an option, the last time that it names it."""
    found = None
    for i, word in enumerate(arguments):
        name, equals, value = word.partition("=")
        if name.replace("_", "-") == f"--{option}":
            found = value if equals else "".join(arguments[i + 1 : i + 2])
    return found


def _threads_in_files(arguments: list[str]) -> str | None:
    """Those of a file of options, or of the run that is to go on. Whatever is wrong with them will be told later."""
    config, directory = _value_of("config", arguments), _value_of("run-dir", arguments)
    for path in (config and Path(config), directory and Path(directory) / "config.json"):
        with suppress(OSError, ValueError, KeyError, TypeError):
            if path:
                return str(read_object(path)["threads"])
    return None


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
    with handled_by(_leave):
        try:
            from carebn.options import parse

            command = import_module(f"carebn.commands.{name.replace('-', '_')}")
        except ModuleNotFoundError as error:
            if str(error.name).startswith("carebn"):
                raise
            raise ValueError(not_installed(f"carebn {name}", error)) from error
        config = parse(command, f"carebn {name}", rest)
        if hasattr(command, "resumed"):  # what the words leave open may follow from a run that is there already
            config = command.resumed(config, rest)
        if isinstance(getattr(config, "run", None), Path):
            config = _with_run_found(config)
        if "carebn.kernels" in sys.modules:
            compiling.listen(lambda: None if "--quiet" in rest else _say_that_it_compiles())
    with obeyed_at_once():
        code: int = command.run(config)
    return code


def _with_run_found(config: Any) -> Any:
    """A command's ``run`` is a run directory; a name of the zoo stands for one, and it is said which."""
    from dataclasses import replace

    from carebn.zoo.names import find_run

    found = find_run(config.run)
    if found == config.run:
        return config
    print(f"from the zoo: {found}", file=sys.stderr)
    return replace(config, run=found)


def _say_that_it_compiles() -> None:
    print(
        "compiling kernels that were not needed before (up to a minute; then they are kept on disk)",
        file=sys.stderr,
        flush=True,
    )


def _leave(number: int, frame: FrameType | None) -> None:
    """While libraries are being imported: nothing is to be saved, and they would turn an exception into their own."""
    leave(number, STOPPED)


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
    collect_seldom()
    warnings.formatwarning = _tell
    # Neither programs that are started from here nor numba's cache are to be taken from the current directory.
    os.environ["PYTHONSAFEPATH"] = "1"
    for name in ("NUMBA_CACHE_DIR", "NUMBA_CACHE_LOCATOR_CLASSES"):  # else a .numba_config.yaml there says where
        os.environ.setdefault(name, "")
    code: Any = 1
    unread = False
    try:
        code = _run(sys.argv[1:])
        sys.stdout.flush()  # here, where it can still be told that nobody takes it
    except SystemExit as end:  # of the parser, or of a console that nobody reads
        code, unread = end.code, _nobody_reads()
    except (ValueError, OSError, MemoryError, RuntimeError, ArithmeticError) as mistake:
        unread = isinstance(mistake.__cause__ or mistake, BrokenPipeError) and _nobody_reads()
        sentence = _blamed_on_environment(mistake) or told(mistake)
        if sentence is None:
            raise
        if not unread:
            print(f"carebn: {sentence}", file=sys.stderr)
            _give_up_output()
    except KeyboardInterrupt as stop:
        print(STOPPED, file=sys.stderr)
        code = stop.code if isinstance(stop, Stop) else 130
    finally:
        warnings.formatwarning = _python_tells
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:
        unread = True
    if unread:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for stream in (1, 2) if _is_closed(2) else (1,):
            os.dup2(nowhere, stream)  # for what is still to be flushed
        code = UNREAD
    sys.exit(code)


def _blamed_on_environment(fault: BaseException) -> str:
    """With the line of the user's that failed; empty if it is no environment's. Without its library there is none."""
    environment = sys.modules.get("carebn.training.environment")
    if environment is None or not isinstance(fault, environment.EnvironmentFailedError):
        return ""
    from carebn.training.blame import account

    return account(fault)


def _is_closed(stream: int) -> bool:
    """Whether it is a pipe at whose other end nobody is any more, as with ``carebn … | head``."""
    try:
        poll = select.poll()
    except AttributeError:  # Windows does not tell
        return False
    poll.register(stream, select.POLLOUT)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def _nobody_reads() -> bool:
    return _is_closed(1) or _is_closed(2)


if __name__ == "__main__":
    main()

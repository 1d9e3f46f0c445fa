"""The real entry point in a process of its own, with limits of memory and time.

The process is a fork of one that has imported everything already, which saves two seconds of each case. Its output,
its exit code and what it leaves behind are those that a user would get.
"""

import atexit
import contextlib
import io
import math
import os
import resource
import signal
import sys
import threading
import time
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from carebn import cli

from .cases import Case
from .damage import damage
from .world import Template

MEMORY = 6 * 2**30  # bytes of address space
FILE = 200 * 2**20  # bytes of a file
FIRST_STEPS = 2.0  # seconds of computing that a training run is left alone
MOST_WORK = 12.0  # seconds of computing for every other command
IDLE = 12.0  # seconds without any computing
PATIENCE = 150.0  # seconds of waiting for either, on a busy machine
GRACE = 60.0  # seconds to stop in
WITH_CHILDREN = ("study run", "tune", "measure cost", "watch")  # which work while it waits
LASTING = ("train", "tune", "study run", "measure cost")  # what may take as long as it was asked to


class Outcome(NamedTuple):
    code: int  # as a shell reports it; negative: killed by that signal
    out: str
    err: str
    left: tuple[str, ...]  # files that were not there before
    seconds: float
    cpu: float
    stopped: bool = False  # it did not end by itself
    ignored: bool = False  # nor when it was asked to


def prepare(template: Template) -> None:
    """Import what every command needs, and warm up; but no gradients, whose threads do not survive a fork."""
    os.environ["CAREBN_ZOO"] = "zoo"  # of the case, not of the clone
    for name in cli.COMMANDS:
        import_module(f"carebn.commands.{name}")
    for name in (
        "carebn.study.sweep.jobs", "carebn.study.evidence.gather", "carebn.study.report.terminal",
        "carebn.study.report.page", "carebn.study.report.figures", "carebn.study.views.studies",
        "carebn.study.views.explorer", "carebn.study.report.markdown", "carebn.deploy.onnx_export",
        "carebn.deploy.nir_export", "carebn.measure.distributions", "matplotlib.figure",
        "matplotlib.backends.backend_agg", "ale_py", "mujoco",
    ):  # fmt: skip
        with contextlib.suppress(ImportError):
            import_module(name)
    from carebn.commands import evaluate
    from carebn.training.curve import plot_curve

    with contextlib.redirect_stdout(io.StringIO()):
        for name in template.names:
            evaluate.run(evaluate.Config(template.runs / name, episodes=1))
            plot_curve(template.runs / name, name)


def run(case: Case, template: Template, name: str) -> Outcome:
    here = template.world(name)
    for path, kind, seed in case.damages:
        damage(here / path, kind, seed)
    before = _files(here)
    said = here.with_name(f"{name}.out"), here.with_name(f"{name}.err")
    begin = time.monotonic()
    child = os.fork()
    if child == 0:
        _become(case, here, *said)
    stopped, ignored = False, False
    work = FIRST_STEPS if case.command == "train" else MOST_WORK
    done = _waited(child, work, math.inf if case.command in WITH_CHILDREN else IDLE, PATIENCE)
    if done is None:
        stopped = True
        os.kill(child, signal.SIGTERM)
        done = _waited(child, math.inf, math.inf, GRACE)
    if done is None:
        ignored = True
        os.killpg(child, signal.SIGKILL)
        done = os.wait4(child, 0)
    _, status, usage = done
    out, err = (path.read_bytes().decode(errors="replace") for path in said)
    left = tuple(sorted(_files(here) - before))
    cpu, seconds = usage.ru_utime + usage.ru_stime, time.monotonic() - begin
    return Outcome(os.waitstatus_to_exitcode(status), out, err, left, seconds, cpu, stopped, ignored)


def _waited(child: int, work: float, idle: float, patience: float) -> tuple[int, int, resource.struct_rusage] | None:
    """How it ended; None: it goes on, after so many seconds of work, without any work, or at all."""
    began = worked_last = time.monotonic()
    worked = 0.0
    while worked <= work and time.monotonic() < min(worked_last + idle, began + patience):
        ended = os.wait4(child, os.WNOHANG)
        if ended[0]:
            return ended
        before, worked = worked, _computed(child)
        worked_last = time.monotonic() if worked > before else worked_last
        time.sleep(0.01)
    return None


def _computed(child: int) -> float:
    """Seconds of processor time so far."""
    with open(f"/proc/{child}/stat", "rb") as file:
        numbers = file.read().rpartition(b")")[2].split()
    return (int(numbers[11]) + int(numbers[12])) / os.sysconf("SC_CLK_TCK")


def _files(here: Path) -> set[str]:
    return {
        os.path.relpath(os.path.join(place, name), here)
        for root in (here, here / "full")
        for place, _, names in os.walk(root)
        for name in names
    }


def _become(case: Case, here: Path, out: Path, err: Path) -> None:
    """From here on this process is the command's, until it ends as an interpreter does."""
    os.setsid()
    os.chdir(here)
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(os.open(out, flags), 1)
    if case.output == "full":
        os.dup2(os.open("/dev/full", os.O_WRONLY), 1)
    if case.output == "closed":
        reader, writer = os.pipe()
        os.close(reader)
        os.dup2(writer, 1)
    os.dup2(os.open(err, flags), 2)
    sys.stdin, sys.stdout, sys.stderr = os.fdopen(0), os.fdopen(1, "w"), os.fdopen(2, "w", 1, errors="backslashreplace")
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE, FILE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.environ["COLUMNS"] = "200"
    sys.argv = ["carebn", *case.words]
    code = 1
    try:
        cli.main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
    except OSError as error:
        print(f"Exception ignored in: {sys.stdout!r}\n{type(error).__name__}: {error}", file=sys.stderr)
        code = 120
    os._exit(code)

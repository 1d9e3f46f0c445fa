"""One run in a process of its own, which ends with the process that started it.

parent: ``train_cell(order)`` starts ``python -m carebn.study.worker`` and waits
child:  reads the order from its standard input, which stays open as long as the parent lives; so it also hears when it
        shall stop, on systems without signals too
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from _thread import interrupt_main
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from carebn.machine import THREAD_VARIABLES

STOP = b"stop\n"

# Exit codes of the child. A negative code, as always, is the signal that killed it.
DONE, FAILED, BUSY, OUT_OF_MEMORY, INTERRUPTED = 0, 1, 75, 71, 130
STATES = {DONE: "done", FAILED: "failed", BUSY: "busy", INTERRUPTED: "interrupted"}  # all else: "died"

LOOK_UP = 0.2  # seconds between two looks at the child, so that an interruption is noticed


class Order(NamedTuple):
    """What to train, and where; plain data, because it may travel to another machine."""

    config: dict[str, Any]  # TrainConfig.as_json()
    run_dir: str
    measure: tuple[str, ...] = ()  # what to write down besides; not part of what a run computes


class Outcome(NamedTuple):
    state: str  # done, failed (for good), died (to be tried again), busy (somebody else trains it), interrupted
    message: str = ""


def train_cell(order: Order, on_start: Callable[[subprocess.Popen[bytes]], None] = lambda process: None) -> Outcome:
    """Train in a fresh process, whose thread pools have the size of the run's. An interruption is passed on to it."""
    _hear_interruptions()
    threads = str(order.config.get("threads", 1))
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "carebn.study.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=said,
            env=os.environ | dict.fromkeys(THREAD_VARIABLES, threads),
            # Ctrl-C reaches it once, from us, and not a second time from the terminal.
            start_new_session=True,
            creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),  # what Windows has instead
        )
        assert process.stdin is not None
        on_start(process)
        try:
            with process.stdin as pipe:  # closed at the end only: that is how the child knows that we live
                pipe.write(json.dumps(order._asdict()).encode() + b"\n")
                pipe.flush()
                _wait(process)
        except BrokenPipeError:
            pass  # it died before it could listen: its exit code tells
        finally:
            process.wait()
        said.seek(0)
        lines = said.read().decode(errors="replace").strip().splitlines()
    state = STATES.get(process.returncode, "died")
    if state == "died":
        how = "ran out of memory" if process.returncode == OUT_OF_MEMORY else f"exit code {process.returncode}"
        if process.returncode < 0:
            how = f"killed by {signal.Signals(-process.returncode).name}"
        return Outcome("died", how)
    return Outcome(state, lines[-1] if lines and state == "failed" else "")


def _hear_interruptions() -> None:
    """A shell that starts a program in the background has it ignore SIGINT, which whatever it starts inherits. A
    worker of Ray or Slurm is sent the signal on purpose."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _wait(process: subprocess.Popen[bytes]) -> None:
    while True:
        try:
            process.wait(timeout=LOOK_UP)
            return
        except subprocess.TimeoutExpired:
            continue
        except KeyboardInterrupt:
            ask_to_stop(process)


def ask_to_stop(process: subprocess.Popen[bytes]) -> None:
    """It saves itself, and ends."""
    assert process.stdin is not None
    with suppress(OSError, ValueError):  # it has ended by itself
        process.stdin.write(STOP)
        process.stdin.flush()


def _listen_to_parent() -> None:
    for line in sys.stdin.buffer:
        if line == STOP:
            interrupt_main()
    # The other end is closed: the parent is done with us, or dead.
    os._exit(FAILED)  # nothing is lost: the run resumes from its checkpoint


def main() -> int:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in what a shell starts in the background
    line = sys.stdin.buffer.readline()
    if line == STOP:
        return INTERRUPTED
    order = json.loads(line)
    threading.Thread(target=_listen_to_parent, daemon=True).start()
    from dataclasses import replace

    from carebn import compiling
    from carebn.measure.observers import observers_for
    from carebn.training import InterruptedRun, TrainConfig
    from carebn.training.lock import BusyRun
    from carebn.training.whole_run import carry_out

    compiling.listen(lambda: None)
    try:
        config = TrainConfig.from_json(order["config"])
        config = replace(config, run_dir=Path(order["run_dir"]), measure=tuple(order["measure"]), quiet=True)
        carry_out(config, observers_for(config))
        return DONE
    except InterruptedRun as stop:
        return stop.code
    except BusyRun:
        return BUSY
    except MemoryError:
        return OUT_OF_MEMORY
    except (ValueError, OSError) as mistake:
        print(mistake, file=sys.stderr)
    except Exception as error:  # a fault of ours or of an environment: one run's end, not the sweep's
        print(f"{type(error).__name__}: {error}".splitlines()[0], file=sys.stderr)
    return FAILED


if __name__ == "__main__":
    try:
        code = main()
    except KeyboardInterrupt:  # before training had begun
        code = INTERRUPTED
    sys.stderr.flush()
    os._exit(code)  # at once, without waiting for libraries' threads: everything is on disk

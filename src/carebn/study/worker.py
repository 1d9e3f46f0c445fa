"""One run in a process of its own, which ends with the process that started it.

parent: ``train_cell(order)`` starts ``python -m carebn.study.worker`` and waits
child:  reads the order from its standard input, which stays open as long as the parent lives; so it also hears when it
        shall stop, on systems without signals too
"""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from _thread import interrupt_main
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from carebn.machine import THREAD_VARIABLES, collect_seldom
from carebn.study.bars import Bars, StopBelow, given_up_at

STOP = b"stop\n"

# Exit codes of the child. A negative code, as always, is the signal that killed it.
DONE, FAILED, BUSY, GIVEN_UP, OUT_OF_MEMORY, INTERRUPTED = 0, 1, 75, 76, 71, 130
STATES = {DONE: "done", FAILED: "failed", BUSY: "busy", GIVEN_UP: "given up", INTERRUPTED: "interrupted"}
# all else: "died"

LOOK_UP = 0.2  # seconds between two looks at the child, so that an interruption is noticed
SIGHT = 10.0  # seconds that a shared disk may take to show what was made elsewhere


class Order(NamedTuple):
    """What to train, and where; plain data, because it may travel to another machine."""

    config: dict[str, Any]  # TrainConfig.as_json()
    run_dir: str
    measure: tuple[str, ...] = ()  # what to write down besides; not part of what a run computes
    bars: Bars = ()  # a run that stays below one of them is given up there
    witness: str = ""  # a file beside the runs: a node that does not see it would train where nobody looks


class Outcome(NamedTuple):
    state: str  # done, given up (below a bar), failed (for good), died (to be tried again), unseen (this node does not
    #             see the runs, another may), busy (somebody else trains it), interrupted
    message: str = ""


def train_cell(order: Order, on_start: Callable[[subprocess.Popen[bytes]], None] = lambda process: None) -> Outcome:
    """Train in a fresh process, whose thread pools have the size of the run's. An interruption is passed on to it."""
    if order.witness and not _sees(Path(order.witness)):
        return Outcome("unseen", unseen(socket.gethostname(), Path(order.witness).parent))
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
        return outcome_of(process.returncode, last_line(said.read()))


def last_line(said: bytes) -> str:
    return "".join(said.decode(errors="replace").strip().splitlines()[-1:])


def outcome_of(code: int, last_words: str) -> Outcome:
    """What an exit code of the child means."""
    state = STATES.get(code, "died")
    if state == "died":
        how = "ran out of memory" if code == OUT_OF_MEMORY else f"exit code {code}"
        if code < 0:
            how = f"killed by {signal.Signals(-code).name}"
        elif code == 128 + signal.SIGTERM:
            how = "stopped by SIGTERM"  # it has saved itself, if it had begun
        return Outcome("died", how)
    return Outcome(state, last_words if state == "failed" else "")


def _sees(witness: Path) -> bool:
    until = time.monotonic() + SIGHT
    while not witness.exists():
        if time.monotonic() >= until:
            return False
        time.sleep(LOOK_UP)
    return True


def unseen(node: str, runs: Path) -> str:
    """The sentence for a node that would train elsewhere than where everybody looks."""
    return (
        f"node {node} does not see the runs directory {runs}; mount it there under the same path, or choose --runs "
        f"that every node sees"
    )


def _hear_interruptions() -> None:
    """A shell that starts a program in the background has it ignore SIGINT, which whatever it starts inherits. A
    worker of Ray or Slurm is sent the signal on purpose. Of an end that is near, Slurm tells every process of a job
    (``END_IS_NEAR``): the child saves itself, and its parent has only to wait for that."""
    if threading.current_thread() is not threading.main_thread():
        return
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if END_IS_NEAR is not None:
        signal.signal(END_IS_NEAR, signal.SIG_IGN)


END_IS_NEAR: signal.Signals | None = getattr(signal, "SIGUSR2", None)  # before the time limit of a Slurm job


def _as_asked_to_end(number: int, frame: FrameType | None) -> None:
    signal.raise_signal(signal.SIGTERM)


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
    with open(0, "rb", buffering=0, closefd=False) as parent:
        for line in parent:
            if line == STOP:
                interrupt_main()
    # The other end is closed: the parent is done with us, or dead.
    os._exit(FAILED)  # nothing is lost: the run resumes from its checkpoint


def main_until_stopped(line: bytes | None = None) -> int:
    """The child, and the code that it ends with; ``line`` is its order, where that has been read already."""
    try:
        code = _main(line)
    except KeyboardInterrupt:  # before training had begun
        code = INTERRUPTED
    sys.stderr.flush()
    return code


def _main(line: bytes | None) -> int:
    collect_seldom()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in what a shell starts in the background
    if END_IS_NEAR is not None:
        signal.signal(END_IS_NEAR, _as_asked_to_end)
    if line is None:
        with open(0, "rb", buffering=0, closefd=False) as parent:
            line = parent.readline()
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
        bars: Bars = order["bars"]
        if given_up_at(Path(order["run_dir"]), bars) is not None:
            return GIVEN_UP
        done = carry_out(config, observers_for(config), callback=StopBelow(bars) if bars else None)
        return DONE if done.run.is_complete else GIVEN_UP
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
    os._exit(main_until_stopped())  # at once, without waiting for libraries' threads: everything is on disk

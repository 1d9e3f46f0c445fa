"""Runs one after another in forks of a process that has imported what all of them need.

To import torch and the rest takes seconds, a tiny run a fraction of one. Each run still has a process of its own, which
begins as all others began: the one it is forked from only imports, and has one thread.

parent: ``WarmWorker().train(order)``, as often as wanted
warm:   ``python -m carebn.study.warm`` reads an order, forks, waits, and answers with the exit code and the last words
fork:   ``worker.main``; it has the pipe to the parent to itself as long as it lives
"""

import ctypes
import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from importlib import import_module

from carebn.machine import THREAD_VARIABLES, collect_seldom
from carebn.study import worker
from carebn.study.worker import FAILED, STOP, Order, Outcome

CAN_FORK = sys.platform == "linux" and hasattr(
    os, "fork"
)  # elsewhere a fork is not to be had, or harms what libraries have begun
PDEATHSIG = 1  # the number of this request in Linux's prctl


class WarmWorker:
    """For runs with one thread: a library with several may have begun them before the fork."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "carebn.study.warm"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | dict.fromkeys(THREAD_VARIABLES, "1"),
            start_new_session=True,  # Ctrl-C reaches a run once, from us
        )

    def train(self, order: Order) -> Outcome:
        """If the warm process itself dies, its run, which dies with it, is to be tried again."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(order._asdict()).encode() + b"\n")
            self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer.endswith(b"\n"):
            return worker.outcome_of(self.process.wait(), "")
        code, last_words = json.loads(answer)
        return worker.outcome_of(code, last_words)

    @property
    def lives(self) -> bool:
        return self.process.poll() is None

    def close(self) -> None:
        """It ends when nobody can order anything any more; a run that is under way, too."""
        assert self.process.stdin is not None
        with suppress(OSError):
            self.process.stdin.close()
        self.process.wait()


# Also what is otherwise imported on the way: by torch when it differentiates, and for the curve at the end.
NEEDED = (
    "carebn.measure.observers", "carebn.training.whole_run",
    "torch.fx.experimental.symbolic_shapes", "torch.nested._internal.nested_tensor",
    "matplotlib.figure", "matplotlib.backends.backend_agg",
)  # fmt: skip


def _import_what_runs_need() -> None:
    collect_seldom()
    for name in NEEDED:
        with suppress(ImportError):  # torch's inner modules move now and then; whoever needs one says so
            import_module(name)
    import torch

    from carebn.kernels.catalogue import KERNELS

    KERNELS["packed_count"].compiled(torch.float32)  # and with it all that numba imports to load the first
    gc.freeze()  # forks share what they do not look through


def _forked(order: bytes) -> tuple[int, str]:
    """Exit code and last words of a run in a process of its own."""
    with tempfile.TemporaryFile() as said:
        warm, child = os.getpid(), os.fork()
        if not child:
            code = FAILED
            try:
                ctypes.CDLL(None).prctl(PDEATHSIG, signal.SIGKILL)
                if os.getppid() != warm:
                    os._exit(code)  # it died before that
                os.dup2(said.fileno(), 2)
                os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # answers are the warm process's
                code = worker.main_until_stopped(order)
            finally:
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        said.seek(0)
        return code, worker.last_line(said.read())


def main() -> None:
    _import_what_runs_need()
    with open(0, "rb", buffering=0, closefd=False) as orders:  # not a byte further: what follows is for the fork
        while line := orders.readline():
            if line != STOP:  # one for a run that had ended by itself
                print(json.dumps(_forked(line)), flush=True)


if __name__ == "__main__":
    main()

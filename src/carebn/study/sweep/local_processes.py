"""Runs in processes of this machine."""

import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from carebn.machine import cores
from carebn.study.sweep.place import Place
from carebn.study.warm import CAN_FORK, WarmWorker
from carebn.study.worker import Order, Outcome, ask_to_stop, train_cell


class LocalExecutor:
    """A thread per run that watches over a process."""

    def __init__(self, place: Place) -> None:
        self.slots = place.workers or cores()
        self._pool = ThreadPoolExecutor(self.slots)
        self._processes: set[subprocess.Popen[bytes]] = set()
        self._idle: list[WarmWorker] = []  # have imported what a run needs, and wait for one
        self._guard = threading.Lock()
        self._stopped = False

    def submit(self, order: Order) -> Future[Outcome]:
        return self._pool.submit(self._run, order)

    def _run(self, order: Order) -> Outcome:
        mine: list[subprocess.Popen[bytes]] = []

        def started(process: subprocess.Popen[bytes]) -> None:
            with self._guard:
                mine.append(process)
                self._processes.add(process)
                if self._stopped:
                    process.kill()

        try:
            if CAN_FORK and order.config.get("threads", 1) == 1:
                outcome = self._run_warm(order, started)
            else:
                outcome = train_cell(order, started)
        finally:
            with self._guard:
                self._processes.difference_update(mine)
        return Outcome("interrupted") if self._stopped and outcome.state == "died" else outcome

    def _run_warm(self, order: Order, started: Callable[[subprocess.Popen[bytes]], None]) -> Outcome:
        with self._guard:
            worker = self._idle.pop() if self._idle else None
        if worker is None or not worker.lives:
            worker = WarmWorker()
        started(worker.process)
        outcome = worker.train(order)
        with self._guard:
            self._idle.append(worker)
        return outcome

    def outcome(self, handle: Future[Outcome]) -> Outcome | None:
        return handle.result() if handle.done() else None

    def stop(self) -> None:
        with self._guard:
            for process in self._processes:
                if self._stopped:
                    process.kill()
                else:
                    ask_to_stop(process)
            self._stopped = True

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)
        for worker in self._idle:
            worker.close()

"""Where runs are carried out: processes on this machine, a Ray cluster, or Slurm. Scheduling is theirs.

An executor takes orders and says what became of them. All run the same ``train_cell``, so the results are the same.
"""

import os
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from carebn.machine import cores
from carebn.study.worker import Order, Outcome, ask_to_stop, train_cell

UNLIMITED = 100_000
MINUTES = 24 * 60  # of a Slurm job, unless asked otherwise; a run that needs longer is submitted again and resumes


@dataclass(frozen=True)
class Place:
    """Where to run, as the user says it."""

    on: str = "local"
    workers: int | None = None
    address: str | None = None
    options: tuple[str, ...] = ()  # Slurm's, as NAME=VALUE
    runs: Path = Path("runs")


class Executor(Protocol):
    slots: int  # how many orders it wants at a time

    def submit(self, order: Order) -> Any: ...

    def outcome(self, handle: Any) -> Outcome | None:
        """None while it is waiting or running."""
        ...

    def stop(self) -> None:
        """Ask all runs to save themselves and end; they then have outcomes."""
        ...

    def close(self) -> None: ...


class LocalExecutor:
    """A thread per run that watches over a process."""

    def __init__(self, place: Place) -> None:
        self.slots = place.workers or cores()
        self._pool = ThreadPoolExecutor(self.slots)
        self._processes: set[subprocess.Popen[bytes]] = set()
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
            outcome = train_cell(order, started)
        finally:
            with self._guard:
                self._processes.difference_update(mine)
        return Outcome("interrupted") if self._stopped and outcome.state == "died" else outcome

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


class RayExecutor:
    """A task per run. Nodes need this package and see the same run directory, as on one machine or a shared disk."""

    def __init__(self, place: Place) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is reported to anybody
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # graphics cards stay visible, no warning
        os.environ.setdefault("RAY_worker_niceness", "0")  # 15 by default: on a busy machine, hardly any time at all
        try:
            import ray
        except ImportError:
            raise ValueError("--on ray needs Ray: pip install ray") from None
        self._ray = ray
        self.slots = place.workers or UNLIMITED
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
        if place.address is None:
            options |= {"address": "local", "num_cpus": place.workers or cores(), "include_dashboard": False}
        else:
            _check_address(place.address)
            options["address"] = place.address
        try:
            ray.init(**options)
        except Exception as error:  # Ray's own many kinds
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            raise ValueError(_no_ray(place.address, reason)) from error
        # One process per task, never a used one; retrying is the sweep's, which knows what a run has achieved.
        self._task = ray.remote(num_cpus=1, max_retries=0, max_calls=1)(train_cell)
        self._handles: list[Any] = []

    def submit(self, order: Order) -> Any:
        threads = int(order.config.get("threads", 1))
        handle = self._task.options(num_cpus=threads).remote(order)
        self._handles.append(handle)
        return handle

    def outcome(self, handle: Any) -> Outcome | None:
        ready, _ = self._ray.wait([handle], timeout=0)
        if not ready:
            return None
        try:
            outcome: Outcome = self._ray.get(handle)
            return outcome
        except (self._ray.exceptions.TaskCancelledError, KeyboardInterrupt):
            return Outcome("interrupted")
        except self._ray.exceptions.RayTaskError as error:
            return Outcome("failed", str(error.cause).splitlines()[0] if str(error.cause) else repr(error.cause))
        except self._ray.exceptions.RayError as error:  # a worker or a node is gone
            return Outcome("died", f"Ray: {type(error).__name__}")

    def stop(self) -> None:
        for handle in self._handles:
            with suppress(Exception):
                self._ray.cancel(handle)

    def close(self) -> None:
        self._ray.shutdown()


def _check_address(address: str) -> None:
    """Ray itself waits long for a host that does not answer, and then says much."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        if address in ("auto", "local"):
            return
        raise ValueError(f"--address {address!r} is not HOST:PORT, ray://HOST:PORT or auto")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
    except (OSError, OverflowError) as error:
        raise ValueError(_no_ray(address, str(error))) from error


def _no_ray(address: str | None, reason: str) -> str:
    if address is None:
        return f"Ray could not be started on this machine: {reason}"
    return (
        f"no Ray cluster answers at {address} ({reason}); start one with 'ray start --head', or leave out --address to "
        f"use this machine"
    )


class SlurmExecutor:
    """A job per run, through submitit. ``address`` "local" tries it out without Slurm, on this machine."""

    def __init__(self, place: Place) -> None:
        try:
            import submitit
        except ImportError:
            raise ValueError("--on slurm needs submitit: pip install submitit") from None
        if place.address not in (None, "local"):
            raise ValueError(
                f"--address {place.address!r} does not apply to Slurm: run on a machine that has sbatch, or give "
                f"'local' to try it out on this one"
            )
        if place.address is None and shutil.which("sbatch") is None:
            raise ValueError(
                "--on slurm needs Slurm's sbatch, which this machine does not have; --address local tries a sweep out "
                "through submitit without it"
            )
        self.slots = place.workers or (UNLIMITED if place.address is None else cores())
        place.runs.mkdir(parents=True, exist_ok=True)
        # Nodes must see it, so it lies beside the runs; it is submitit's scratch, and goes when the sweep ends.
        self._folder = Path(tempfile.mkdtemp(prefix=".submitit-", dir=place.runs)).absolute()
        self._executor = submitit.AutoExecutor(folder=self._folder, cluster=place.address)
        parameters: dict[str, Any] = {"timeout_min": MINUTES, "cpus_per_task": 1, "name": "carebn"}
        for option in place.options:
            name, equals, value = option.partition("=")
            if not equals:
                raise ValueError(f"--slurm wants NAME=VALUE, as in --slurm partition=long, got {option!r}")
            own = name in ("timeout_min", "mem_gb", "cpus_per_task")
            number: Any = int(value) if value.isdigit() else value
            parameters[name if own else f"slurm_{name}"] = number
        try:
            self._executor.update_parameters(**parameters)
        except (NameError, TypeError) as error:
            raise ValueError(f"--slurm: {str(error).splitlines()[0]}") from error
        self._jobs: list[Any] = []
        self._stopped = False
        self._errors = (submitit.core.utils.UncompletedJobError, submitit.core.utils.FailedJobError)

    def submit(self, order: Order) -> Any:
        self._executor.update_parameters(cpus_per_task=int(order.config.get("threads", 1)))
        job = self._executor.submit(train_cell, order)
        self._jobs.append(job)
        return job

    def outcome(self, handle: Any) -> Outcome | None:
        if not handle.done():
            return None
        try:
            outcome: Outcome = handle.result()
        except self._errors as error:  # the job is gone without a result: killed, out of time, its node down
            outcome = Outcome("died", f"job {handle.job_id} ended without a result ({type(error).__name__})")
        return Outcome("interrupted") if self._stopped and outcome.state == "died" else outcome

    def stop(self) -> None:
        self._stopped = True
        for job in self._jobs:
            if not job.done():
                with suppress(Exception):
                    job.cancel()

    def close(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


EXECUTORS: dict[str, Callable[[Place], Executor]] = {
    "local": LocalExecutor,
    "ray": RayExecutor,
    "slurm": SlurmExecutor,
}

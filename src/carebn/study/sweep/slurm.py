"""Runs as Slurm jobs, through submitit: a job per run. Jobs are watched with squeue, which needs no accounting."""

import os
import re
import shutil
import subprocess
import time
from contextlib import redirect_stderr, suppress
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

from carebn.errors import LONGEST
from carebn.machine import cores
from carebn.study.sweep.place import UNLIMITED, Place
from carebn.study.sweep.scratch import Scratch
from carebn.study.worker import Order, Outcome, train_cell, unseen

MINUTES = 24 * 60  # of a job, unless asked otherwise; a run that needs longer is submitted again and resumes
WARNING = 90  # seconds before its time limit at which a job is told; of a short job, a quarter of its time
LOOK = 2.0  # seconds between two looks at the queue: all jobs at once
GRACE = 15.0  # seconds that a shared disk may take to show the result of a job that has ended
PATIENCE = 600.0  # seconds for which a controller that answered before may be silent
AGAIN = 10.0  # seconds between two attempts to submit
ALIVE = {
    *("PENDING", "RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING"),
    *("REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD"),
}


class Listed(NamedTuple):
    """A job as squeue tells of it."""

    state: str
    node: str
    reason: str


@dataclass(eq=False)
class Handle:
    """An order at Slurm; ``job`` is submitit's, None while nobody takes it."""

    order: Order
    job: Any = None
    ended: float | None = None  # when it was first seen to have ended, without a result yet
    since: float = 0.0  # nobody has taken it
    tried: float = 0.0
    refused: str = ""  # in Slurm's words


class SlurmExecutor:
    """``address`` "local" tries it out without Slurm, on this machine."""

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
        self._real = place.address is None
        parameters = _parameters(place.options)
        if self._real:
            if shutil.which("sbatch") is None:
                raise ValueError(
                    "--on slurm needs Slurm's sbatch, which this machine does not have; --address local tries a sweep "
                    "out through submitit without it"
                )
            _check_cluster(parameters)
        parameters.setdefault("timeout_min", MINUTES)
        parameters.setdefault("slurm_signal_delay_s", min(WARNING, 15 * parameters["timeout_min"]))
        self.slots = place.workers or (UNLIMITED if self._real else cores())
        self._runs = place.runs.absolute()
        # Nodes must see it, so it lies beside the runs; it holds submitit's files, and goes when the sweep ends.
        self._scratch = Scratch(place.runs, _cancel_left)
        self._executor = submitit.AutoExecutor(folder=self._scratch.path, cluster=place.address)
        self._excluded = [str(parameters["slurm_exclude"])] if "slurm_exclude" in parameters else []
        try:
            self._executor.update_parameters(**parameters)
        except (NameError, TypeError, ValueError) as error:
            self._scratch.remove()
            raise ValueError(f"--slurm: {str(error).splitlines()[0]}") from error
        self._handles: list[Handle] = []
        self._stopped = False
        self._accepted = False  # Slurm has taken a job of ours
        self._errors = (submitit.core.utils.UncompletedJobError, submitit.core.utils.FailedJobError)
        self._refusals = (submitit.core.utils.FailedJobError, submitit.core.utils.FailedSubmissionError)
        self._listed: dict[str, Listed] = {}
        self._results: set[str] = set()
        self._looked = 0.0
        self._heard = time.monotonic()  # of the controller
        self._blind: dict[str, str] = {}  # nodes that do not see the runs, and the sentence about each

    def submit(self, order: Order) -> Handle:
        handle = Handle(order._replace(witness=str(self._scratch.path)), since=time.monotonic())
        self._hand_in(handle)
        if handle.job is None and not self._accepted:
            raise ValueError(
                f"Slurm takes no job: {handle.refused}; see --slurm NAME=VALUE, and sinfo for what there is"
            )
        self._handles.append(handle)
        return handle

    def _hand_in(self, handle: Handle) -> None:
        handle.tried = time.monotonic()
        more = {"slurm_exclude": ",".join([*self._excluded, *self._blind])} if self._blind else {}
        self._executor.update_parameters(cpus_per_task=int(handle.order.config.get("threads", 1)), **more)
        try:
            with redirect_stderr(StringIO()):  # where submitit would print what it raises
                handle.job = self._executor.submit(train_cell, handle.order)
            self._accepted = True
        except self._refusals as error:
            handle.refused = _said(str(error))

    # --- what became of it -------------------------------------------------------------------------------------------

    def outcome(self, handle: Handle) -> Outcome | None:
        if handle.job is None:
            return self._outcome_of_refused(handle)
        outcome = self._outcome_of_job(handle) if self._real else self._result(handle) if handle.job.done() else None
        if outcome is None:
            return None
        self._handles.remove(handle)
        return Outcome("interrupted") if self._stopped and outcome.state == "died" else outcome

    def _outcome_of_refused(self, handle: Handle) -> Outcome | None:
        """The controller answered before, and may again."""
        now = time.monotonic()
        if self._stopped:
            outcome = Outcome("interrupted")
        elif self._blind and "node" in handle.refused.lower():
            outcome = Outcome("failed", f"{next(iter(self._blind.values()))}; no other node is there")
        elif now - handle.since > PATIENCE:
            outcome = Outcome("failed", f"Slurm takes no job any more: {handle.refused}")
        else:
            if now - handle.tried > AGAIN:
                self._hand_in(handle)
            return None
        self._handles.remove(handle)
        return outcome

    def _outcome_of_job(self, handle: Handle) -> Outcome | None:
        self._look()
        job_id, now = handle.job.job_id, time.monotonic()
        if handle.job.paths.result_pickle.name in self._results:
            return self._result(handle)
        found = self._listed.get(job_id)
        if found is not None and found.state in ALIVE:
            handle.ended = None  # Slurm may have put it into its queue again
            return None
        if handle.ended is None:
            handle.ended = now
        if now - handle.ended < (LOOK if found is not None and found.state != "COMPLETED" else GRACE):
            return None
        return self._without_result(handle, found)

    def _without_result(self, handle: Handle, found: Listed | None) -> Outcome:
        job_id = handle.job.job_id
        if found is None:
            if time.monotonic() - self._heard > PATIENCE:
                return Outcome("failed", f"Slurm's controller has not answered for {PATIENCE:.0f} seconds")
            return Outcome("died", f"Slurm's job {job_id} is gone without a result")
        if found.reason == "JobLaunchFailure" and not handle.job.paths.stdout.exists():
            sentence = unseen(found.node, self._runs)
            self._blind[found.node] = sentence
            return Outcome("unseen", sentence)
        where = f" on {found.node}" if found.node else ""
        return Outcome("died", f"Slurm's job {job_id} ended{where} as {found.state}")

    def _result(self, handle: Handle) -> Outcome:
        try:
            outcome: Outcome = handle.job.result()
        except self._errors as error:  # the job is gone without a result: killed, out of time, its node down
            return Outcome("died", f"job {handle.job.job_id} ended without a result ({type(error).__name__})")
        return outcome

    def _look(self) -> None:
        """At the queue first: what has ended by then has left its result by now."""
        now = time.monotonic()
        if now - self._looked < LOOK:
            return
        self._looked = now
        answer = _ask("squeue", "--me", "--noheader", "--states=all", "--format=%i|%T|%N|%r")
        if answer.returncode == 0:
            rows = [line.split("|", 3) for line in answer.stdout.splitlines() if line.count("|") >= 3]
            self._listed = {job_id: Listed(*about) for job_id, *about in rows}
            self._heard = time.monotonic()
        elif time.monotonic() - self._heard > PATIENCE:
            self._listed = {}
        self._results = {path.name for path in self._scratch.path.glob("*_result.pkl")}

    # --- ending ------------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        self._stopped = True
        for handle in self._handles:
            if handle.job is not None:
                with suppress(Exception):
                    handle.job.cancel()

    def close(self) -> None:
        if self._real:  # what Slurm has put into its queue again, and nobody waits for
            _cancel_left(self._scratch.path)
        self._scratch.remove()


def _parameters(options: tuple[str, ...]) -> dict[str, Any]:
    """submitit's, from NAME=VALUE."""
    found: dict[str, Any] = {"cpus_per_task": 1, "name": "carebn"}
    for option in options:
        name, equals, value = option.partition("=")
        if not equals:
            raise ValueError(f"--slurm wants NAME=VALUE, as in --slurm partition=long, got {option!r}")
        own = name in ("timeout_min", "mem_gb", "cpus_per_task")
        found[name if own else f"slurm_{name}"] = int(value) if value.isdigit() else value
    minutes = found.get("timeout_min", MINUTES)
    if not isinstance(minutes, int) or minutes < 1:
        raise ValueError(f"--slurm timeout_min must be whole minutes, at least 1, got {minutes!r}")
    return found


def _ask(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(words, capture_output=True, text=True)


def _said(text: str) -> str:
    """The last thing that Slurm says, without the name of its program."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    last = next((line for line in reversed(lines) if "error" in line.lower() or "fatal" in line.lower()), None)
    words = last or (lines[-1] if lines else "it does not say why")
    return re.sub(r"^\w+: ((error|fatal): )?", "", words)[:LONGEST].rstrip(".")


def _check_cluster(parameters: dict[str, Any]) -> None:
    """A controller that does not answer, or a partition that there is not, is told before anything is made; and jobs
    get no more time than their partition gives, for they would wait for ever."""
    answer = _ask("sinfo", "--noheader", "--format=%P|%l")
    if answer.returncode != 0:
        raise ValueError(
            f"Slurm does not answer ({_said(answer.stderr)}); try sinfo, and again when it shows the cluster's nodes"
        )
    rows = [line.split("|") for line in answer.stdout.split()]
    limits = {name.rstrip("*"): _minutes(limit) for name, limit in rows}
    asked = str(parameters.get("slurm_partition", "")).split(",")
    names = asked if asked != [""] else [name.rstrip("*") for name, _ in rows if name.endswith("*")]
    for name in names:
        if name not in limits:
            raise ValueError(f"Slurm has no partition {name!r}; it has: {', '.join(sorted(limits))}")
    most = min((limits[name] for name in names), default=UNLIMITED)
    given = parameters.get("timeout_min")
    if given is not None and given > most:
        raise ValueError(f"--slurm timeout_min={given} is more than partition {','.join(names)} gives, {most}")
    parameters["timeout_min"] = given or min(MINUTES, most)


def _minutes(limit: str) -> int:
    """Of what sinfo prints: days-hours:minutes:seconds, or a word for no limit at all."""
    found = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", limit)
    days, hours, minutes, _ = (int(part or 0) for part in found.groups()) if found else (UNLIMITED, 0, 0, 0)
    return max(1, (days * 24 + hours) * 60 + minutes)


def _cancel_left(folder: Path) -> None:
    """Jobs whose sweep is no more: those that run save themselves."""
    jobs = sorted({name[0] for path in folder.glob("*_submitted.pkl") if (name := path.name.split("_"))[0].isdigit()})
    ended = {path.name.split("_")[0] for path in folder.glob("*_result.pkl")}
    left = [job for job in jobs if job not in ended]
    if left and shutil.which("scancel"):
        subprocess.run(
            ["scancel", "--quiet", *left], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=os.environ
        )

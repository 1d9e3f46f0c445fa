"""The sweep's decisions, with an executor in this process that does as it is told; and the lock of a run directory."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sweep_cases import tiny

from carebn.study.sweep import jobs as sweeping
from carebn.study.sweep.jobs import Sweep, last_progress
from carebn.study.worker import Order, Outcome
from carebn.training import Run
from carebn.training.lock import LOCK_FILE, BusyRun, is_locked, lock


class Scripted:
    """Gives the outcomes of a script, one after the other; may leave a checkpoint each time."""

    def __init__(self, *states: str, progress: bool = False) -> None:
        self.slots = 1
        self.script: Iterator[str] = iter(states)
        self.progress = progress
        self.orders: list[Order] = []
        self.stopped = 0

    def submit(self, order: Order) -> Order:
        self.orders.append(order)
        return order

    def outcome(self, handle: Order) -> Outcome | None:
        state = next(self.script)
        if state == "ctrl-c":
            raise KeyboardInterrupt
        if self.progress:
            (Path(handle.run_dir) / "checkpoint" / f"{len(self.orders):09d}").mkdir(parents=True)
        return None if state == "running" else Outcome(state, "because")

    def stop(self) -> None:
        self.stopped += 1

    def close(self) -> None: ...


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeping, "POLL", 0.0)
    monkeypatch.setattr(sweeping, "BUSY_PAUSE", 0.01)


def test_a_run_that_dies_without_coming_further_is_given_up(tmp_path: Path) -> None:
    sweep = Sweep([tiny()], tmp_path)
    assert not sweep.run(executor := Scripted(*["died"] * 9))
    assert len(executor.orders) == sweeping.DEATHS
    assert "died 3 times without coming any further (because)" in sweep.failed()[0].message


def test_a_run_that_comes_further_each_time_is_tried_on(tmp_path: Path) -> None:
    sweep = Sweep([tiny()], tmp_path)
    assert sweep.run(Scripted(*["died"] * 8, "done", progress=True))
    assert sweep.jobs[0].retries == 8


def test_one_failure_does_not_stop_the_others(tmp_path: Path) -> None:
    sweep = Sweep([tiny(seed=seed) for seed in range(3)], tmp_path)
    assert not sweep.run(Scripted("done", "failed", "running", "done"))
    assert [job.state for job in sweep.jobs] == ["done", "failed", "done"]


def test_a_run_that_turns_out_to_be_taken_is_looked_at_again(tmp_path: Path) -> None:
    sweep = Sweep([tiny()], tmp_path)
    assert sweep.run(executor := Scripted("busy", "busy", "done"))
    assert len(executor.orders) == 3


def test_an_interruption_stops_all_and_starts_nothing(tmp_path: Path) -> None:
    sweep = Sweep([tiny(seed=seed) for seed in range(3)], tmp_path)
    assert not sweep.run(executor := Scripted("running", "ctrl-c", "running", "ctrl-c", "interrupted"))
    assert executor.stopped == 2
    assert len(executor.orders) == 1
    assert [job.state for job in sweep.jobs] == ["stopped"] * 3
    assert sweep.stopping


def test_progress_is_read_from_the_end_of_the_metrics(tmp_path: Path) -> None:
    assert last_progress(tmp_path) == (0, None)
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 5, "eval/mean_return": 2.5}\n{"step": 7, "losses/x": 1}\n{"step": 9')
    assert last_progress(tmp_path) == (7, 2.5)
    with open(path, "w") as file:
        file.writelines(f'{{"step": {i}, "losses/x": 0.123456789}}\n' for i in range(10_000))
    assert last_progress(tmp_path) == (9999, None)
    path.write_text("rubbish\n")
    assert last_progress(tmp_path) == (0, None)


# --- the lock ---------------------------------------------------------------------------------------------------------


def test_a_directory_in_which_somebody_trains_is_refused(tmp_path: Path) -> None:
    from dataclasses import replace

    run = Run(replace(tiny(), run_dir=tmp_path / "run", quiet=True))
    with lock(tmp_path / "run"):
        assert is_locked(tmp_path / "run")
        with pytest.raises(BusyRun, match=r"another process is training in .*run; wait for it"):
            run.train()
        assert [path.name for path in (tmp_path / "run").iterdir()] == [LOCK_FILE]
    assert not is_locked(tmp_path / "run")
    assert run.train()
    assert not is_locked(tmp_path / "run")
    assert (tmp_path / "run" / LOCK_FILE).read_bytes() == b""


def test_nobody_is_training_where_nothing_is(tmp_path: Path) -> None:
    assert not is_locked(tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()


@pytest.mark.slow
def test_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys, pathlib; from carebn.training.lock import lock\n"
        "with lock(pathlib.Path(sys.argv[1])): print('held', flush=True); signal.pause()"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        assert is_locked(tmp_path)
        os.kill(process.pid, 9)
    assert not is_locked(tmp_path)

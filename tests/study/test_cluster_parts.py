"""What sweeps on clusters are made of, without a cluster: who sees the runs, what a dead sweep left, Slurm's words."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest
from sweep_cases import tiny
from test_sweep import Scripted

from carebn.study import worker
from carebn.study.bars import given_up_at, is_below
from carebn.study.sweep import jobs as sweeping
from carebn.study.sweep import slurm
from carebn.study.sweep.jobs import Display, Sweep
from carebn.study.sweep.place import Place
from carebn.study.sweep.scratch import Scratch
from carebn.study.worker import Order, Outcome, train_cell


def test_a_node_that_does_not_see_the_runs_trains_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "SIGHT", 0.0)
    runs = tmp_path / "elsewhere"
    outcome = train_cell(Order(tiny().as_json(), str(runs / "run"), witness=str(runs / ".sweep-1")))
    assert outcome.state == "unseen"
    assert f"does not see the runs directory {runs}; mount it there under the same path" in outcome.message
    assert not runs.exists()


def test_a_disk_may_take_a_moment_to_show_what_was_made_elsewhere(tmp_path: Path) -> None:
    late = threading.Timer(0.5, (tmp_path / "witness").touch)
    late.start()
    assert worker._sees(tmp_path / "witness")
    late.join()


def test_an_unseen_run_is_tried_on_and_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeping, "POLL", 0.0)
    said: list[str] = []

    class Heard(Display):
        def say(self, text: str) -> None:
            said.append(text)

    sweep = Sweep([tiny(), tiny(seed=1)], tmp_path, Heard())
    assert sweep.run(Scripted("unseen", "unseen", "unseen", "unseen", "done", "done"))
    assert sum("its runs go to other nodes" in text for text in said) == 1
    assert all(job.retries == 0 for job in sweep.jobs)


# --- given up ---------------------------------------------------------------------------------------------------------


def test_a_bar_is_about_the_best_until_its_step(tmp_path: Path) -> None:
    bars = [(20, 5.0), (30, 7.0)]
    assert not is_below(10, 0.0, bars)
    assert is_below(20, 4.9, bars)
    assert not is_below(20, 5.0, bars)
    rows = [(10, 6.0), (20, 1.0), (30, 2.0), (40, 9.0)]
    text = "".join(f'{{"step": {step}, "eval/mean_return": {value}}}\n{{"step": {step}}}\n' for step, value in rows)
    (tmp_path / "metrics.jsonl").write_text(text)
    assert given_up_at(tmp_path, bars) == 30
    assert given_up_at(tmp_path, bars[:1]) is None
    assert given_up_at(tmp_path / "nothing", bars) is None


@pytest.mark.slow
def test_a_run_below_a_bar_is_given_up_there_and_stays_so(tmp_path: Path) -> None:
    order = Order(tiny().as_json(), str(tmp_path / "run"), bars=((30, 1e9),))
    assert train_cell(order) == Outcome("given up")
    metrics = (tmp_path / "run" / "metrics.jsonl").read_bytes()
    assert b'"step": 30' in metrics
    assert b'"step": 40' not in metrics
    assert train_cell(order) == Outcome("given up")
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == metrics
    assert train_cell(order._replace(bars=())) == Outcome("done")


# --- what a sweep leaves ----------------------------------------------------------------------------------------------


def test_what_a_killed_sweep_left_is_cleared_and_a_living_ones_stays(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib, signal; from carebn.study.sweep.scratch import Scratch\n"
        "mine = Scratch(pathlib.Path(sys.argv[1])); print(mine.path, flush=True); signal.pause()"
    )
    living, dead = (
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    )
    assert living.stdout is not None
    assert dead.stdout is not None
    stays, goes = Path(living.stdout.readline().strip()), Path(dead.stdout.readline().strip())
    try:
        dead.kill()
        dead.communicate()
        (tmp_path / ".sweep-of-somebody").mkdir()
        cleared: list[Path] = []
        mine = Scratch(tmp_path, cleared.append)
        assert cleared == [goes]
        assert not goes.exists()
        assert stays.exists()
        mine.remove()
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted([stays.name, ".sweep-of-somebody"])
    finally:
        living.kill()
        living.communicate()


# --- Slurm's words ----------------------------------------------------------------------------------------------------


def pretend(directory: Path, monkeypatch: pytest.MonkeyPatch, **programs: str) -> None:
    """Programs of Slurm's that only speak."""
    directory.mkdir()
    for name, script in programs.items():
        (directory / name).write_text(f"#!/bin/sh\n{script}\n")
        (directory / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{directory}:/usr/bin:/bin")


@pytest.mark.parametrize(
    ("options", "sinfo", "sentence"),
    [
        (("partition=nowhere",), 'echo "short*|1:00:00"', "Slurm has no partition 'nowhere'; it has: short"),
        (("timeout_min=90",), 'echo "short*|1:00:00"', "timeout_min=90 is more than partition short gives, 60"),
        ((), 'echo "slurm_load_partitions: Unable to contact slurm controller (connect failure)" >&2; exit 1',
         r"Slurm does not answer \(Unable to contact slurm controller \(connect failure\)\)"),
        ((), 'echo "sinfo: error: x" >&2; echo "sinfo: fatal: Unable to process configuration file" >&2; exit 1',
         r"Slurm does not answer \(Unable to process configuration file\)"),
    ],
)  # fmt: skip
def test_a_cluster_that_will_not_do_is_told_before_anything_is_made(
    options: tuple[str, ...], sinfo: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("submitit")
    pretend(tmp_path / "bin", monkeypatch, sbatch="exit 1", srun="exit 1", sinfo=sinfo)
    with pytest.raises(ValueError, match=sentence) as error:
        slurm.SlurmExecutor(Place("slurm", options=options, runs=tmp_path / "runs"))
    assert "\n" not in str(error.value)
    assert not (tmp_path / "runs").exists()


def test_a_refused_first_job_ends_the_sweep_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("submitit")
    refusal = 'echo "sbatch: error: Batch job submission failed: Invalid account specified" >&2; exit 1'
    sinfo = 'echo "short*|infinite"'
    pretend(tmp_path / "bin", monkeypatch, sbatch=refusal, srun="exit 1", sinfo=sinfo, scancel="exit 0")
    executor = slurm.SlurmExecutor(Place("slurm", runs=tmp_path / "runs"))
    with pytest.raises(
        ValueError, match="Slurm takes no job: Batch job submission failed: Invalid account specified; see"
    ) as error:
        executor.submit(Order(tiny().as_json(), str(tmp_path / "runs" / "run")))
    assert "\n" not in str(error.value)
    assert capfd.readouterr().err == ""
    executor.close()
    assert list((tmp_path / "runs").iterdir()) == []


@pytest.mark.parametrize(
    ("limit", "minutes"), [("1:00:00", 60), ("2-00:00:00", 2880), ("30:00", 30), ("0:30", 1), ("1-12:30:00", 2190)]
)
def test_time_limits_are_read_as_slurm_prints_them(limit: str, minutes: int) -> None:
    assert slurm._minutes(limit) == minutes
    assert slurm._minutes("infinite") > 10**6

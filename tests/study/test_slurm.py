"""A real Slurm of two nodes, and what happens to sweeps on clusters: in the end every file is that of a local run."""

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_cases import (
    ASKED,
    RUNS,
    assert_as,
    may_hide_directories,
    sweep,
    sweep_in_another_process,
    swept_while,
    trainer,
    undisturbed,
    wait_for_checkpoint,
)
from slurm_cluster import SlurmCluster, free_ports, missing_programs, wait_until
from sweep_cases import tiny

from carebn.study.sweep.place import Place
from carebn.study.sweep.slurm import SlurmExecutor

pytest.importorskip("submitit")
pytestmark = [
    pytest.mark.slow,
    ASKED,
    pytest.mark.skipif(bool(missing_programs()), reason="needs Slurm and munge: apt-get install slurm-wlm munge"),
]


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    with SlurmCluster(tmp_path_factory.mktemp("slurm") / "cluster") as cluster:
        yield cluster
        processes = [process.pid for process in cluster.processes.values()]
    assert not cluster._leftovers()
    assert not any(Path(f"/proc/{pid}").exists() for pid in processes)


@pytest.fixture(autouse=True)
def _quiet_queue(slurm: SlurmCluster) -> Iterator[None]:
    """Nothing of a test is left for the next: neither jobs nor nodes that are down."""
    yield
    wait_until("no job is left", lambda: slurm.jobs("PENDING", "RUNNING", "COMPLETING") == [], 30)
    for node in ("n1", "n2"):
        if node not in slurm.processes:
            slurm.start_node(node)
    wait_until("both nodes are idle", lambda: slurm.ask("sinfo", "-h", "-o", "%T %D").split() == ["idle", "2"])


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, bytes]]:
    return undisturbed(tmp_path_factory.mktemp("local"))


Files = dict[str, dict[str, bytes]]


def first_job(slurm: SlurmCluster, runs: Path) -> str:
    """That of the first run, once it can lose something."""
    wait_for_checkpoint(runs / RUNS[0].name())
    return slurm.jobs("RUNNING")[0]


def test_a_cancelled_job_saves_its_run_and_the_next_goes_on(
    slurm: SlurmCluster, expected: Files, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    said = swept_while(Place("slurm", runs=tmp_path), lambda: slurm.ask("scancel", first_job(slurm, tmp_path)))
    assert any("stopped by SIGTERM; trying again from step" in text for text in said), said
    assert_as(expected, tmp_path)
    assert capfd.readouterr() == ("", "")  # submitit would speak of accounting, which this Slurm has not


def test_a_job_told_that_its_end_is_near_saves_its_run(slurm: SlurmCluster, expected: Files, tmp_path: Path) -> None:
    def tell() -> None:
        slurm.ask("scancel", "--signal=USR2", first_job(slurm, tmp_path))

    said = swept_while(Place("slurm", runs=tmp_path), tell)
    assert any("stopped by SIGTERM; trying again from step" in text for text in said), said
    assert_as(expected, tmp_path)


def test_a_job_whose_time_is_over_saves_its_run(slurm: SlurmCluster, expected: Files, tmp_path: Path) -> None:
    """It is held up until its minute is over. Without a warning: Slurm's own SIGTERM is what it gets."""
    held: list[str] = []

    def hold() -> None:
        held.append(first_job(slurm, tmp_path))
        os.kill(trainer(tmp_path / RUNS[0].name()), signal.SIGSTOP)

    said = swept_while(Place("slurm", options=("timeout_min=1", "signal_delay_s=0"), runs=tmp_path), hold)
    assert slurm.state(held[0]) == "TIMEOUT"
    assert any("stopped by SIGTERM; trying again from step" in text for text in said), said
    assert_as(expected, tmp_path)


def test_the_runs_of_a_node_that_goes_down_end_on_another(slurm: SlurmCluster, expected: Files, tmp_path: Path) -> None:
    nodes: list[str] = []

    def take_down() -> None:
        nodes.append(slurm.node_of(first_job(slurm, tmp_path)))
        slurm.take_down(nodes[0])

    swept_while(Place("slurm", runs=tmp_path), take_down)
    assert nodes[0] in ("n1", "n2")
    assert_as(expected, tmp_path)


def test_a_requeued_job_and_a_second_sweep_do_not_disturb_each_other(
    slurm: SlurmCluster, expected: Files, tmp_path: Path
) -> None:
    """Slurm starts the job anew while somebody else submits the same runs: each is trained by one at a time."""
    second: list[list[str]] = []

    def requeue() -> None:
        job = first_job(slurm, tmp_path)
        subprocess.run(["scontrol", "requeue", job], check=True)
        second.append(swept_while(Place("slurm", runs=tmp_path), lambda: None))

    swept_while(Place("slurm", runs=tmp_path), requeue)
    assert len(second) == 1
    assert_as(expected, tmp_path)


def test_a_sweep_that_is_killed_and_started_anew(slurm: SlurmCluster, expected: Files, tmp_path: Path) -> None:
    """Its jobs outlive it. The next sweep on the directory has them save their runs, and takes over."""
    runs = tmp_path / "runs"
    for _ in range(2):
        driver = sweep_in_another_process(Place("slurm", runs=runs), tmp_path / "log")
        job = first_job(slurm, runs)
        driver.kill()
        driver.wait()
        assert slurm.state(job) == "RUNNING"
        assert list(runs.glob(".sweep-*"))
    swept_while(Place("slurm", runs=runs), lambda: None)
    assert_as(expected, runs)


def test_the_controller_may_be_away_for_a_while(slurm: SlurmCluster, expected: Files, tmp_path: Path) -> None:
    def restart() -> None:
        first_job(slurm, tmp_path)
        slurm.end("slurmctld", signal.SIGKILL)
        threading.Event().wait(15)
        slurm.start_controller()

    swept_while(Place("slurm", runs=tmp_path), restart)
    assert_as(expected, tmp_path)


@pytest.mark.skipif(not may_hide_directories(), reason="needs unshare --mount, as root")
def test_a_node_that_does_not_see_the_runs_is_told_once_and_left_out(
    slurm: SlurmCluster, expected: Files, tmp_path: Path
) -> None:
    runs = tmp_path / "runs"
    runs.mkdir()
    slurm.end("n1", signal.SIGTERM)
    slurm.start_node("n1", hidden=runs)
    wait_until("both nodes are idle", lambda: slurm.ask("sinfo", "-h", "-o", "%T %D").split() == ["idle", "2"])
    try:
        said = swept_while(Place("slurm", runs=runs), lambda: None)
        told = [text for text in said if f"node n1 does not see the runs directory {runs}" in text]
        assert len(told) == 1, said
        assert_as(expected, runs)
        made, _ = sweep(Place("slurm", options=("nodelist=n1",), runs=runs), [tiny(seed=5)])
        assert [job.state for job in made.jobs] == ["failed"]
        assert f"node n1 does not see the runs directory {runs}" in made.jobs[0].message
    finally:
        slurm.end("n1", signal.SIGTERM)


# --- mistakes ---------------------------------------------------------------------------------------------------------


def test_mistakes_are_one_sentence(slurm: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for options, sentence in (
        (("partition=nowhere",), "Slurm has no partition 'nowhere'; it has: short"),
        (("timeout_min=6000",), "timeout_min=6000 is more than partition short gives, 60"),
        (("timeout_min=soon",), "timeout_min must be whole minutes"),
        (("colour=red",), "--slurm: "),
    ):
        with pytest.raises(ValueError, match=sentence) as error:
            SlurmExecutor(Place("slurm", options=options, runs=tmp_path))
        assert "\n" not in str(error.value)
    wrong = tmp_path / "slurm.conf"
    port = next(line for line in slurm.configuration.read_text().splitlines() if line.startswith("SlurmctldPort="))
    wrong.write_text(slurm.configuration.read_text().replace(port, f"SlurmctldPort={free_ports(1)[0]}"))
    monkeypatch.setenv("SLURM_CONF", str(wrong))
    with pytest.raises(ValueError, match=r"Slurm does not answer \(.*[Uu]nable to contact slurm controller") as error:
        SlurmExecutor(Place("slurm", runs=tmp_path))
    assert "\n" not in str(error.value)
    assert [path.name for path in tmp_path.iterdir()] == ["slurm.conf"]

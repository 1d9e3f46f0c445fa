"""The same runs on local processes, a real Ray cluster and submitit: the same files, even if a worker is killed."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from abilities import reads_proc
from cluster_cases import parent, sweep, trainer, wait_for_checkpoint
from sweep_cases import contents, tiny

from carebn.study.sweep.executors import EXECUTORS
from carebn.study.sweep.jobs import Sweep
from carebn.study.sweep.place import Place
from carebn.study.sweep.ray_cluster import RayExecutor
from carebn.study.sweep.slurm import SlurmExecutor
from carebn.study.warm import WarmWorker
from carebn.study.worker import Order, train_cell
from carebn.training.lock import is_locked

pytestmark = pytest.mark.slow

# Two kinds of agent; and two runs long enough to be killed or stopped half-way.
CONFIGS = [tiny(), tiny(method="care-bn", env_id="InvertedDoublePendulum-v4", seed=1, measure=("wasserstein",))]
HALF_WAY = tiny(total_timesteps=1500, eval_interval=750, checkpoint_interval=50)
LONG = tiny(total_timesteps=20_000, eval_interval=20_000, checkpoint_interval=200)


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    runs = tmp_path_factory.mktemp("local")
    made, _ = sweep(Place(runs=runs, workers=2), CONFIGS)
    assert [job.state for job in made.jobs] == ["done", "done"], [job.message for job in made.jobs]
    assert (runs / CONFIGS[1].name() / "measure-wasserstein.jsonl").stat().st_size > 0  # what was asked for arrives
    return runs


def test_local_processes_make_what_the_command_makes(local: Path, tmp_path: Path) -> None:
    directory = tmp_path / CONFIGS[0].name()
    words = CONFIGS[0].command().split()[2:]
    command = [sys.executable, "-m", "carebn.cli", "train", *words, "--run-dir", str(directory), "--quiet"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    assert contents(directory) == contents(local / CONFIGS[0].name())


@pytest.mark.parametrize("on", ["ray", "slurm"])
def test_clusters_make_identical_run_directories(on: str, local: Path, tmp_path: Path) -> None:
    pytest.importorskip({"ray": "ray", "slurm": "submitit"}[on])
    place = Place(on=on, workers=2, address={"ray": None, "slurm": "local"}[on], runs=tmp_path)
    made, _ = sweep(place, CONFIGS)
    assert [job.state for job in made.jobs] == ["done", "done"], [job.message for job in made.jobs]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(config.name() for config in CONFIGS)
    for config in CONFIGS:
        assert contents(tmp_path / config.name()) == contents(local / config.name())


def test_what_is_complete_is_left_alone(local: Path) -> None:
    before = {config.name(): (local / config.name() / "timing.jsonl").read_bytes() for config in CONFIGS}
    made, said = sweep(Place(runs=local), [*CONFIGS, CONFIGS[0]])  # a run that two studies share is one
    assert len(made.jobs) == 2
    assert all(job.found for job in made.jobs)
    assert said == []
    assert before == {name: (local / name / "timing.jsonl").read_bytes() for name in before}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("undisturbed") / "run"
    assert train_cell(Order(HALF_WAY.as_json(), str(directory))).state == "done"
    return directory


@reads_proc
@pytest.mark.parametrize(
    ("on", "whom", "said"),
    [
        ("local", "run", "killed by SIGKILL; trying again from step"),
        ("local", "parent", "killed by SIGKILL; trying again from step"),
        ("ray", "parent", "Ray: WorkerCrashedError; trying"),
    ],
)
def test_a_killed_worker_is_tried_again_and_ends_identical(
    on: str, whom: str, said: str, undisturbed: Path, tmp_path: Path
) -> None:
    """The parent of a run is the process that it was forked from, or Ray's worker: it must not outlive either."""
    pytest.importorskip({"local": "carebn", "ray": "ray"}[on])
    directory = tmp_path / HALF_WAY.name()

    def kill() -> None:
        wait_for_checkpoint(directory)
        process = trainer(directory)
        os.kill(parent(process) if whom == "parent" else process, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    made, heard = sweep(Place(on, workers=1, runs=tmp_path), [HALF_WAY])
    killer.join()
    assert made.jobs[0].state == "done"
    assert made.jobs[0].retries == 1
    assert said in heard[0]
    assert "from step 0" not in heard[0]  # from a checkpoint
    assert contents(directory) == contents(undisturbed)


def test_two_sweeps_on_one_directory_do_not_train_a_run_twice(tmp_path: Path) -> None:
    config = tiny(total_timesteps=900, eval_interval=300, checkpoint_interval=300)
    made: list[tuple[Sweep, list[str]]] = []
    sweeps = [
        threading.Thread(target=lambda: made.append(sweep(Place(runs=tmp_path, workers=1), [config]))) for _ in range(2)
    ]
    for thread in sweeps:
        thread.start()
    for thread in sweeps:
        thread.join()
    assert [one.jobs[0].state for one, _ in made] == ["done", "done"]
    said = [text for _, texts in made for text in texts]
    assert sum("another process is training it" in text for text in said) == 1
    assert sum("done elsewhere" in text for text in said) == 1
    assert (tmp_path / config.name() / "timing.jsonl").read_text().count("\n") == 3  # three evaluations, once each


@reads_proc
def test_runs_are_forks_of_one_process_and_leave_it_as_it_was(tmp_path: Path) -> None:
    """Its imports are made once, and a run that fails takes nothing with it."""
    warm = WarmWorker()
    try:
        own = tiny().as_json() | {"env_id": "Mine-v0"}
        outcomes = [
            warm.train(Order(own, str(tmp_path / "own"))),
            warm.train(Order(tiny().as_json(), str(tmp_path / "first"))),
            warm.train(Order(tiny().as_json(), str(tmp_path / "second"))),
        ]
        assert [outcome.state for outcome in outcomes] == ["failed", "done", "done"], outcomes
        assert "unknown environment 'Mine-v0'" in outcomes[0].message
        assert len(list(Path(f"/proc/{warm.process.pid}/task").iterdir())) == 1  # so that a fork has all there is
    finally:
        warm.close()
    assert train_cell(Order(tiny().as_json(), str(tmp_path / "fresh"))).state == "done"
    assert contents(tmp_path / "first") == contents(tmp_path / "second") == contents(tmp_path / "fresh")


def test_a_run_that_fails_for_good_is_told_and_the_others_go_on(tmp_path: Path) -> None:
    broken = tiny(env_id="NoSuchThing-v0")
    made, said = sweep(Place(runs=tmp_path, workers=2), [broken, tiny()])
    assert [job.state for job in made.jobs] == ["failed", "done"]
    assert "unknown environment 'NoSuchThing-v0'" in made.failed()[0].message
    assert sum("failed" in text for text in said) == 1
    assert made.jobs[0].retries == 0


@pytest.mark.parametrize(
    "start", ["worker import train_cell as train", "warm import WarmWorker; train = WarmWorker().train"]
)
def test_a_worker_ends_with_the_process_that_started_it(start: str, tmp_path: Path) -> None:
    code = (
        f"from sweep_cases import tiny; from carebn.study.worker import Order; from carebn.study.{start};"
        f"train(Order(tiny(total_timesteps=10**6, checkpoint_interval=100).as_json(), {str(tmp_path / 'run')!r}))"
    )
    path = f"{Path(__file__).parent}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    starter = subprocess.Popen([sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": path})
    wait_for_checkpoint(tmp_path / "run")
    starter.kill()
    starter.wait()
    deadline = time.monotonic() + 20
    while is_locked(tmp_path / "run"):
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize("on", ["local", "ray", "slurm"])
def test_stopping_saves_every_run(on: str, tmp_path: Path) -> None:
    pytest.importorskip({"local": "carebn", "ray": "ray", "slurm": "submitit"}[on])
    executor = EXECUTORS[on](Place(on, workers=1, address="local" if on == "slurm" else None, runs=tmp_path))
    directory = tmp_path / "run"
    handle = executor.submit(Order(LONG.as_json(), str(directory)))
    wait_for_checkpoint(directory)
    deadline = time.monotonic() + 60
    executor.stop()
    while (outcome := executor.outcome(handle)) is None:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    executor.close()
    assert outcome.state == "interrupted"
    assert not is_locked(directory)
    assert list(directory.glob("checkpoint/0*"))


# --- mistakes ---------------------------------------------------------------------------------------------------------


def test_a_ray_address_that_nobody_answers_is_one_sentence() -> None:
    pytest.importorskip("ray")
    with socket.socket() as taken:  # bound but not listening: nobody answers there
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ValueError, match=f"no Ray cluster answers at {address}"):
            RayExecutor(Place(on="ray", address=address))
    with pytest.raises(ValueError, match="is not HOST:PORT"):
        RayExecutor(Place(on="ray", address="nowhere"))


def test_slurm_without_slurm_is_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("submitit")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ValueError, match="sbatch, which this machine does not have"):
        SlurmExecutor(Place(on="slurm", runs=tmp_path))
    with pytest.raises(ValueError, match="does not apply to Slurm"):
        SlurmExecutor(Place(on="slurm", address="1.2.3.4:5", runs=tmp_path))
    with pytest.raises(ValueError, match="NAME=VALUE"):
        SlurmExecutor(Place(on="slurm", address="local", options=("partition",), runs=tmp_path))

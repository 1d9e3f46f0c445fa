"""Sweeps on clusters, and what the tests of a cluster look at: who trains where, and what is left when all is over."""

import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from slurm_cluster import wait_until
from sweep_cases import contents, tiny

from carebn.study.sweep.executors import EXECUTORS
from carebn.study.sweep.jobs import Display, Sweep
from carebn.study.sweep.place import Place
from carebn.study.worker import Order, train_cell
from carebn.training import TrainConfig

ASKED = pytest.mark.skipif(
    not os.environ.get("CAREBN_CLUSTERS"), reason="takes minutes: make slurm-test and make ray-test"
)

# Long enough to be disturbed half-way; two, so that both nodes are busy.
RUNS = [tiny(total_timesteps=1500, eval_interval=750, checkpoint_interval=50, seed=seed) for seed in (0, 1)]
TRAINING, WHOLE = 240, 600  # seconds that a first checkpoint, and a whole sweep, may take on a busy machine


class Heard(Display):
    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)


def sweep(place: Place, configs: list[TrainConfig]) -> tuple[Sweep, list[str]]:
    heard = Heard()
    made = Sweep(configs, place.runs, heard)
    executor = EXECUTORS[place.on](place)
    try:
        made.run(executor)
    finally:
        executor.close()
    return made, heard.said


def swept_while(place: Place, disturb: Callable[[], object], configs: list[TrainConfig] = RUNS) -> list[str]:
    """A sweep that something happens to. All runs must be done in the end; returns what was said."""
    ended: list[tuple[Sweep, list[str]]] = []
    # Not the sweep but the disturbance is in the main thread: only there can Ray start a node.
    thread = threading.Thread(target=lambda: ended.append(sweep(place, configs)), daemon=True)
    thread.start()
    disturb()
    thread.join(WHOLE)
    assert ended, "the sweep has not come to its end"
    made, said = ended[0]
    assert [job.state for job in made.jobs] == ["done"] * len(configs), [job.message for job in made.jobs]
    return said


def sweep_in_another_process(place: Place, log: Path) -> "subprocess.Popen[bytes]":
    """One that can be killed."""
    where = f"{place.on!r}, {place.workers!r}, {place.address!r}, {place.options!r}, Path({str(place.runs)!r})"
    code = (
        "from pathlib import Path; from cluster_cases import RUNS, sweep; from carebn.study.sweep.place import Place;"
        f"sweep(Place({where}), RUNS)"
    )
    tests = Path(__file__).parent
    path = os.pathsep.join([str(tests), str(tests.parent), os.environ.get("PYTHONPATH", "")])
    with open(log, "wb") as out:
        return subprocess.Popen(
            [sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": path}, stdout=out, stderr=out
        )


def undisturbed(directory: Path) -> dict[str, dict[str, bytes]]:
    """The files of each run, as processes on this machine make them."""
    found = {}
    for config in RUNS:
        assert train_cell(Order(config.as_json(), str(directory / config.name()))).state == "done"
        found[config.name()] = contents(directory / config.name())
    return found


def assert_as(expected: dict[str, dict[str, bytes]], runs: Path) -> None:
    """The same runs, with the same bytes in every file, and nothing besides."""
    assert sorted(path.name for path in runs.iterdir()) == sorted(expected)
    for name, files in expected.items():
        assert contents(runs / name) == files


def wait_for_checkpoint(directory: Path) -> None:
    wait_until(f"{directory} has a checkpoint", lambda: bool(list(directory.glob("checkpoint/0*"))), TRAINING)


def trainer(directory: Path) -> int:
    """The process that trains there: it has the lock."""
    inode = (directory / ".lock").stat().st_ino
    for line in Path("/proc/locks").read_text().splitlines():
        words = line.split()
        if words[1] != "->" and int(words[5].split(":")[2]) == inode:  # an arrow: somebody waits for the one above
            return int(words[4])
    raise AssertionError("nobody is training")


def parent(process: int) -> int:
    return int(re.findall(r"^PPid:\s+(\d+)", Path(f"/proc/{process}/status").read_text(), re.M)[0])


def may_hide_directories() -> bool:
    """Whether a process can be given a view of the disk of its own, as a node without a shared disk has."""
    return subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode == 0

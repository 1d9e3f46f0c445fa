"""A Ray cluster of several nodes, and what happens to sweeps on it: in the end every file is that of a local run."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from cluster_cases import (
    ASKED,
    RUNS,
    assert_as,
    may_hide_directories,
    parent,
    sweep,
    sweep_in_another_process,
    swept_while,
    trainer,
    undisturbed,
    wait_for_checkpoint,
)
from slurm_cluster import wait_until
from sweep_cases import tiny

from carebn.study.sweep.place import Place
from carebn.study.sweep.ray_cluster import RayExecutor

pytest.importorskip("ray")
pytestmark = [pytest.mark.slow, ASKED]

Files = dict[str, dict[str, bytes]]


class RayNodes:
    """A head that trains nothing, and nodes of one core each, all on this machine."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}
        head = {"num_cpus": 0, "include_dashboard": False}
        self.cluster = started(lambda: Cluster(initialize_head=True, head_node_args=head))
        self.address: str = self.cluster.address

    def add(self) -> Any:
        return started(lambda: self.cluster.add_node(num_cpus=1))

    def remove(self, node: Any) -> None:
        """As if its power had failed, with all that runs there."""
        raylet = node.all_processes["raylet"][0].process.pid
        below = descendants(raylet)
        self.cluster.remove_node(node, allow_graceful=False)
        kill(below)

    def node_of(self, directory: Path, nodes: list[Any]) -> Any:
        """The node that trains there."""
        process = trainer(directory)
        raylets = {node.all_processes["raylet"][0].process.pid: node for node in nodes}
        while process > 1 and process not in raylets:
            process = parent(process)
        return raylets[process]


def started(start: Callable[[], Any]) -> Any:
    """Ray gives a node thirty seconds to begin, which on a busy machine are not always enough; then once more."""
    for attempts_left in (2, 1, 0):
        before = children()
        try:
            return start()
        except Exception as error:  # Ray's own is of no other kind
            if not attempts_left or "timed out during startup" not in str(error):
                raise
            for process in children() - before:
                kill([process, *descendants(process)])
    raise AssertionError


def kill(processes: Iterable[int]) -> None:
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def children() -> set[int]:
    """Of this process: each node of the cluster is one, with its own below it."""
    return {process for process in descendants(os.getpid()) if parent(process) == os.getpid()}


def descendants(process: int) -> list[int]:
    parents = {}
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                parents[int(path.name)] = parent(int(path.name))
            except (OSError, IndexError):
                continue
    found = {process}
    while more := {child for child, above in parents.items() if above in found} - found:
        found |= more
    return sorted(found - {process})


@pytest.fixture
def ray_nodes() -> Iterator[RayNodes]:
    import ray

    made = RayNodes()
    yield made
    ray.shutdown()  # of a sweep that has failed: its cluster could not be ended
    made.cluster.shutdown()


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return undisturbed(tmp_path_factory.mktemp("local"))


def test_nodes_leave_and_join_in_the_middle_of_a_sweep(ray_nodes: RayNodes, expected: Files, tmp_path: Path) -> None:
    nodes = [ray_nodes.add(), ray_nodes.add()]

    def disturb() -> None:
        directory = tmp_path / RUNS[0].name()
        wait_for_checkpoint(directory)
        gone = ray_nodes.node_of(directory, nodes)
        ray_nodes.remove(gone)
        nodes.remove(gone)
        nodes.append(ray_nodes.add())

    said = swept_while(Place("ray", address=ray_nodes.address, runs=tmp_path), disturb)
    assert any("Ray: " in text and "trying again from step" in text for text in said), said
    assert_as(expected, tmp_path)


def test_a_sweep_waits_for_nodes_when_all_have_left(ray_nodes: RayNodes, expected: Files, tmp_path: Path) -> None:
    node = ray_nodes.add()

    def disturb() -> None:
        wait_for_checkpoint(tmp_path / RUNS[0].name())
        ray_nodes.remove(node)
        time.sleep(5)
        ray_nodes.add()

    swept_while(Place("ray", address=ray_nodes.address, runs=tmp_path), disturb)
    assert_as(expected, tmp_path)


def test_the_driver_dies_and_comes_back(ray_nodes: RayNodes, expected: Files, tmp_path: Path) -> None:
    ray_nodes.add()
    runs = tmp_path / "runs"
    driver = sweep_in_another_process(Place("ray", address=ray_nodes.address, runs=runs), tmp_path / "log")
    wait_for_checkpoint(runs / RUNS[0].name())
    driver.kill()
    driver.wait()
    assert list(runs.glob(".sweep-*"))
    swept_while(Place("ray", address=ray_nodes.address, runs=runs), lambda: None)
    assert_as(expected, runs)


@pytest.mark.skipif(not may_hide_directories(), reason="needs unshare --mount, as root")
def test_a_node_that_does_not_see_the_runs_is_told_once_and_left_out(
    ray_nodes: RayNodes, expected: Files, tmp_path: Path
) -> None:
    """Alone it fails the runs in one sentence; beside one that sees them, it gets none."""
    runs = tmp_path / "runs"
    runs.mkdir()
    sentence = f"node {socket.gethostname()} does not see the runs directory {runs}; mount it there under the same path"
    program = Path(sys.executable).with_name("ray")
    start = [
        str(program),
        "start",
        "--address",
        ray_nodes.address,
        "--num-cpus",
        "1",
        "--block",
        "--disable-usage-stats",
    ]
    hide = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"', str(runs)]
    blind = subprocess.Popen([*hide, *start], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until("the node is there", lambda: number_of_nodes(ray_nodes) == 2, 120)
        made, said = sweep(Place("ray", address=ray_nodes.address, runs=runs), [tiny(seed=5)])
        assert [job.state for job in made.jobs] == ["failed"]
        assert made.jobs[0].message.startswith(sentence), made.jobs[0].message
        ray_nodes.add()
        said = swept_while(Place("ray", address=ray_nodes.address, runs=runs), lambda: None)
        assert sum(sentence in text for text in said) <= 1
        assert_as(expected, runs)
    finally:
        blind.terminate()
        blind.wait(60)


def number_of_nodes(ray_nodes: RayNodes) -> int:
    code = (
        f"import ray; ray.init({ray_nodes.address!r}, log_to_driver=False, logging_level='ERROR');"
        "print(sum(node['Alive'] for node in ray.nodes()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    return int(done.stdout.split()[-1]) if done.stdout.split() else 0


def test_a_cluster_that_has_gone_is_one_sentence(tmp_path: Path) -> None:
    made = RayNodes()
    made.cluster.shutdown()
    with pytest.raises(ValueError, match=f"no Ray cluster answers at {made.address}") as error:
        RayExecutor(Place("ray", address=made.address, runs=tmp_path))
    assert "\n" not in str(error.value)
    assert list(tmp_path.iterdir()) == []

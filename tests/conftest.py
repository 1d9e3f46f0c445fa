"""What the tests of every room may need. That it lies here also lets them import ``abilities`` and ``said``."""

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from abilities import BFLOAT16_PRODUCTS, obstacle
from forked import Warm
from said import Said

from carebn import cli
from carebn.machine import collect_seldom, cores

collect_seldom()


MEMORY = Path("/dev/shm")  # where flushing to disk costs nothing; a run flushes often
ROOM = 2 << 30  # bytes, several times what the tests leave


def pytest_configure() -> None:
    """The tests' files, and those of all they start, are kept in memory, if there is room and nobody says where."""
    if "TMPDIR" in os.environ or not os.access(MEMORY, os.W_OK):
        return
    disk = os.statvfs(MEMORY)
    if disk.f_bavail * disk.f_frsize > ROOM and not disk.f_flag & os.ST_NOEXEC:  # programs are compiled and run there
        width = torch.backends.cpu.get_cpu_capability()  # what was compiled for another is not to be found
        compiled = os.path.join(tempfile.gettempdir(), f"torchinductor_{os.getuid()}_{width}")
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", compiled)  # where torch has it: large, and kept
        os.environ["TMPDIR"] = str(MEMORY)
        tempfile.tempdir = None  # asked for already, by pytest


def pytest_xdist_auto_num_workers() -> int:
    """One more than cores: tests often wait, for processes that they have started or stopped."""
    return cores() + 1


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """For these small tensors: several gain nothing and lose much on a busy machine. What depends on their number sets
    it; ``test_kernel_threads`` shows that no bit does."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def carebn(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Callable[..., Said]:
    """Runs the command in this process, in an empty directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def call(*words: object) -> Said:
        monkeypatch.setattr(sys, "argv", ["carebn", *map(str, words)])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        out, err = capfd.readouterr()
        return Said(stop.value.code if isinstance(stop.value.code, int) else 0, out, err)

    return call


@pytest.fixture(scope="session")
def warm() -> Iterator[Warm]:
    """Starts the command in processes of its own, which import nothing: for all tests that start many."""
    made = Warm()
    yield made
    made.close()


@pytest.fixture(scope="session")
def bfloat16_products() -> None:
    """For tests that make them: skipped where torch itself cannot."""
    why = obstacle(BFLOAT16_PRODUCTS)
    if why is not None:
        pytest.skip(f"torch cannot multiply in bfloat16 on this machine ({why})")


@pytest.fixture(autouse=True)
def environment_variables() -> Iterator[None]:
    """As they were before: the command line, called within the tests' own process, sets some for all it starts."""
    before = os.environ.copy()
    yield
    if os.environ.copy() != before:
        os.environ.clear()
        os.environ.update(before)

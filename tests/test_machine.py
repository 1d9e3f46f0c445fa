"""What the machine tells about itself, and what is done where it does not; then everything on such a machine."""

import os
import platform
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from carebn import machine
from carebn.commands import measure
from carebn.measure import cost
from carebn.study.evidence.measured import read_measured
from carebn.training import files

TESTS = Path(__file__).parent
TINY = shlex.split(
    "--env-id Pendulum-v1 --learning-starts 20 --hidden 8 --batch-size 8 --eval-episodes 1 --recalibration-batches 2 "
    "--threads 2 --quiet"
)


def test_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 1 <= machine.cores() <= (os.cpu_count() or 1)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {3, 5, 7}, raising=False)
    assert machine.cores() == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    assert machine.cores() == os.cpu_count()
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert machine.cores() == 1


def test_peak_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("resource")
    found = machine.peak_memory()
    assert found is not None
    assert 50 < found < 100_000  # MiB, with torch loaded
    monkeypatch.setitem(sys.modules, "resource", None)
    assert machine.peak_memory() is None


PAGE_FAULTS = """
import ctypes, resource, torch
from carebn.machine import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        held = [torch.ones(1 << 19) for _ in range(8)]
        del held
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

ctypes.CDLL(None).mallopt(-3, 128 << 10)  # as every process begins, and whether that lasts is a matter of luck
given_back = faults()
keep_freed_memory()
faults()
print(given_back, faults())
"""


@pytest.mark.slow
@pytest.mark.parametrize("asked_otherwise", [False, True])
def test_freed_memory_is_kept_unless_the_user_asks_otherwise(asked_otherwise: bool) -> None:
    """Taking it from the system again costs a page fault for every 4 KiB."""
    if platform.libc_ver()[0] != "glibc":
        pytest.skip("only glibc is asked to keep it")
    own = {k: v for k, v in os.environ.items() if not k.startswith("MALLOC_")}
    if asked_otherwise:
        own["MALLOC_MMAP_THRESHOLD_"] = "131072"
    child = subprocess.run([sys.executable, "-c", PAGE_FAULTS], env=own, capture_output=True, text=True, check=True)
    given_back, kept = map(int, child.stdout.split())
    assert given_back > 10_000
    assert (kept > 10_000) is asked_otherwise


def test_a_cost_without_memory_is_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    costs = [cost.Cost("bn", "clif", 10.0, None), cost.Cost("care-bn", "clif", 12.5, None)]
    monkeypatch.setattr(cost, "measure_costs", lambda *_: costs)
    out = tmp_path / "training-cost.json"
    assert measure.run(measure.TrainingCost(("bn", "care-bn"), out=out)) == 0
    assert [line.split() for line in capsys.readouterr().out.splitlines()[1:-1]] == [
        ["bn", "10.0", "1.000", "–", "–"], ["care-bn", "12.5", "1.250", "–", "–"],
    ]  # fmt: skip
    read = read_measured([tmp_path]).costs
    assert read is not None
    assert read.by_method["bn", "clif"] == (10.0, None)


def test_directories_that_cannot_be_opened(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As on Windows; files are still written whole."""

    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    monkeypatch.delattr(os, "O_DIRECTORY", raising=False)
    files.write_atomically(tmp_path / "file", b"whole")
    files.write_atomically(tmp_path / "file", b"again")
    assert (tmp_path / "file").read_bytes() == b"again"


@pytest.mark.slow
def test_an_output_that_knows_no_greek(tmp_path: Path) -> None:
    """As where Windows writes into a pipe."""
    said = subprocess.run(
        [sys.executable, "-m", "carebn", "train", "--help"],
        env=os.environ | {"PYTHONIOENCODING": "cp1252", "PYTHONUTF8": "0"},
        cwd=tmp_path,
        capture_output=True,
    )
    assert said.returncode == 0, said.stderr
    assert b"--gamma" in said.stdout


# --- a system that has none of it -------------------------------------------------------------------------------------


def bare(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Python on a system without fcntl, resource, pwd, /proc, sched_getaffinity …"""
    path = os.pathsep.join([str(TESTS / "systems" / "bare"), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = os.environ | {"PYTHONPATH": path, "PYTHONWARNINGS": "ignore:only soft file lock"}
    return subprocess.run([sys.executable, *words], env=environment, cwd=cwd, capture_output=True, text=True)


def test_the_bare_system_is_bare(tmp_path: Path) -> None:
    for missing in ("import fcntl", "import resource", "import os; os.sched_getaffinity", "open('/proc/self/maps')"):
        assert bare("-c", missing, cwd=tmp_path).returncode == 1


@pytest.mark.slow
def test_every_module_is_imported_there(tmp_path: Path) -> None:
    code = (
        "import importlib, pkgutil, carebn\n"
        "names = [m.name for m in pkgutil.walk_packages(carebn.__path__, 'carebn.') if m.name != 'carebn.__main__']\n"
        "for name in names: importlib.import_module(name)\n"
        "print(len(names))"
    )
    done = bare("-c", code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 100


@pytest.mark.slow
def test_train_and_evaluate_there(tmp_path: Path) -> None:
    made = bare("-m", "carebn", "train", *TINY, "--total-timesteps", "60", "--run-dir", "run", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    played = bare("-m", "carebn", "evaluate", "run", "--episodes", "1", cwd=tmp_path)
    assert played.returncode == 0, played.stderr
    assert "return" in played.stdout


@pytest.mark.slow
def test_a_directory_in_which_somebody_trains_is_refused_there(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from carebn.training.lock import lock; from carebn.cli import main\n"
        "with lock(Path('run')): main()"
    )
    told = bare("-c", code, "train", *TINY, "--total-timesteps", "60", "--run-dir", "run", cwd=tmp_path)
    sentence = "carebn: another process is training in run; wait for it, or choose another --run-dir\n"
    assert (told.returncode, told.stdout, told.stderr) == (1, "", sentence)


@pytest.mark.slow
def test_a_sweep_is_stopped_there(tmp_path: Path) -> None:
    """Its processes hear of it without a signal, save themselves and end."""
    code = """
import time
from pathlib import Path
from carebn.study.sweep.local_processes import LocalExecutor
from carebn.study.sweep.place import Place
from carebn.study.worker import Order
from carebn.training import TrainConfig
config = TrainConfig(
    env_id="Pendulum-v1", method="ann", hidden=(8,), total_timesteps=10**6, learning_starts=10**5,
    checkpoint_interval=200, quiet=True,
)
executor = LocalExecutor(Place(workers=1))
handle = executor.submit(Order(config.as_json(), "run"))
while not list(Path("run").glob("checkpoint/0*")) and executor.outcome(handle) is None:
    time.sleep(0.01)
executor.stop()
while executor.outcome(handle) is None:
    time.sleep(0.01)
executor.close()
print(executor.outcome(handle).state)
"""
    done = bare("-c", code, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "interrupted\n"), done.stderr
    assert list(tmp_path.glob("run/checkpoint/0*/manifest.json"))

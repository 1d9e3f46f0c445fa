"""What a command imports before it trains, and how often Python looks for garbage: half of a short run was that."""

import gc
import subprocess
import sys
from pathlib import Path

import pytest

from carebn.machine import collect_seldom
from carebn.study.warm import NEEDED

TINY = [
    *("train", "--env-id", "Pendulum-v1", "--learning-starts", "20", "--hidden", "8"),
    *("--batch-size", "8", "--eval-episodes", "1", "--eval-interval", "40", "--checkpoint-interval", "20", "--quiet"),
]
# A run, and the same from its checkpoint on; then what of torch's compiler is there
RUN = """
import sys
from carebn import cli
for steps in ("40", "60"):
    sys.argv = ["carebn", *{words}, "--total-timesteps", steps]
    try:
        cli.main()
    except SystemExit as end:
        assert not end.code, end.code
print(*sorted(sys.modules), sep="\\n")
"""


def modules_after(code: str, where: Path) -> set[str]:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=where, check=False)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines())


@pytest.mark.slow
def test_training_leaves_the_compiler_alone(tmp_path: Path) -> None:
    """Torch's optimisers import it when they are made, saved and loaded: a second, for nothing that is compiled."""
    found = modules_after(RUN.format(words=[*TINY, "--run-dir", "run"]), tmp_path)
    assert "torch.optim.adam" in found
    assert "torch._dynamo" not in found


@pytest.mark.slow
def test_what_a_run_imports_is_there_before_it_is_forked(tmp_path: Path) -> None:
    """Each fork would import it again. What is imported while a run ends, after its last step, is among it."""
    warm = "from carebn.study.warm import _import_what_runs_need as warm\nimport sys\nwarm()\n"
    there = modules_after(warm + "print(*sorted(sys.modules), sep='\\n')", tmp_path)
    assert there >= set(NEEDED)
    late = modules_after(RUN.format(words=[*TINY, "--run-dir", "run"]), tmp_path) - there
    assert sorted(name for name in late if name.partition(".")[0] in ("torch", "sympy", "matplotlib", "numba")) == []


def test_garbage_is_looked_for_seldom_unless_somebody_has_switched_it_off() -> None:
    before = gc.get_threshold()
    try:
        gc.set_threshold(700, 10, 10)
        collect_seldom()
        assert gc.get_threshold() == (100_000, 10, 10)
        gc.set_threshold(0, 10, 10)
        collect_seldom()
        assert gc.get_threshold() == (0, 10, 10)
        gc.set_threshold(200_000, 3, 4)
        collect_seldom()
        assert gc.get_threshold() == (200_000, 3, 4)
    finally:
        gc.set_threshold(*before)

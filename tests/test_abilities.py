"""What a machine cannot do skips tests, and kills none of them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from abilities import obstacle

TESTS = Path(__file__).parent


def test_obstacles() -> None:
    assert obstacle("pass") is None
    assert obstacle("import nothing_of_that_name") == "ModuleNotFoundError: No module named 'nothing_of_that_name'"
    assert obstacle("raise SystemExit(3)") == "exit code 3"
    assert obstacle("import os, signal; os.kill(os.getpid(), signal.SIGILL)") == "killed by SIGILL"


@pytest.mark.slow
def test_products_that_kill_are_not_made() -> None:
    """Where making one is death, the tests that do are skipped with the reason, and the others go on."""
    path = os.pathsep.join([str(TESTS / "systems" / "without_bfloat16"), *filter(None, [os.environ.get("PYTHONPATH")])])
    words = ["-m", "pytest", "-rs", "-p", "no:cacheprovider", "kernels/test_kernel_fallback.py", "-k"]
    made = subprocess.run(
        [sys.executable, *words, "test_autocast or half_precision or test_functional_gradient"],
        env=os.environ | {"PYTHONPATH": path},
        cwd=TESTS,
        capture_output=True,
        text=True,
    )
    assert made.returncode == 0, made.stdout + made.stderr
    assert "torch cannot multiply in bfloat16 on this machine (killed by SIGILL)" in made.stdout
    assert made.stdout.splitlines()[-1].startswith("1 passed")

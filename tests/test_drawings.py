"""The pictures of docs/architecture.md are those of the code."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "docs" / "draw_rooms.py"


@pytest.mark.skipif(not SCRIPT.exists(), reason="the pictures are in the repository, not in an installed package")
def test_the_pictures_are_up_to_date() -> None:
    done = subprocess.run([sys.executable, str(SCRIPT), "--check"], capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}: make drawings"

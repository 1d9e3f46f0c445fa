"""The documentation site, built once for all tests that look at it."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def build_site(out: Path) -> str:
    """As ``make docs`` does; what it complained of."""
    words = ["--fail-on-warning", "--keep-going", "--nitpicky", "--quiet", "-b", "html"]
    command = [
        sys.executable,
        "-m",
        "sphinx",
        *words,
        "-d",
        str(out / "doctrees"),
        str(ROOT / "docs"),
        str(out / "html"),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    return "" if done.returncode == 0 else done.stderr or done.stdout

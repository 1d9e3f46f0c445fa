"""Converted runs are runs: what the tests of training have for them (quick tasks) is found here too."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "training"))

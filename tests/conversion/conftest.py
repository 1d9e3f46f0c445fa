"""One torch thread for these small tensors: several gain nothing and lose much on a busy machine.

Converted runs are runs: what the tests of training have for them (commands, quick tasks) is found here too.
"""

import sys
from pathlib import Path

import pytest
import torch

sys.path.append(str(Path(__file__).parents[1] / "training"))


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)

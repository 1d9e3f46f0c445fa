"""What this machine can do, found by trying it in a child process.

Asking is not enough: a processor may list an instruction (AMX on some virtual machines) that is not granted, and who
then uses it is killed.
"""

import signal
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

# As layers make them: forward and backward, small and large, by themselves and under autocast.
BFLOAT16_PRODUCTS = """
import torch
for size in (6, 64, 256):
    layer, x = torch.nn.Linear(size, size), torch.ones(5, 11, size, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        layer(x).float().sum().backward()
    layer.bfloat16()(x.bfloat16()).sum().backward()
"""

reads_proc = pytest.mark.skipif(not Path("/proc/locks").exists(), reason="needs the /proc of Linux to look on")


@cache
def obstacle(trial: str) -> str | None:
    """What keeps this machine from running ``trial``, a program; None: it can."""
    done = subprocess.run([sys.executable, "-c", trial], capture_output=True, text=True)
    if done.returncode == 0:
        return None
    if done.returncode < 0:
        return f"killed by {signal.Signals(-done.returncode).name}"
    return (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]

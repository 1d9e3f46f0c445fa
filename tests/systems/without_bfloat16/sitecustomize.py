"""With this directory on PYTHONPATH a product in bfloat16 kills the process, as where AMX is listed but not granted."""

import os
import signal

import torch
from torch.utils._python_dispatch import TorchDispatchMode

PRODUCTS = {torch.ops.aten.mm, torch.ops.aten.addmm, torch.ops.aten.bmm, torch.ops.aten.baddbmm, torch.ops.aten.linear}


class WithoutBfloat16(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.overloadpacket in PRODUCTS and any(getattr(a, "dtype", None) is torch.bfloat16 for a in args):
            os.kill(os.getpid(), signal.SIGILL)
        return func(*args, **(kwargs or {}))


WithoutBfloat16().__enter__()

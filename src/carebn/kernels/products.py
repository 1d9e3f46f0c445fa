"""Products with spikes: by look-up where that is faster, else dense; without gradients of their own."""

import ctypes

import torch
from torch import Tensor, nn

from carebn.kernels import lookup
from carebn.kernels.entries import KERNELS
from carebn.kernels.pool import BLOCKS, run


def _worth_looking_up(samples: int, inputs: int, outputs: int, narrowest: int, dtype: torch.dtype) -> bool:
    """Where the look-up wins over the dense product, as measured; it is written for eight float32 at a time."""
    return (
        dtype == torch.float32
        and outputs % lookup.LANES == 0
        and samples >= 512
        and inputs >= 64
        and outputs >= narrowest
        and torch.get_num_threads() <= outputs // 32
    )


def spike_product(x: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, bool]:
    """x [M, K] · Wᵀ + bias, without a gradient; also whether it was found that all of x is 0 or 1."""
    (samples, inputs), outputs = x.shape, weight.shape[0]
    if _worth_looking_up(samples, inputs, outputs, 64, x.dtype) and weight.is_contiguous():
        x = x.contiguous()
        padded = -(-inputs // (lookup.BITS * lookup.AT_ONCE)) * lookup.AT_ONCE
        codes = torch.empty(samples, padded, dtype=torch.uint8)
        sums = torch.empty(padded * lookup.ENTRIES * outputs)
        z = torch.empty(samples, outputs)
        flags = (ctypes.c_int64 * BLOCKS)()
        run(
            KERNELS[x.dtype]["spike_product"], 0,
            samples, inputs, outputs, padded, x.data_ptr(), weight.data_ptr(), 0 if bias is None else bias.data_ptr(),
            codes.data_ptr(), sums.data_ptr(), z.data_ptr(), ctypes.addressof(flags),
        )  # fmt: skip
        if all(flags):
            return z, True
    return nn.functional.linear(x, weight, bias), False


def weight_gradient(grad: Tensor, x: Tensor, spikes: bool) -> Tensor:
    """gradᵀ [N, M] · x [M, K]."""
    (samples, inputs), outputs = x.shape, grad.shape[1]
    if not (spikes and _worth_looking_up(samples, inputs, outputs, 128, x.dtype)):
        return grad.t() @ x
    slab = lookup.SLAB if torch.get_num_threads() <= outputs // lookup.SLAB else lookup.SLAB // 2
    passes = -(-samples // (lookup.BITS * lookup.AT_ONCE))
    codes = torch.empty(passes, lookup.AT_ONCE, inputs, dtype=torch.uint8)
    result = torch.empty(outputs, inputs)
    run(
        KERNELS[x.dtype]["spike_weight_gradient"], 0,
        samples, inputs, outputs, slab, x.data_ptr(), grad.data_ptr(), codes.data_ptr(), result.data_ptr(),
    )  # fmt: skip
    return result

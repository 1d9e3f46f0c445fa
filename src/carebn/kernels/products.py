"""Products with spikes: by look-up where that is faster, else dense; without gradients of their own."""

import ctypes

import torch
from torch import Tensor, nn

from carebn.kernels.entries import KERNELS
from carebn.kernels.lanes import AT_ONCE, BITS, LANES, WIDEST
from carebn.kernels.pool import BLOCKS, run


def whole(size: int, unit: int) -> int:
    """Filled up to whole units."""
    return -(-size // unit) * unit


def _worth_looking_up(samples: int, inputs: int, outputs: int, dtype: torch.dtype) -> bool:
    """Where the look-up wins over the dense product, as measured; it is written for float32."""
    return dtype == torch.float32 and samples >= 512 and inputs >= 64 and outputs >= 16


def spike_product(x: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, bool]:
    """x [M, K] · Wᵀ + bias, without a gradient; also whether it was found that all of x is 0 or 1."""
    (samples, inputs), outputs = x.shape, weight.shape[0]
    if _worth_looking_up(samples, inputs, outputs, x.dtype) and weight.is_contiguous():
        x = x.contiguous()
        groups = -(-inputs // BITS)
        padded = whole(groups, AT_ONCE)
        columns = whole(outputs, LANES)
        codes = torch.empty(samples, padded, dtype=torch.uint16)
        wide = torch.empty(BITS * groups + 1, columns)
        z = torch.empty(samples, columns)
        flags = (ctypes.c_int64 * BLOCKS)()
        run(
            KERNELS[x.dtype]["spike_product"], 0,
            samples, inputs, outputs, padded, x.data_ptr(), weight.data_ptr(), 0 if bias is None else bias.data_ptr(),
            codes.data_ptr(), wide.data_ptr(), z.data_ptr(), ctypes.addressof(flags),
        )  # fmt: skip
        if all(flags):
            return (z if columns == outputs else z[:, :outputs].contiguous()), True
    return nn.functional.linear(x, weight, bias), False


def weight_gradient(grad: Tensor, x: Tensor, spikes: bool) -> Tensor:
    """gradᵀ [N, M] · x [M, K]."""
    (samples, inputs), outputs = x.shape, grad.shape[1]
    if not (spikes and _worth_looking_up(samples, inputs, outputs, x.dtype)):
        return grad.t() @ x
    columns = whole(outputs, LANES)
    if columns > outputs:
        grad = nn.functional.pad(grad, (0, columns - outputs))
    vectors = columns // LANES
    slabs = max(-(-vectors // WIDEST), min(vectors, torch.get_num_threads()))  # one for every thread at least
    codes = torch.empty(whole(samples, BITS * AT_ONCE) // BITS, inputs, dtype=torch.uint16)
    result = torch.empty(outputs, inputs)
    run(
        KERNELS[x.dtype]["spike_weight_gradient"], 0,
        samples, inputs, outputs, slabs, x.data_ptr(), grad.data_ptr(), codes.data_ptr(), result.data_ptr(),
    )  # fmt: skip
    return result

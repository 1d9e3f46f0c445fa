"""Products with spikes: by look-up where that is faster, else dense; without gradients of their own."""

import torch
from torch import Tensor, nn

from carebn.introspection import is_moderate
from carebn.kernels.catalogue import KERNELS
from carebn.kernels.pool import BLOCKS, NOT_BINARY
from carebn.kernels.simd import AT_ONCE, BITS, LANES, WIDEST


def rounded_up(size: int, unit: int) -> int:
    """Filled up to whole units."""
    return -(-size // unit) * unit


def new(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Room for a kernel's result: on the CPU and of this precision, whatever torch's defaults are."""
    return torch.empty(shape, dtype=dtype, device="cpu")


def filled_up(x: Tensor, columns: int) -> Tensor:
    """With zeros to so many columns, in one piece."""
    return nn.functional.pad(x, (0, columns - x.shape[-1])) if columns > x.shape[-1] else x.contiguous()


def _worth_looking_up(samples: int, inputs: int, outputs: int, dtype: torch.dtype) -> bool:
    """Where the look-up wins over the dense product, as measured; it is written for float32."""
    return dtype == torch.float32 and samples >= 512 and inputs >= 64 and outputs >= 16


def spike_product(x: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, bool]:
    """x [M, K] · Wᵀ + bias, without a gradient; also whether it was found that all of x is 0 or 1."""
    (samples, inputs), outputs = x.shape, weight.shape[0]
    if _worth_looking_up(samples, inputs, outputs, x.dtype) and is_moderate(weight):
        groups = -(-inputs // BITS)
        padded, columns, wide_rows = rounded_up(groups, AT_ONCE), rounded_up(outputs, LANES), BITS * groups + 1
        z = new(samples, columns)
        noticed = KERNELS["spike_product"](
            torch.float32,
            samples=samples, inputs=inputs, outputs=outputs, groups=padded, columns=columns, wide_rows=wide_rows,
            x=x.contiguous(), weight=weight, bias=bias, codes=new(samples, padded, dtype=torch.uint16),
            wide=new(wide_rows, columns), z=z, flags=new(BLOCKS, dtype=torch.int64),
        )  # fmt: skip
        if not noticed & NOT_BINARY:
            return (z if columns == outputs else z[:, :outputs].contiguous()), True
    return nn.functional.linear(x, weight, bias), False


def weight_gradient(grad: Tensor, x: Tensor, spikes: bool) -> Tensor:
    """gradᵀ [N, M] · x [M, K]."""
    (samples, inputs), outputs = x.shape, grad.shape[1]
    if not (spikes and _worth_looking_up(samples, inputs, outputs, x.dtype)):
        return grad.t() @ x
    columns = rounded_up(outputs, LANES)
    vectors, code_rows = columns // LANES, rounded_up(samples, BITS * AT_ONCE) // BITS
    result = new(outputs, inputs)
    KERNELS["spike_weight_gradient"](
        torch.float32,
        samples=samples, inputs=inputs, outputs=outputs, columns=columns, code_rows=code_rows,
        slabs=max(-(-vectors // WIDEST), min(vectors, torch.get_num_threads())),  # one for every thread at least
        x=x.contiguous(), grad=filled_up(grad, columns), codes=new(code_rows, inputs, dtype=torch.uint16),
        result=result, silence=new(max(inputs, columns)).zero_(),
    )  # fmt: skip
    return result


def input_gradient(grad: Tensor, weight: Tensor, per_spike: float) -> Tensor:
    """grad [M, N] · W [N, K] + what every spike gets besides, which costs nothing within the product."""
    return torch.addmm(weight.new_full((1,), per_spike), grad, weight) if per_spike else grad @ weight

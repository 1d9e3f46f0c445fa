"""A whole stack of spiking layers as one differentiable function, on packed spikes: from stimulation to spike counts.

It serves the networks that are trained most: an encoder with deterministic spikes, LIF or CLIF neurons, and in training
a plain batch-norm map or none. Everything else runs layer by layer, with the same result.
"""

import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from carebn.kernels import packed, packed_lanes
from carebn.kernels.entries import KERNELS, LIF
from carebn.kernels.fused import (
    NeuronSpec,
    PlainNormaliser,
    addresses,
    apply,
    constants,
    first_derivative_only,
    neuron_constants,
)
from carebn.kernels.lanes import AT_ONCE, BITS, LANES, WIDEST
from carebn.kernels.pool import BLOCKS, run
from carebn.kernels.products import whole
from carebn.kernels.vectors import NO_UPDATE

KERNEL = KERNELS[torch.float32]
FEWEST_ROWS = 256  # below, the tables cost more than they save


class StackLayer(NamedTuple):
    """One layer: Linear → map → neuron. The map is one of

    batch       a plain normaliser in training
    moving      a plain normaliser's moving statistics
    given       these vectors of scale and shift
    (none)      the identity
    """

    linear: nn.Linear
    spec: NeuronSpec
    batch: PlainNormaliser | None = None
    moving: PlainNormaliser | None = None
    given: tuple[Tensor, Tensor] | None = None


def suits(spec: NeuronSpec | None, linear: nn.Linear) -> bool:
    """Whether a layer with this neuron can be part of a stack."""
    return (
        spec is not None
        and spec.family == LIF
        and spec.surrogate in (packed_lanes.RECTANGLE, packed_lanes.TRIANGLE)
        and linear.weight.dtype == torch.float32
        and linear.weight.is_contiguous()
        and spec.constants[2] > 0
    )


class _Spikes(NamedTuple):
    bits: Tensor  # [T·B, size] bytes
    features: int
    size: int


def _room_for_spikes(rows: int, features: int) -> _Spikes:
    size = whole(-(-features // 8), packed.WORD)
    return _Spikes(torch.empty(rows, size, dtype=torch.uint8), features, size)


def _encode(stimulation: Tensor, steps: int, threshold: float, subtract: float) -> _Spikes:
    batch, features = stimulation.shape
    spikes = _room_for_spikes(steps * batch, features)
    numbers = constants((threshold, subtract), torch.float32)
    run(KERNEL["packed_encode"], steps, batch, features, spikes.size, *addresses(stimulation, spikes.bits, numbers))
    return spikes


class _Memory(NamedTuple):
    """What a layer's backward pass needs of its forward pass."""

    x: _Spikes
    z: Tensor
    slabs: int
    vectors: Tensor  # [3, N']: scale, shift, center
    statistics: Tensor  # [2, N']: mean with the layer's bias, variance


def _identity(columns: int) -> Tensor:
    return constants((1.0,) * columns + (0.0,) * 2 * columns, torch.float32).view(3, columns)


def _forward(layer: StackLayer, x: _Spikes, steps: int, batch: int, keep: bool) -> tuple[_Spikes, _Memory]:
    weight, bias = layer.linear.weight, layer.linear.bias
    outputs = weight.shape[0]
    columns = whole(outputs, LANES)
    slabs = _slabs(columns // LANES)
    spikes = _room_for_spikes(steps * batch, outputs)
    z = torch.empty(steps * batch * (columns if keep else torch.get_num_threads() * WIDEST * LANES))
    statistics = torch.empty(2, columns, dtype=torch.float64)
    norm = layer.batch or layer.moving
    mode = packed.BATCH if layer.batch else packed.MOVING if layer.moving else packed.GIVEN
    if norm is not None:
        vectors = torch.empty(3, columns)
    elif layer.given is None:
        vectors = _identity(columns)
    else:
        scale, shift = (nn.functional.pad(v.float(), (0, columns - outputs)) for v in layer.given)
        vectors = torch.stack([scale, shift, shift])
    sums = torch.empty(2, BLOCKS, columns, dtype=torch.float64) if layer.batch else statistics
    scale_, mean_, wide = vectors.data_ptr(), statistics.data_ptr(), 8 * columns
    shift_, center_ = scale_ + 4 * columns, scale_ + 8 * columns
    bias_ = 0 if bias is None else bias.data_ptr()
    finite = ctypes.c_int64(1)
    rule = layer.batch.kernel_rule() if layer.batch else None
    entries: list[int] = []
    if norm is not None:
        kind, momentum, errors = (NO_UPDATE, 0.0, ()) if rule is None else rule
        eps = constants((norm.eps,), torch.float64 if layer.batch else torch.float32)
        options = constants((momentum, torch.finfo(torch.float32).max), torch.float64)
        entries = [
            columns, steps * batch, sums.data_ptr(), center_, *addresses(norm.weight, norm.bias, eps), bias_,
            mean_, mean_ + wide, scale_, shift_, center_, ctypes.addressof(finite),
            kind, outputs, batch, steps * batch, mean_, mean_ + wide, *addresses(norm.running_mean, norm.running_var),
            *(addresses(*errors) or (0, 0)), *addresses(options, norm.num_batches_tracked),
        ]  # fmt: skip
    run(
        KERNEL["packed_layer"],
        steps, batch, x.features, outputs, x.size, spikes.size, slabs, mode, int(keep), *addresses(x.bits, weight),
        0 if layer.batch else bias_,  # a norm that subtracts the batch's mean subtracts the bias with it
        *addresses(z, spikes.bits), scale_, shift_, center_, neuron_constants(layer.spec, torch.float32),
        sums.data_ptr(), *entries,
    )  # fmt: skip
    if layer.batch is not None:
        if not finite.value:
            layer.batch.refuse_non_finite()
        if rule is None:
            mean, var = statistics[:, :outputs].unbind()
            layer.batch.observe(mean, var, batch, steps * batch)
    return spikes, _Memory(x, z, slabs, vectors, statistics)


def _slabs(vectors: int) -> int:
    """Into how many slabs so many vectors are cut: as many for one thread as for the other, where that is possible."""
    threads = torch.get_num_threads()
    return min(whole(-(-vectors // WIDEST), threads), vectors)


def _backward(
    layer: StackLayer, memory: _Memory, grad: Tensor, constant_in_time: bool, steps: int, batch: int
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """From the gradient of the spikes [T·B or B, N] to those of the products [T·B, N], of the same summed over time
    [B, N], of the weights, and of the norm's weight and bias; without a norm, the last is that of the layer's bias."""
    weight = layer.linear.weight
    outputs, inputs = weight.shape
    columns = whole(outputs, LANES)
    x, norm = memory.x, layer.batch
    grad = nn.functional.pad(grad, (0, columns - outputs)) if columns > outputs else grad.contiguous()
    grad_z = torch.empty(steps * batch, columns)
    over_time = torch.empty(batch, columns)
    sums = torch.empty(2, BLOCKS, columns)
    path = torch.empty(2, columns)  # constant, slope
    codes = torch.empty(whole(steps * batch, BITS * AT_ONCE) // BITS, x.size * 8, dtype=torch.uint16)
    grad_weight = torch.empty_like(weight)
    grad_scale, grad_offset = torch.empty(outputs), torch.empty(outputs)
    scale_, path_ = memory.vectors.data_ptr(), path.data_ptr()
    eps = constants((norm.eps if norm else 1.0,), torch.float64)
    var_ = memory.statistics.data_ptr() + 8 * columns
    run(
        KERNEL["packed_layer_backward"],
        steps, batch, inputs, outputs, x.size, memory.slabs, int(norm is not None), layer.spec.surrogate,
        *addresses(x.bits, memory.z), scale_, scale_ + 4 * columns, scale_ + 8 * columns,
        neuron_constants(layer.spec, torch.float32),
        grad.data_ptr(), 0 if constant_in_time else batch * columns * 4, *addresses(grad_z, over_time, sums),
        path_, path_ + 4 * columns, *addresses(codes, grad_weight),
        columns, steps * batch, sums.data_ptr(), norm.weight.data_ptr() if norm else scale_, eps.data_ptr(), var_,
        *addresses(grad_scale, grad_offset), path_, path_ + 4 * columns,
    )  # fmt: skip
    return grad_z[:, :outputs], over_time[:, :outputs], grad_weight, grad_scale, grad_offset


class _Stack(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        stimulation: Tensor,
        steps: int,
        threshold: float,
        subtract: float,
        layers: Sequence[StackLayer],
        *parameters: Tensor | None,
    ) -> Tensor:
        stimulation = stimulation.contiguous()
        batch = stimulation.shape[0]
        spikes = _encode(stimulation, steps, threshold, subtract)
        memories = []
        keep = any(ctx.needs_input_grad)
        for layer in layers:
            spikes, memory = _forward(layer, spikes, steps, batch, keep)
            memories.append(memory)
        counts = torch.empty(batch, whole(spikes.features, LANES))
        run(KERNEL["packed_count"], steps, batch, spikes.features, spikes.size, *addresses(spikes.bits, counts))
        ctx.layers, ctx.memories, ctx.shape = layers, memories, (steps, batch)
        ctx.save_for_backward(*(layer.linear.weight for layer in layers))
        return counts[:, : spikes.features].contiguous()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        first_derivative_only()
        weights, (steps, batch) = ctx.saved_tensors, ctx.shape
        gradients: list[Tensor | None] = []
        last = len(ctx.layers) - 1
        over_time = grad
        for i in range(last, -1, -1):
            layer = ctx.layers[i]
            grad_z, over_time, grad_weight, grad_scale, grad_offset = _backward(
                layer, ctx.memories[i], grad, i == last, steps, batch
            )
            if layer.batch is not None:  # its bias cancels, so that the gradient is exactly zero
                bias = None if layer.linear.bias is None else torch.zeros_like(layer.linear.bias)
                gradients[:0] = grad_weight, bias, grad_scale, grad_offset
            else:
                gradients[:0] = grad_weight, None if layer.linear.bias is None else grad_offset, None, None
            if i > 0:
                grad = grad_z @ weights[i]
        # Every spike has derivative one with respect to the stimulation: summed over time first, multiplied once.
        to_stimulation = over_time @ weights[0] if ctx.needs_input_grad[0] else None
        return to_stimulation, None, None, None, None, *gradients


def spike_counts(
    stimulation: Tensor, steps: int, threshold: float, subtract: float, layers: Sequence[StackLayer]
) -> Tensor:
    """How often each output neuron fires in ``steps`` steps, [B, N], for a stimulation [B, K].

    The encoder's neurons have this threshold, and a spike subtracts this much.
    """
    parameters: list[Tensor | None] = []
    for layer in layers:
        norm = layer.batch
        parameters += layer.linear.weight, layer.linear.bias, norm.weight if norm else None, norm.bias if norm else None
    return apply(_Stack, stimulation, steps, threshold, subtract, layers, *parameters)

"""A whole stack of spiking layers as one differentiable function, on packed spikes: from stimulation to spike counts.

It serves the networks that are trained most: an encoder with deterministic spikes, LIF or CLIF neurons, and in training
a plain batch-norm map or none. Everything else runs layer by layer, with the same result; ``carebn.router`` decides.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from carebn.gradients import apply, plain_gradient, without_autocast
from carebn.kernels import packed
from carebn.kernels.catalogue import KERNELS
from carebn.kernels.fused import constants, neuron_fields, update_moving_
from carebn.kernels.plans import NotForKernelsError, StackLayer
from carebn.kernels.pool import BLOCKS, NOT_FINITE
from carebn.kernels.products import filled_up, input_gradient, new, rounded_up
from carebn.kernels.rates import FiringRates
from carebn.kernels.simd import AT_ONCE, BITS, LANES, WIDEST

SINGLE = torch.float32


class _Spikes(NamedTuple):
    bits: Tensor  # [T·B, size] bytes
    features: int
    size: int


def _room_for_spikes(rows: int, features: int) -> _Spikes:
    size = rounded_up(-(-features // 8), packed.WORD)
    return _Spikes(new(rows, size, dtype=torch.uint8), features, size)


def _encode(stimulation: Tensor, steps: int, threshold: float, subtract: float) -> _Spikes:
    batch, features = stimulation.shape
    spikes = _room_for_spikes(steps * batch, features)
    KERNELS["packed_encode"](
        SINGLE, steps=steps, batch=batch, features=features, size=spikes.size, columns=rounded_up(features, LANES),
        a=stimulation, constants=constants((threshold, subtract), SINGLE), spikes=spikes.bits,
    )  # fmt: skip
    return spikes


def _rate(spikes: _Spikes) -> float:
    """The share of ones. Bits beyond the features are zero, because thresholds are above zero."""
    words = spikes.bits.numpy().view(np.uint32)  # a row is whole words
    if hasattr(np, "bitwise_count"):  # from numpy 2 on
        ones = int(np.bitwise_count(words).sum())
    else:
        ones = int.from_bytes(words.data, "little").bit_count()
    return ones / (len(spikes.bits) * spikes.features)


class _Memory(NamedTuple):
    """What a layer's backward pass needs of its forward pass."""

    x: _Spikes
    z: Tensor
    slabs: int
    maps: Tensor  # [3, N']: scale, shift, center
    statistics: Tensor  # [2, N']: mean and variance of the batch
    eps: float


def _identity(columns: int) -> Tensor:
    return constants((1.0,) * columns + (0.0,) * 2 * columns, SINGLE).view(3, columns)


def _slabs(vectors: int) -> int:
    """Into how many slabs so many vectors are cut: as many for one thread as for the other, where that is possible."""
    threads = torch.get_num_threads()
    return min(rounded_up(-(-vectors // WIDEST), threads), vectors)


def _forward(layer: StackLayer, x: _Spikes, steps: int, batch: int, keep: bool) -> tuple[_Spikes, _Memory]:
    norm, (outputs, inputs) = layer.norm, layer.weight.shape
    columns, rows = rounded_up(outputs, LANES), steps * batch
    spikes = _room_for_spikes(rows, outputs)
    room = rows * (columns if keep else torch.get_num_threads() * WIDEST * LANES)
    slabs = _slabs(columns // LANES)
    z, statistics = new(room), new(2, columns, dtype=torch.float64)
    if norm is not None:
        maps = new(3, columns)
    elif layer.given is None:
        maps = _identity(columns)
    else:
        maps = filled_up(torch.cat([*layer.given, layer.given[1]]), columns)
    eps = 0.0 if norm is None else norm.eps
    noticed = KERNELS["packed_layer"](
        SINGLE,
        steps=steps, batch=batch, inputs=inputs, features=outputs, columns=columns, count=rows,
        x_size=x.size, out_size=spikes.size, slabs=slabs, keep=int(keep), room=room,
        x=x.bits, weight=layer.weight, bias=layer.bias, z=z, spikes=spikes.bits, maps=maps,
        neuron=neuron_fields(layer.spec, SINGLE)["neuron"],
        eps=eps, statistics=statistics,
        norm_weight=None if norm is None else norm.weight, norm_bias=None if norm is None else norm.bias,
        sums=None if norm is None else new(2, BLOCKS, columns, dtype=torch.float64),
    )  # fmt: skip
    if noticed & NOT_FINITE:
        raise NotForKernelsError
    return spikes, _Memory(x, z, slabs, maps, statistics, eps)


def _observe(layer: StackLayer, statistics: Tensor, batch: int, rows: int) -> None:
    if layer.rule is not None:
        update_moving_(layer.norm, layer.rule, statistics, batch, rows)
    elif layer.norm is not None:
        mean, var = statistics[:, : len(layer.weight)]
        layer.norm.observe(mean, var, batch, rows)


def _backward(
    weight: Tensor, norm_weight: Tensor | None, layer: StackLayer, memory: _Memory, grad: Tensor, steps: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """From the gradient of the spikes [T or 1, B, N] to those of the products [T·B, N], of the same summed over time
    [B, N], of the weights, and of the norm's weight and bias [2, N]; without a norm the last is the layer's bias'."""
    outputs, inputs = weight.shape
    x, (g_steps, batch, _) = memory.x, grad.shape
    rows, columns = steps * batch, rounded_up(outputs, LANES)
    code_rows = rounded_up(rows, BITS * AT_ONCE) // BITS
    grad_z, over_time = new(rows, columns), new(batch, columns)
    grad_weight, grad_map = new(outputs, inputs), new(2, outputs)
    KERNELS["packed_layer_backward"](
        SINGLE,
        steps=steps, batch=batch, inputs=inputs, features=outputs, columns=columns, count=rows, x_size=x.size,
        slabs=memory.slabs, surrogate=layer.spec.surrogate, code_rows=code_rows, g_steps=g_steps,
        x=x.bits, z=memory.z, maps=memory.maps, neuron=neuron_fields(layer.spec, SINGLE)["neuron"],
        grad=filled_up(grad, columns), grad_z=grad_z, over_time=over_time, grad_weight=grad_weight, grad_map=grad_map,
        eps=memory.eps, norm_weight=norm_weight, var=memory.statistics[1],
        sums=new(2, BLOCKS, columns), path=new(2, columns), codes=new(code_rows, x.size * 8, dtype=torch.uint16),
        silence=new(max(x.size, columns)).zero_(),
    )  # fmt: skip
    if not torch.isfinite(grad_map[1].sum()):  # silent inputs get 0·NaN, which no table has
        spikes = np.unpackbits(x.bits.numpy(), axis=1, count=inputs, bitorder="little")
        grad_weight = grad_z[:, :outputs].t() @ torch.from_numpy(spikes).to(SINGLE)
    return grad_z[:, :outputs], over_time[:, :outputs], grad_weight, grad_map


class _Stack(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, stimulation: Tensor, steps: int, threshold: float, subtract: float, layers: Sequence[StackLayer],
        keep: bool, counted: bool, *parameters: Tensor | None,
    ) -> Tensor | tuple[Tensor, Tensor]:  # fmt: skip
        """``counted``: with the firing rate of every population."""
        stimulation = stimulation.contiguous()
        batch = stimulation.shape[0]
        spikes = _encode(stimulation, steps, threshold, subtract)
        memories, populations = [], [spikes]
        for layer in layers:
            spikes, memory = _forward(layer, spikes, steps, batch, keep)
            memories.append(memory)
            populations.append(spikes)
        for layer, memory in zip(layers, memories, strict=True):  # nothing has changed before all have come this far
            _observe(layer, memory.statistics, batch, steps * batch)
        columns = rounded_up(spikes.features, LANES)
        counts = new(batch, columns)
        KERNELS["packed_count"](
            SINGLE, steps=steps, batch=batch, columns=columns, size=spikes.size, spikes=spikes.bits, counts=counts
        )
        if keep:
            ctx.layers, ctx.memories, ctx.shape = layers, memories, (steps, batch)
            # What the backward pass reads again: autograd refuses if it has changed by then.
            ctx.save_for_backward(*(t for layer in layers for t in (layer.weight, getattr(layer.norm, "weight", None))))
        counts = counts[:, : spikes.features].contiguous()
        if not counted:
            return counts
        return counts, torch.tensor([_rate(each) for each in populations], dtype=SINGLE, device="cpu")

    @staticmethod
    @without_autocast
    def backward(ctx: Any, grad: Tensor, grad_rates: Tensor | None = None) -> tuple[Any, ...]:
        saved, (steps, batch) = ctx.saved_tensors, ctx.shape
        gradients: list[Tensor | None] = []
        grad = plain_gradient(grad)[None]  # the same at every step
        # A rate is a mean over spikes, so its gradient is the same number for every spike of the population.
        sizes = [ctx.memories[0].x.features, *(len(layer.weight) for layer in ctx.layers)]
        told = [0.0] * len(sizes) if grad_rates is None else plain_gradient(grad_rates).tolist()
        per_spike = [each / (steps * batch * size) for each, size in zip(told, sizes, strict=True)]
        grad = grad + per_spike[-1] if per_spike[-1] else grad
        over_time = grad
        for i in range(len(ctx.layers) - 1, -1, -1):
            layer, weight, norm_weight = ctx.layers[i], saved[2 * i], saved[2 * i + 1]
            grad_z, over_time, grad_weight, (grad_scale, grad_offset) = _backward(
                weight, norm_weight, layer, ctx.memories[i], grad, steps
            )
            if layer.norm is not None:  # its bias cancels, so that the gradient is exactly zero
                bias = None if layer.bias is None else torch.zeros_like(layer.bias)
                gradients[:0] = grad_weight, bias, grad_scale, grad_offset
            else:
                gradients[:0] = grad_weight, None if layer.bias is None else grad_offset, None, None
            if i > 0:
                grad = input_gradient(grad_z, weight, per_spike[i]).view(steps, batch, -1)
        # Every spike has derivative one with respect to the stimulation: summed over time first, multiplied once.
        to_stimulation = over_time @ saved[0] if ctx.needs_input_grad[0] else None
        if to_stimulation is not None and per_spike[0]:
            to_stimulation.add_(steps * per_spike[0])
        return to_stimulation, None, None, None, None, None, None, *gradients


def spike_counts(
    stimulation: Tensor,
    steps: int,
    threshold: float,
    subtract: float,
    layers: Sequence[StackLayer],
    listener: FiringRates | None = None,
) -> Tensor:
    """How often each output neuron fires in ``steps`` steps, [B, N], for a stimulation [B, K].

    The encoder's neurons have this threshold, and a spike subtracts this much. A listener hears the rates of all.
    """
    parameters: list[Tensor | None] = []
    for layer in layers:
        parameters += layer.weight, layer.bias, *(getattr(layer.norm, name, None) for name in ("weight", "bias"))
    keep = torch.is_grad_enabled() and any(p is not None and p.requires_grad for p in (stimulation, *parameters))
    given: Any = stimulation, steps, threshold, subtract, layers, keep, listener is not None, *parameters
    if keep:
        result: Any = apply(_Stack, *given)
    else:  # nobody asks for a gradient
        with torch.no_grad():
            result = _Stack.forward(None, *given)
    if listener is None:
        counts: Tensor = result
        return counts
    counts, rates = result
    listener.note(rates, "stack")
    return counts

"""Compiled inference of an integrate-and-fire network with a constant input: only spikes cost anything.

A row's first current is computed once. After that a neuron that fired adds its row of weights to the next layer's
current, and one that did not adds nothing. Every row is computed alone and in a fixed order, so the spikes for an
observation depend neither on its batch nor on the number of threads.
"""

from typing import Any

import torch

from carebn.kernels.jit import array_at, int64, njit
from carebn.kernels.pool import BLOCKS, my_part, my_share
from carebn.kernels.tables import INT, REAL, Array, Scratch, Table

# A table of its own for each layer, with its weights by input; the whole network's has their addresses.
LAYER = Table(
    inputs=INT, outputs=INT,
    weight=Array(REAL, "inputs, outputs"), bias=Array(REAL, "outputs"), threshold=Array(REAL, "outputs"),
)  # fmt: skip
_layer_at = LAYER.at
NETWORK = Table(
    batch=INT, steps=INT, first_read=INT, layers=INT, inputs=INT, neurons=INT, widest=INT, outputs=INT,
    x=Array(REAL, "batch, inputs"),
    v=Array(REAL, "batch, neurons"),  # potentials: at the start in, at the end out
    counts=Array(REAL, "batch, neurons"), read=Array(REAL, "batch, outputs"), tables=Array(torch.int64, "layers"),
    room=Scratch(REAL, "3, widest"), fired=Scratch(torch.int64, "widest"),
)  # fmt: skip


@njit
def _drive(inputs: int, x: Any, weight: Any, bias: Any, current: Any) -> None:
    """The constant current of the first layer: bias + x·W."""
    current[: bias.size] = bias
    for i in range(inputs):
        row = weight[i]
        for f in range(bias.size):
            current[f] += x[i] * row[f]


@njit
def _receive(fired: Any, count: int, weight: Any, bias: Any, current: Any) -> None:
    """The current of a later layer: bias + the rows of the neurons that fired."""
    current[: bias.size] = bias
    for n in range(count):
        row = weight[fired[n]]
        for f in range(bias.size):
            current[f] += row[f]


@njit
def _fire(current: Any, threshold: Any, v: Any, counts: Any, spikes: Any, one: Any) -> None:
    zero = one - one
    for f in range(threshold.size):
        h = v[f] + current[f]
        spike = one if h > threshold[f] else zero
        v[f] = h - spike * threshold[f]
        counts[f] += spike
        spikes[f] = spike


@njit
def integrate(t: Any, one: Any) -> int:
    """Runs every row for so many steps: spike counts of all neurons, and the last layer's from ``first_read`` on."""
    batch, layers, widest = t.batch, t.layers, t.widest
    x = array_at(t.x, (batch, t.inputs), one)
    v = array_at(t.v, (batch, t.neurons), one)
    counts = array_at(t.counts, (batch, t.neurons), one)
    read = array_at(t.read, (batch, t.outputs), one)
    tables = array_at(t.tables, (layers,), int64(0))
    room = array_at(my_part(t, t.room, 3 * widest * x.itemsize), (3, widest), one)
    constant, current, spikes = room[0], room[1], room[2]
    fired = array_at(my_part(t, t.fired, widest * 8), (widest,), int64(0))
    for block in my_share(t, BLOCKS):
        for b in range(block, batch, BLOCKS):
            counts[b] = one - one
            read[b] = one - one
            for step in range(t.steps):
                count = 0
                first = 0
                for k in range(layers):
                    layer = _layer_at(tables[k])
                    size = layer.outputs
                    weight = array_at(layer.weight, (layer.inputs, size), one)
                    bias = array_at(layer.bias, (size,), one)
                    threshold = array_at(layer.threshold, (size,), one)
                    if k == 0:
                        if step == 0:
                            _drive(layer.inputs, x[b], weight, bias, constant)
                        drive = constant
                    else:
                        _receive(fired, count, weight, bias, current)
                        drive = current
                    here = slice(first, first + size)
                    _fire(drive, threshold, v[b, here], counts[b, here], spikes, one)
                    if k < layers - 1:
                        count = 0
                        for f in range(size):
                            if spikes[f] > one - one:
                                fired[count] = f
                                count += 1
                    elif step >= t.first_read:
                        for f in range(size):
                            read[b, f] += spikes[f]
                    first += size
    return 0

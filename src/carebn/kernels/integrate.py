"""Compiled inference of an integrate-and-fire network with a constant input: only spikes cost anything.

A row's first current is computed once. After that a neuron that fired adds its row of weights to the next layer's
current, and one that did not adds nothing. Every row is computed alone and in a fixed order, so the spikes for an
observation depend neither on its batch nor on the number of threads.
"""

from typing import Any

import numpy as np

from carebn.kernels.jit import njit
from carebn.kernels.pool import BLOCKS, my_blocks, read_table
from carebn.kernels.scan import array_at

HEAD, PER_LAYER = 11, 5  # table entries


@njit
def _drive(inputs: int, x: Any, weight: Any, bias: Any, current: Any) -> None:
    """The constant current of the first layer: bias + x·W."""
    for f in range(bias.size):
        current[f] = bias[f]
    for i in range(inputs):
        row = weight[i]
        for f in range(bias.size):
            current[f] += x[i] * row[f]


@njit
def _receive(fired: Any, count: int, weight: Any, bias: Any, current: Any) -> None:
    """The current of a later layer: bias + the rows of the neurons that fired."""
    for f in range(bias.size):
        current[f] = bias[f]
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
def integrate(table: int, at: int, one: Any) -> None:
    """Runs every row for so many steps.

    Head: batch, steps, first step that is read out, layers, inputs, neurons in all, widest layer, then the addresses of
    the input [B, inputs], potentials [B, neurons] (start in, end out), spike counts [B, neurons] and the last layer's
    counts from the first read step on, [B, out]. Then for each layer: inputs, outputs, and the addresses of its weight
    [in, out], bias and threshold.
    """
    batch, steps, start, layers, inputs, total, widest, x_, v_, counts_, read_ = read_table(table, at, HEAD)
    x = array_at(x_, (batch, inputs), one)
    v = array_at(v_, (batch, total), one)
    counts = array_at(counts_, (batch, total), one)
    outputs = read_table(table, at + HEAD + (layers - 1) * PER_LAYER, PER_LAYER)[1]
    read = array_at(read_, (batch, outputs), one)
    constant = np.empty(widest, x.dtype)
    current = np.empty(widest, x.dtype)
    spikes = np.empty(widest, x.dtype)
    fired = np.empty(widest, np.int64)
    for block in my_blocks(table):
        for b in range(block, batch, BLOCKS):
            counts[b] = one - one
            read[b] = one - one
            for t in range(steps):
                count = 0
                first = 0
                for k in range(layers):
                    wide, size, weight_, bias_, threshold_ = read_table(table, at + HEAD + k * PER_LAYER, PER_LAYER)
                    weight = array_at(weight_, (wide, size), one)
                    bias = array_at(bias_, (size,), one)
                    threshold = array_at(threshold_, (size,), one)
                    if k == 0:
                        if t == 0:
                            _drive(inputs, x[b], weight, bias, constant)
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
                    elif t >= start:
                        for f in range(size):
                            read[b, f] += spikes[f]
                    first += size

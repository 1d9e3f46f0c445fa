"""A spiking layer on packed spikes: product, statistics and neurons in one pass, and the gradients in another.

Spikes are bits, eight neurons to a byte: [T·B, bytes], a row filled up with zeros to whole 32-bit words. A layer's
columns are cut into slabs, and a slab is one thread's work from the product to the spikes: it has every sample of its
columns, so statistics need nobody else, and what it works on stays in its cache. The products z are kept slab after
slab, [T·B, width of the slab] each. Per-column vectors are filled up to N', whole vectors of the processor.

Products go by table look-up, see ``lookup``; here group g has the inputs 4g to 4g + 3, half a byte. All of it is
float32.
"""

from typing import Any

import numpy as np
import torch

from carebn.kernels import norm_statistics, packed_simd
from carebn.kernels.jit import array_at, float64, njit
from carebn.kernels.lookup import four_rows, gradient_of_slab, slab_of, transpose
from carebn.kernels.pool import BLOCKS, NOT_FINITE, my_number, my_part, my_share, rows_of, wait_for_all
from carebn.kernels.simd import AT_ONCE, BITS, BYTES, ENTRIES, LANES, ROW, TABLES, WIDEST, fill_table
from carebn.kernels.tables import INT, NUMBER, REAL, Array, Scratch, Table

WORD = 4  # bytes of spikes that one pass of the look-up takes in

ENCODE = Table(
    steps=INT, batch=INT, features=INT, size=INT, columns=INT,
    a=Array(REAL, "batch, features"), constants=Array(REAL, "2"),  # threshold, and what a spike subtracts
    spikes=Array(torch.uint8, "steps * batch, size"),
    row=Scratch(REAL, "columns"),
)  # fmt: skip
COUNT = Table(
    steps=INT, batch=INT, columns=INT, size=INT,
    spikes=Array(torch.uint8, "steps * batch, size"), counts=Array(REAL, "batch, columns"),
)  # fmt: skip
LAYER = Table(
    steps=INT, batch=INT, inputs=INT, features=INT, columns=INT, count=INT, x_size=INT, out_size=INT, slabs=INT,
    keep=INT, room=INT,
    x=Array(torch.uint8, "steps * batch, x_size"), weight=Array(REAL, "features, inputs"),
    bias=Array(REAL, "features", optional=True),
    z=Array(REAL, "room"), spikes=Array(torch.uint8, "steps * batch, out_size"),
    neuron=Array(REAL, "4"), maps=Array(REAL, "3, columns"),
    eps=NUMBER, norm_weight=Array(REAL, "features", optional=True), norm_bias=Array(REAL, "features", optional=True),
    sums=Array(torch.float64, f"2, {BLOCKS}, columns", optional=True), statistics=Array(torch.float64, "2, columns"),
    tables=Scratch(REAL, str(TABLES)), wide=Scratch(REAL, f"x_size * 8, {WIDEST * LANES}"),
    start=Scratch(REAL, str(WIDEST * LANES)),
)  # fmt: skip
LAYER_BACKWARD = Table(
    steps=INT, batch=INT, inputs=INT, features=INT, columns=INT, count=INT, x_size=INT, slabs=INT, surrogate=INT,
    code_rows=INT, g_steps=INT,
    x=Array(torch.uint8, "steps * batch, x_size"), z=Array(REAL, "steps * batch * columns"),
    maps=Array(REAL, "3, columns"), neuron=Array(REAL, "4"),
    grad=Array(REAL, "g_steps, batch, columns"),  # of the spikes; one step if it is the same at all
    eps=NUMBER, norm_weight=Array(REAL, "features", optional=True), var=Array(torch.float64, "columns"),
    grad_z=Array(REAL, "steps * batch, columns"), over_time=Array(REAL, "batch, columns"),
    grad_weight=Array(REAL, "features, inputs"), grad_map=Array(REAL, "2, features"),
    sums=Array(REAL, f"2, {BLOCKS}, columns"), path=Array(REAL, "2, columns"),
    codes=Array(torch.uint16, "code_rows, x_size * 8"),
    silence=Array(REAL, "max(x_size, columns)"),  # zeros, in place of samples that are not there
    tables=Scratch(REAL, str(TABLES)), total=Scratch(REAL, f"inputs, {WIDEST * LANES}"),
    potentials=Scratch(REAL, f"steps, {LANES}"),
)  # fmt: skip


@njit
def encode(t: Any, one: Any) -> int:
    """Packed spikes of soft-reset integrate-and-fire neurons under a constant stimulation [B, F]."""
    steps, batch, features, size = t.steps, t.batch, t.features, t.size
    a = array_at(t.a, (batch, features), one)
    spikes = array_at(t.spikes, (steps, batch, size), np.uint8(0))
    whole = t.columns // LANES
    row = array_at(my_part(t, t.row, t.columns * 4), (t.columns,), one)
    row[:] = 0
    for block in my_share(t, BLOCKS):
        for b in rows_of(block, batch):
            row[:features] = a[b]
            packed_simd.encode(row.ctypes.data, t.spikes + b * size, batch * size, steps, t.constants, whole)
            spikes[:, b, whole * BYTES :] = 0
    return 0


@njit
def count(t: Any, one: Any) -> int:
    """How often every neuron fired: counts [B, N'] of packed spikes."""
    batch, size = t.batch, t.size
    for block in my_share(t, BLOCKS):
        for b in rows_of(block, batch):
            packed_simd.count_spikes(
                t.spikes + b * size, batch * size, t.steps, t.counts + b * t.columns * 4, t.columns // LANES
            )
    return 0


@njit
def layer(t: Any, one: Any) -> int:
    """Without ``keep``, z is room for one slab of every thread, used again and again.

    The bias is left out of the products where the batch's mean is subtracted, and with it the bias.
    """
    steps, batch, inputs, outputs, x_size = t.steps, t.batch, t.inputs, t.features, t.x_size
    normalised = t.norm_weight != 0  # scale and shift come from the batch; else they are given
    rows = steps * batch
    columns = t.columns
    whole = columns // LANES
    weight = array_at(t.weight, (outputs, inputs), one)
    maps = array_at(t.maps, (3, columns), one)
    scale_, shift_, center_ = t.maps, t.maps + columns * 4, t.maps + 2 * columns * 4
    tables = my_part(t, t.tables, TABLES * 4)
    wide = my_part(t, t.wide, x_size * 8 * WIDEST * ROW)
    start = array_at(my_part(t, t.start, WIDEST * ROW), (WIDEST * LANES,), one)
    noticed = 0
    for s in my_share(t, t.slabs):
        v0, width = slab_of(s, t.slabs, whole)
        n0, end, row = v0 * LANES, (v0 + width) * LANES, width * ROW
        n1 = min(end, outputs)
        slab_ = t.z + (v0 if t.keep else my_number(t) * WIDEST) * ROW * rows

        # product
        by_input = array_at(wide, (x_size * 8, width * LANES), one)
        transpose(weight[n0:n1], by_input[:inputs, : n1 - n0])
        by_input[:inputs, n1 - n0 :] = 0
        by_input[inputs:] = 0
        start[:] = 0
        if t.bias != 0 and not normalised:
            start[: n1 - n0] = array_at(t.bias, (outputs,), one)[n0:n1]
        for p in range(x_size // WORD):
            for i in range(AT_ONCE):
                a = wide + (p * AT_ONCE + i) * BITS * row
                fill_table(tables + i * ENTRIES * row, a, a + row, a + 2 * row, a + 3 * row, width)
            source, step = (start.ctypes.data, 0) if p == 0 else (slab_, row)
            packed_simd.add_looked_up(width, slab_, source, step, t.x + p * WORD, x_size, tables, rows)

        # scale and shift
        if normalised:
            maps[2, n0:end] = array_at(slab_, (width * LANES,), one)  # the first sample
            array_at(t.sums, (2, BLOCKS, columns), float64(0))[:, :, n0:end] = 0
            for v in range(width):
                for b in range(BLOCKS):
                    mine = rows_of(b, batch)
                    for step in range(steps):
                        packed_simd.add_moments(
                            slab_ + (step * batch + mine.start) * row + v * ROW, row, len(mine),
                            center_ + (v0 + v) * ROW,
                            t.sums + (b * columns + n0 + v * LANES) * 8,
                            t.sums + ((BLOCKS + b) * columns + n0 + v * LANES) * 8,
                        )  # fmt: skip
            if not norm_statistics.statistics_and_map(t, n0, n1, one):
                noticed = NOT_FINITE
            maps[:, n1:end] = 0

        # neurons
        for v in range(width):
            packed_simd.fire(
                slab_ + v * ROW, row, steps, batch, scale_ + (v0 + v) * ROW, shift_ + (v0 + v) * ROW,
                t.neuron, t.spikes + (v0 + v) * BYTES, t.out_size,
            )  # fmt: skip
    if my_number(t) == 0:
        array_at(t.spikes, (rows, t.out_size), np.uint8(0))[:, whole * BYTES :] = 0
    return noticed


@njit
def layer_backward(t: Any, one: Any) -> int:
    """From the gradient of the spikes to that of the products grad_z, its sum over time, and the weights' gradient."""
    steps, batch, inputs, outputs, columns, x_size = t.steps, t.batch, t.inputs, t.features, t.columns, t.x_size
    rows = steps * batch
    scale_, shift_, center_ = t.maps, t.maps + columns * 4, t.maps + 2 * columns * 4
    constant_, slope_ = t.path, t.path + columns * 4
    grad_time = batch * columns * 4 if t.g_steps > 1 else 0
    result = array_at(t.grad_weight, (outputs, inputs), one)
    path = array_at(t.path, (2, columns), one)
    for block in my_share(t, BLOCKS):
        for g in rows_of(block, t.code_rows):
            packed_simd.unpack_codes(
                *four_rows(t.x, x_size, g * BITS, rows, t.silence), t.codes + g * x_size * 8 * 2, x_size
            )
    wait_for_all(t)
    tables = my_part(t, t.tables, TABLES * 4)
    total = my_part(t, t.total, inputs * WIDEST * ROW)
    potentials = my_part(t, t.potentials, steps * ROW)
    for s in my_share(t, t.slabs):
        v0, width = slab_of(s, t.slabs, columns // LANES)
        n0, end = v0 * LANES, (v0 + width) * LANES
        n1 = min(end, outputs)
        slab_ = t.z + v0 * ROW * rows
        for b in range(BLOCKS):  # a block of all vectors, then the next: half of it the other thread has just written
            mine = rows_of(b, batch)
            for v in range(width):
                here = (v0 + v) * ROW
                sum_ = t.sums + b * columns * 4 + here
                packed_simd.fire_backward(
                    t.surrogate, slab_ + v * ROW, width * ROW, steps, batch, mine.start, len(mine), scale_ + here,
                    shift_ + here, center_ + here, t.neuron, t.grad + here, columns * 4, grad_time,
                    potentials, t.grad_z + here, columns * 4, sum_, sum_ + BLOCKS * columns * 4,
                )  # fmt: skip
        norm_statistics.pull_back(t, n0, n1, one)
        path[:, n1:end] = 0
        for b in range(BLOCKS):
            mine = rows_of(b, batch)
            for v in range(width):
                here = (v0 + v) * ROW
                packed_simd.norm_backward(
                    slab_ + v * ROW, width * ROW, steps, batch, mine.start, len(mine), scale_ + here, center_ + here,
                    constant_ + here, slope_ + here, t.grad_z + here, columns * 4, t.over_time + here,
                )  # fmt: skip
        by_input = array_at(total, (inputs, width * LANES), one)
        gradient_of_slab(rows, x_size * 8, columns, v0, width, t.grad_z, t.codes, tables, by_input, t.silence)
        transpose(by_input[:, : n1 - n0], result[n0:n1])
    return 0

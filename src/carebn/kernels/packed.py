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

from carebn.kernels import packed_lanes, vectors
from carebn.kernels.jit import njit
from carebn.kernels.lanes import AT_ONCE, BITS, ENTRIES, LANES, ROW, WIDEST, fill_table
from carebn.kernels.lookup import aligned, gradient_of_slab, slab_of, transpose
from carebn.kernels.pool import BLOCKS, i_am_first, my_blocks, my_number, read_table, wait_for_all
from carebn.kernels.scan import array_at, rows_of

WORD = 4  # bytes of spikes that one pass of the look-up takes in
GIVEN, MOVING, BATCH = 0, 1, 2  # where scale and shift come from
LAYER, STATISTICS = 19, 14  # entries of the parts of a layer's table

_rectangle_backward = packed_lanes.fire_backward(packed_lanes.RECTANGLE)
_triangle_backward = packed_lanes.fire_backward(packed_lanes.TRIANGLE)


@njit
def encode(table: int, at: int, one: Any) -> None:
    """Packed spikes of soft-reset integrate-and-fire neurons under a constant stimulation [B, F]."""
    steps, batch, features, size, a_, spikes_, constants_ = read_table(table, at, 7)
    a = array_at(a_, (batch, features), one)
    spikes = array_at(spikes_, (steps, batch, size), np.uint8(0))
    whole = (features + LANES - 1) // LANES
    row = np.zeros(whole * LANES, a.dtype)
    for block in my_blocks(table):
        for b in rows_of(block, batch):
            row[:features] = a[b]
            packed_lanes.encode(row.ctypes.data, spikes_ + b * size, batch * size, steps, constants_, whole)
            for t in range(steps):
                for i in range(whole, size):
                    spikes[t, b, i] = 0


@njit
def count(table: int, at: int, one: Any) -> None:
    """How often every neuron fired: counts [B, N'] of packed spikes."""
    steps, batch, outputs, size, spikes_, counts_ = read_table(table, at, 6)
    whole = (outputs + LANES - 1) // LANES
    for block in my_blocks(table):
        for b in rows_of(block, batch):
            packed_lanes.count_spikes(spikes_ + b * size, batch * size, steps, counts_ + b * whole * ROW, whole)


@njit
def layer(table: int, at: int, one: Any) -> None:
    """Entries: those read here, those of ``vectors.statistics``, those of ``vectors.update_moving``.

    Without ``keep``, z is room for one slab of every thread, used again and again.
    """
    (steps, batch, inputs, outputs, x_size, out_size, slabs, mode, keep, x_, weight_, bias_, z_, spikes_, scale_,
     shift_, center_, constants_, sums_) = read_table(table, at, LAYER)  # fmt: skip
    rows = steps * batch
    whole = (outputs + LANES - 1) // LANES
    columns = whole * LANES
    weight = array_at(weight_, (outputs, inputs), one)
    scale = array_at(scale_, (columns,), one)
    shift = array_at(shift_, (columns,), one)
    center = array_at(center_, (columns,), one)
    sums = array_at(sums_, (2, BLOCKS, columns), np.float64(0))
    tables = aligned(AT_ONCE * ENTRIES * WIDEST * LANES, one)
    wide = aligned(x_size * 8 * WIDEST * LANES, one)
    start = np.empty(WIDEST * LANES, weight.dtype)
    for block in my_blocks(table):
        for s in range(block, slabs, BLOCKS):
            v0, width = slab_of(s, slabs, whole)
            n0, end = v0 * LANES, (v0 + width) * LANES
            n1 = min(end, outputs)
            slab_ = z_ + (v0 if keep else my_number(table) * WIDEST) * ROW * rows

            # product
            by_input = wide[: x_size * 8 * width * LANES].reshape((x_size * 8, width * LANES))
            transpose(weight[n0:n1], by_input[:inputs, : n1 - n0])
            for k in range(inputs):
                for n in range(n1 - n0, width * LANES):
                    by_input[k, n] = 0
            for k in range(inputs, x_size * 8):
                for n in range(width * LANES):
                    by_input[k, n] = 0
            start[:] = 0
            if bias_ != 0:
                start[: n1 - n0] = array_at(bias_, (outputs,), one)[n0:n1]
            for p in range(x_size // WORD):
                for i in range(AT_ONCE):
                    first = by_input.ctypes.data + (p * AT_ONCE + i) * BITS * width * ROW
                    fill_table(
                        tables.ctypes.data + i * ENTRIES * width * ROW,
                        first, first + width * ROW, first + 2 * width * ROW, first + 3 * width * ROW, width,
                    )  # fmt: skip
                source, step = (start.ctypes.data, 0) if p == 0 else (slab_, width * ROW)
                packed_lanes.add_looked_up(width, slab_, source, step, x_ + p * WORD, x_size, tables.ctypes.data, rows)

            # scale and shift
            if mode == BATCH:
                pivot = array_at(slab_, (width * LANES,), one)
                for n in range(width * LANES):
                    center[n0 + n] = pivot[n]
                sums[:, :, n0:end] = 0
                for v in range(width):
                    for b in range(BLOCKS):
                        mine = rows_of(b, batch)
                        for t in range(steps):
                            packed_lanes.add_moments(
                                slab_ + (t * batch + mine.start) * width * ROW + v * ROW, width * ROW, len(mine),
                                center_ + (v0 + v) * ROW,
                                sums_ + (b * columns + n0 + v * LANES) * 8,
                                sums_ + ((BLOCKS + b) * columns + n0 + v * LANES) * 8,
                            )  # fmt: skip
                vectors.statistics(table, at + LAYER, n0, n1, one)
            elif mode == MOVING:
                vectors.moving_map(table, at + LAYER, at + LAYER + STATISTICS, n0, n1, one)
            if mode != GIVEN:
                for n in range(n1, end):
                    scale[n] = 0
                    shift[n] = 0
                    center[n] = 0

            # neurons
            for v in range(width):
                packed_lanes.fire(
                    slab_ + v * ROW, width * ROW, steps, batch, scale_ + (v0 + v) * ROW, shift_ + (v0 + v) * ROW,
                    constants_, spikes_ + v0 + v, out_size,
                )  # fmt: skip
    if i_am_first(table):
        spikes = array_at(spikes_, (rows, out_size), np.uint8(0))
        for m in range(rows):
            for i in range(whole, out_size):
                spikes[m, i] = 0
    if mode == BATCH:
        wait_for_all(table)
        if i_am_first(table) and vectors.is_finite(table, at + LAYER):
            vectors.update_moving(table, at + LAYER + STATISTICS, one)


LAYER_BACKWARD = 23


@njit
def layer_backward(table: int, at: int, one: Any) -> None:
    """Entries: those read here, and those of ``vectors.pull_back``.

    The gradient of the spikes has rows of N' columns, ``grad_time`` bytes from one time step to the next (zero if it is
    the same at all). grad_z [T·B, N'] and its sum over time [B, N'] come out, and the weights' gradient [N, K].
    """
    (steps, batch, inputs, outputs, x_size, slabs, normalised, surrogate, x_, z_, scale_, shift_, center_, constants_,
     grad_, grad_time, grad_z_, over_time_, sums_, constant_, slope_, codes_, result_) = read_table(
        table, at, LAYER_BACKWARD
    )  # fmt: skip
    rows = steps * batch
    whole = (outputs + LANES - 1) // LANES
    columns = whole * LANES
    groups = (rows + BITS * AT_ONCE - 1) // (BITS * AT_ONCE) * AT_ONCE
    result = array_at(result_, (outputs, inputs), one)
    constant = array_at(constant_, (columns,), one)
    slope = array_at(slope_, (columns,), one)
    silence = np.zeros(max(x_size, columns), result.dtype)  # in place of samples that are not there
    for block in my_blocks(table):
        for g in rows_of(block, groups):
            m = g * BITS
            packed_lanes.unpack_codes(
                x_ + m * x_size if m < rows else silence.ctypes.data,
                x_ + (m + 1) * x_size if m + 1 < rows else silence.ctypes.data,
                x_ + (m + 2) * x_size if m + 2 < rows else silence.ctypes.data,
                x_ + (m + 3) * x_size if m + 3 < rows else silence.ctypes.data,
                codes_ + g * x_size * 8 * 2, x_size,
            )  # fmt: skip
    wait_for_all(table)
    tables = aligned(AT_ONCE * ENTRIES * WIDEST * LANES, one)
    total = aligned(inputs * WIDEST * LANES, one)
    potentials = aligned(steps * LANES, one)
    for block in my_blocks(table):
        for s in range(block, slabs, BLOCKS):
            v0, width = slab_of(s, slabs, whole)
            n0, end = v0 * LANES, (v0 + width) * LANES
            n1 = min(end, outputs)
            slab_ = z_ + v0 * ROW * rows
            for v in range(width):
                here = (v0 + v) * ROW
                for b in range(BLOCKS):
                    mine = rows_of(b, batch)
                    sum_ = sums_ + b * columns * 4 + here
                    if surrogate == packed_lanes.RECTANGLE:
                        _rectangle_backward(
                            slab_ + v * ROW, width * ROW, steps, batch, mine.start, len(mine), scale_ + here,
                            shift_ + here, center_ + here, constants_, grad_ + here, columns * 4, grad_time,
                            potentials.ctypes.data, grad_z_ + here, columns * 4, sum_, sum_ + BLOCKS * columns * 4,
                        )  # fmt: skip
                    else:
                        _triangle_backward(
                            slab_ + v * ROW, width * ROW, steps, batch, mine.start, len(mine), scale_ + here,
                            shift_ + here, center_ + here, constants_, grad_ + here, columns * 4, grad_time,
                            potentials.ctypes.data, grad_z_ + here, columns * 4, sum_, sum_ + BLOCKS * columns * 4,
                        )  # fmt: skip
            if normalised:
                vectors.pull_back(table, at + LAYER_BACKWARD, n0, n1, one)
            else:
                vectors.pull_back_plainly(table, at + LAYER_BACKWARD, n0, n1, one)
            for n in range(n1, end):
                constant[n] = 0
                slope[n] = 0
            for v in range(width):
                here = (v0 + v) * ROW
                packed_lanes.finish(
                    slab_ + v * ROW, width * ROW, steps, batch, scale_ + here, center_ + here, constant_ + here,
                    slope_ + here, grad_z_ + here, columns * 4, over_time_ + here,
                )  # fmt: skip
            by_input = total[: inputs * width * LANES].reshape((inputs, width * LANES))
            gradient_of_slab(
                rows, x_size * 8, columns, v0, width, grad_z_, codes_, tables, by_input, silence.ctypes.data
            )
            transpose(by_input[:, : n1 - n0], result[n0:n1])

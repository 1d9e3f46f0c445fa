"""Matrix products with spikes by table look-up: about twice as fast as the dense product, at any firing rate.

Four inputs that are 0 or 1 have sixteen possible sums of their weights. So the sums are written down once, in a table,
and then each sample adds one row of the table where a dense product would do four multiplications: the method of the
four Russians. The same trick turned round gives the gradient of the weights: there four samples share a table.

    forward    z[m] = bias + Σ_g table[g, code[m, g]]      table[g, c] = Σ_j bit_j(c)·W[:, input(g, j)]
    gradient   dW[:, k] = Σ_g table[g, code[g, k]]         table[g, c] = Σ_j bit_j(c)·grad[4g + j]

Group g has the inputs g, g + Q, g + 2Q and g + 3Q with Q = ⌊K/4⌋; up to three that are left make a group of their own.
Columns are cut into slabs so narrow that the eight tables in use stay in the first-level cache. Each element's sum has
one fixed order, whatever the number of threads.
"""

from typing import Any

import numpy as np

from carebn.kernels.jit import int32, int64, njit, uint16
from carebn.kernels.lanes import AT_ONCE, BITS, ENTRIES, LANES, ROW, WIDEST, add_looked_up, fill_table, write_codes
from carebn.kernels.pool import BLOCKS, my_blocks, read_table, wait_for_all
from carebn.kernels.scan import array_at, rows_of

CACHE_LINE = 64
TILE = 16  # rows and columns that are transposed together


@njit
def aligned(size: int, one: Any) -> Any:
    """A new array that begins at the start of a cache line. To be used as an array: an address keeps nothing alive."""
    buffer = np.empty(size + CACHE_LINE // 4, array_at(0, (0,), one).dtype)
    begin = -buffer.ctypes.data % CACHE_LINE // 4
    return buffer[begin : begin + size]


@njit
def transpose(source: Any, out: Any) -> None:
    """out[j, i] = source[i, j], tile by tile, so that what is read and what is written stay in the cache."""
    rows, columns = source.shape
    for i0 in range(0, rows, TILE):
        for j0 in range(0, columns, TILE):
            for i in range(i0, min(i0 + TILE, rows)):
                for j in range(j0, min(j0 + TILE, columns)):
                    out[j, i] = source[i, j]


@njit
def slab_of(s: int, slabs: int, vectors: int) -> tuple[int, int]:
    """The first vector of slab s, and how many it has, of so many slabs."""
    first = vectors * s // slabs
    return first, vectors * (s + 1) // slabs - first


@njit
def _weights_by_input(weight: Any, wide: Any, mine: Any) -> None:
    """wide[k] = weight[:, k] for these inputs k, with zeros where there is no such input or no such output."""
    outputs, inputs = weight.shape
    there = max(min(mine.stop, inputs), mine.start)
    transpose(weight[:, mine.start : there], wide[mine.start : there])
    for k in range(mine.start, there):
        for n in range(outputs, wide.shape[1]):
            wide[k, n] = 0
    for k in range(there, mine.stop):
        wide[k] = 0


@njit
def product(table: int, at: int, one: Any) -> None:
    """z [M, N'] = x·Wᵀ + bias for spikes x [M, K], with N' = N filled up to whole vectors.

    flags[block] says whether that block's inputs were all 0 or 1. If any was not, z is not filled in. ``wide`` is room
    for the weights as [4⌈K/4⌉ + 1, N'], the last of zeros; ``padded`` is the number of groups, filled up to whole
    passes.
    """
    (samples, inputs, outputs, padded, x_, weight_, bias_, codes_, wide_, z_, flags_) = read_table(table, at, 11)
    vectors = (outputs + LANES - 1) // LANES
    columns = vectors * LANES
    quarter = inputs // BITS
    left = inputs - BITS * quarter
    rows_of_wide = BITS * ((inputs + BITS - 1) // BITS) + 1
    x = array_at(x_, (samples, inputs), int32(0))
    weight = array_at(weight_, (outputs, inputs), one)
    codes = array_at(codes_, (samples, padded), uint16(0))
    wide = array_at(wide_, (rows_of_wide, columns), one)
    flags = array_at(flags_, (BLOCKS,), int64(0))
    rest = np.zeros((BITS, LANES), np.int32)  # the inputs that are left of one sample, in the first column
    rest_ = rest.ctypes.data
    rest_code = np.zeros(LANES, np.uint16)
    for block in my_blocks(table):
        flags[block] = 1
        for m in rows_of(block, samples):
            a = x_ + m * inputs * 4
            code = codes[m]
            binary = write_codes(
                a, a + quarter * 4, a + 2 * quarter * 4, a + 3 * quarter * 4, code.ctypes.data, quarter
            )
            for g in range(quarter, padded):
                code[g] = 0
            if left > 0:
                for j in range(left):
                    rest[j, 0] = x[m, BITS * quarter + j]
                binary &= write_codes(
                    rest_, rest_ + ROW, rest_ + 2 * ROW, rest_ + 3 * ROW, rest_code.ctypes.data, LANES
                )
                code[quarter] = rest_code[0]
            if not binary:
                flags[block] = 0
                break
        _weights_by_input(weight, wide, rows_of(block, rows_of_wide))
    wait_for_all(table)
    for block in range(BLOCKS):
        if flags[block] == 0:
            return
    start = np.zeros(columns, weight.dtype)
    if bias_ != 0:
        start[:outputs] = array_at(bias_, (outputs,), one)
    scratch = aligned(AT_ONCE * ENTRIES * WIDEST * LANES, one)
    nothing = rows_of_wide - 1
    slabs = (vectors + WIDEST - 1) // WIDEST
    for s in range(slabs):
        v0, width = slab_of(s, slabs, vectors)
        for g0 in range(0, padded, AT_ONCE):  # outside the loop over samples, so that the tables stay in the cache
            for i in range(AT_ONCE):
                g = g0 + i
                if g < quarter:
                    a, b, c, d = g, g + quarter, g + 2 * quarter, g + 3 * quarter
                elif g == quarter and left > 0:
                    a, b, c, d = BITS * quarter, BITS * quarter + 1, BITS * quarter + 2, BITS * quarter + 3
                else:
                    a, b, c, d = nothing, nothing, nothing, nothing
                part = wide_ + v0 * ROW
                fill_table(
                    scratch.ctypes.data + i * ENTRIES * width * ROW,
                    part + a * columns * 4, part + b * columns * 4, part + c * columns * 4, part + d * columns * 4,
                    width,
                )  # fmt: skip
            for block in my_blocks(table):
                rows = rows_of(block, samples)
                out = z_ + rows.start * columns * 4 + v0 * ROW
                source, step = (start.ctypes.data + v0 * ROW, 0) if g0 == 0 else (out, columns * 4)
                add_looked_up(
                    width, out, columns * 4, source, step, codes_ + (rows.start * padded + g0) * 2, padded * 2, 2,
                    scratch.ctypes.data, len(rows),
                )  # fmt: skip


@njit
def gradient_of_slab(
    samples: int, code_row: int, columns: int, v0: int, width: int, grad_: int, codes_: int, tables: Any, by_input: Any,
    silence_: int,
) -> None:  # fmt: skip
    """by_input [K, width of the slab] = xᵀ·grad for the ``width`` vectors of grad [M, columns] from number v0 on.

    codes [⌈M/4⌉ filled up to whole passes, code_row] are those of x, ``silence`` a row of zeros.
    """
    inputs = by_input.shape[0]
    out = by_input.ctypes.data
    part = grad_ + v0 * ROW
    for p in range((samples + BITS * AT_ONCE - 1) // (BITS * AT_ONCE)):
        for i in range(AT_ONCE):
            m = (p * AT_ONCE + i) * BITS
            fill_table(
                tables.ctypes.data + i * ENTRIES * width * ROW,
                part + m * columns * 4 if m < samples else silence_,
                part + (m + 1) * columns * 4 if m + 1 < samples else silence_,
                part + (m + 2) * columns * 4 if m + 2 < samples else silence_,
                part + (m + 3) * columns * 4 if m + 3 < samples else silence_,
                width,
            )  # fmt: skip
        source, step = (silence_, 0) if p == 0 else (out, width * ROW)
        add_looked_up(
            width, out, width * ROW, source, step, codes_ + p * AT_ONCE * code_row * 2, 2, code_row * 2,
            tables.ctypes.data, inputs,
        )  # fmt: skip


@njit
def weight_gradient(table: int, at: int, one: Any) -> None:
    """grad_weight [N, K] = gradᵀ·x for spikes x [M, K] and grad [M, N'], with N' = N filled up to whole vectors.

    The columns of grad are cut into ``slabs``.
    """
    (samples, inputs, outputs, slabs, x_, grad_, codes_, result_) = read_table(table, at, 8)
    together = BITS * AT_ONCE
    passes = (samples + together - 1) // together
    vectors = (outputs + LANES - 1) // LANES
    columns = vectors * LANES
    result = array_at(result_, (outputs, inputs), one)
    silence = np.zeros(max(inputs, columns), result.dtype)  # in place of samples that are not there
    for block in my_blocks(table):
        for g in rows_of(block, passes * AT_ONCE):
            m = g * BITS
            write_codes(
                x_ + m * inputs * 4 if m < samples else silence.ctypes.data,
                x_ + (m + 1) * inputs * 4 if m + 1 < samples else silence.ctypes.data,
                x_ + (m + 2) * inputs * 4 if m + 2 < samples else silence.ctypes.data,
                x_ + (m + 3) * inputs * 4 if m + 3 < samples else silence.ctypes.data,
                codes_ + g * inputs * 2, inputs,
            )  # fmt: skip
    wait_for_all(table)
    scratch = aligned(AT_ONCE * ENTRIES * WIDEST * LANES, one)
    total = aligned(inputs * WIDEST * LANES, one)
    for block in my_blocks(table):
        for s in range(block, slabs, BLOCKS):
            v0, width = slab_of(s, slabs, vectors)
            by_input = total[: inputs * width * LANES].reshape((inputs, width * LANES))
            gradient_of_slab(samples, inputs, columns, v0, width, grad_, codes_, scratch, by_input, silence.ctypes.data)
            n0, n1 = v0 * LANES, min((v0 + width) * LANES, outputs)
            transpose(by_input[:, : n1 - n0], result[n0:n1])

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

import torch

from carebn.kernels import simd
from carebn.kernels.jit import array_at, int32, int64, njit, uint16
from carebn.kernels.pool import BLOCKS, NOT_BINARY, my_part, my_share, rows_of, wait_for_all
from carebn.kernels.simd import AT_ONCE, BITS, ENTRIES, LANES, ROW, TABLES, WIDEST
from carebn.kernels.tables import INT, REAL, Array, Scratch, Table

TILE = 16  # rows and columns that are transposed together

# ``groups`` of inputs, filled up to whole passes; ``columns``: the outputs, filled up to whole vectors.
PRODUCT = Table(
    samples=INT, inputs=INT, outputs=INT, groups=INT, columns=INT, wide_rows=INT,
    x=Array(REAL, "samples, inputs"), weight=Array(REAL, "outputs, inputs"), bias=Array(REAL, "outputs", optional=True),
    codes=Array(torch.uint16, "samples, groups"),
    wide=Array(REAL, "wide_rows, columns"),  # room for the weights by input, the last row of zeros
    z=Array(REAL, "samples, columns"),
    flags=Array(torch.int64, str(BLOCKS)),  # whether a block's inputs were all 0 or 1
    start=Scratch(REAL, "columns"), tables=Scratch(REAL, str(TABLES)),
)  # fmt: skip
WEIGHT_GRADIENT = Table(
    samples=INT, inputs=INT, outputs=INT, columns=INT, slabs=INT, code_rows=INT,
    x=Array(REAL, "samples, inputs"), grad=Array(REAL, "samples, columns"),
    codes=Array(torch.uint16, "code_rows, inputs"), result=Array(REAL, "outputs, inputs"),
    silence=Array(REAL, "max(inputs, columns)"),  # zeros, in place of samples that are not there
    tables=Scratch(REAL, str(TABLES)), total=Scratch(REAL, f"inputs, {WIDEST * LANES}"),
)  # fmt: skip


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
def four_rows(rows: int, step: int, m: int, samples: int, silence: int) -> tuple[int, int, int, int]:
    """The addresses of the rows m to m + 3, ``step`` bytes apart; silence is in place of samples that are not there."""
    first = rows + m * step
    return (
        first if m < samples else silence,
        first + step if m + 1 < samples else silence,
        first + 2 * step if m + 2 < samples else silence,
        first + 3 * step if m + 3 < samples else silence,
    )


@njit
def _weights_by_input(weight: Any, wide: Any, mine: Any) -> None:
    """wide[k] = weight[:, k] for these inputs k, with zeros where there is no such input or no such output."""
    outputs, inputs = weight.shape
    there = max(min(mine.stop, inputs), mine.start)
    transpose(weight[:, mine.start : there], wide[mine.start : there])
    wide[mine.start : there, outputs:] = 0
    wide[there : mine.stop] = 0


@njit
def product(t: Any, one: Any) -> int:
    """z [M, N'] = x·Wᵀ + bias for spikes x [M, K], with N' = N filled up to whole vectors.

    If x holds anything but 0 and 1, z is not filled in, and that is reported.
    """
    samples, inputs, outputs, groups, columns = t.samples, t.inputs, t.outputs, t.groups, t.columns
    vectors = columns // LANES
    quarter = inputs // BITS
    left = inputs - BITS * quarter
    x = array_at(t.x, (samples, inputs), int32(0))
    weight = array_at(t.weight, (outputs, inputs), one)
    codes = array_at(t.codes, (samples, groups), uint16(0))
    wide = array_at(t.wide, (t.wide_rows, columns), one)
    flags = array_at(t.flags, (BLOCKS,), int64(0))
    for block in my_share(t, BLOCKS):
        flags[block] = 1
        for m in rows_of(block, samples):
            a = t.x + m * inputs * 4
            code = codes[m]
            binary = simd.write_codes(
                a, a + quarter * 4, a + 2 * quarter * 4, a + 3 * quarter * 4, code.ctypes.data, quarter
            )
            code[quarter:] = 0
            for j in range(left):
                bits = x[m, BITS * quarter + j]
                binary &= bits == 0 or bits == simd.ONE
                code[quarter] += (bits == simd.ONE) * (ROW << j)
            if not binary:
                flags[block] = 0
                break
        _weights_by_input(weight, wide, rows_of(block, t.wide_rows))
    wait_for_all(t)
    for block in range(BLOCKS):
        if flags[block] == 0:
            return NOT_BINARY
    start = array_at(my_part(t, t.start, columns * 4), (columns,), one)
    start[:] = 0
    if t.bias != 0:
        start[:outputs] = array_at(t.bias, (outputs,), one)
    tables = my_part(t, t.tables, TABLES * 4)
    slabs = (vectors + WIDEST - 1) // WIDEST
    for s in range(slabs):
        v0, width = slab_of(s, slabs, vectors)
        for g0 in range(0, groups, AT_ONCE):  # outside the loop over samples, so that the tables stay in the cache
            for i in range(AT_ONCE):
                g = g0 + i
                if g < quarter:
                    first, apart = g, quarter
                elif g == quarter and left > 0:
                    first, apart = BITS * quarter, 1
                else:
                    first, apart = t.wide_rows - 1, 0  # nothing
                a, row = t.wide + first * columns * 4 + v0 * ROW, apart * columns * 4
                simd.fill_table(tables + i * ENTRIES * width * ROW, a, a + row, a + 2 * row, a + 3 * row, width)
            for block in my_share(t, BLOCKS):
                rows = rows_of(block, samples)
                out = t.z + rows.start * columns * 4 + v0 * ROW
                source, step = (start.ctypes.data + v0 * ROW, 0) if g0 == 0 else (out, columns * 4)
                simd.add_looked_up(
                    width, out, columns * 4, source, step, t.codes + (rows.start * groups + g0) * 2, groups * 2, 2,
                    tables, len(rows),
                )  # fmt: skip
    return 0


@njit
def gradient_of_slab(
    samples: int, code_row: int, columns: int, v0: int, width: int, grad_: int, codes_: int, tables_: int,
    by_input: Any, silence_: int,
) -> None:  # fmt: skip
    """by_input [K, width of the slab] = xᵀ·grad for the ``width`` vectors of grad [M, columns] from number v0 on.

    codes [⌈M/4⌉ filled up to whole passes, code_row] are those of x, ``silence`` a row of zeros.
    """
    inputs = by_input.shape[0]
    out = by_input.ctypes.data
    part, row = grad_ + v0 * ROW, width * ROW
    for p in range((samples + BITS * AT_ONCE - 1) // (BITS * AT_ONCE)):
        for i in range(AT_ONCE):
            four = four_rows(part, columns * 4, (p * AT_ONCE + i) * BITS, samples, silence_)
            simd.fill_table(tables_ + i * ENTRIES * row, *four, width)
        source, step = (silence_, 0) if p == 0 else (out, row)
        codes = codes_ + p * AT_ONCE * code_row * 2
        simd.add_looked_up(width, out, row, source, step, codes, 2, code_row * 2, tables_, inputs)


@njit
def weight_gradient(t: Any, one: Any) -> int:
    """grad_weight [N, K] = gradᵀ·x for spikes x [M, K] and grad [M, N'], with N' = N filled up to whole vectors.

    The columns of grad are cut into ``slabs``.
    """
    samples, inputs, outputs, columns = t.samples, t.inputs, t.outputs, t.columns
    result = array_at(t.result, (outputs, inputs), one)
    for block in my_share(t, BLOCKS):
        for g in rows_of(block, t.code_rows):
            simd.write_codes(
                *four_rows(t.x, inputs * 4, g * BITS, samples, t.silence), t.codes + g * inputs * 2, inputs
            )
    wait_for_all(t)
    tables = my_part(t, t.tables, TABLES * 4)
    total = my_part(t, t.total, inputs * WIDEST * ROW)
    for s in my_share(t, t.slabs):
        v0, width = slab_of(s, t.slabs, columns // LANES)
        by_input = array_at(total, (inputs, width * LANES), one)
        gradient_of_slab(samples, inputs, columns, v0, width, t.grad, t.codes, tables, by_input, t.silence)
        n0, n1 = v0 * LANES, min((v0 + width) * LANES, outputs)
        transpose(by_input[:, : n1 - n0], result[n0:n1])
    return 0

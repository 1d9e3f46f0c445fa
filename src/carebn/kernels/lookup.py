"""Matrix products with spikes by table look-up, about twice as fast as the dense product, at any firing rate.

Four inputs that are 0 or 1 have sixteen possible sums of their weights. So the sums are written down once, in a table,
and then each sample adds one row of the table where a dense product would do four multiplications: the method of the
four Russians. The same trick turned round gives the gradient of the weights: there four samples share a table.

    forward    z[m] = bias + Σ_g table[g, code[m, g]]      table[g, c] = Σ_j bit_j(c)·W[:, g + j·G],  G = ⌈K/4⌉
    gradient   dW[:, k] = Σ_g table[g, code[g, k]]         table[g, c] = Σ_j bit_j(c)·grad[4g + j]

Columns are cut into slabs so narrow that the part of the table in use stays in the first-level cache. Each element's
sum has one fixed order, whatever the number of threads.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils

from carebn.kernels.jit import int32, int64, intrinsic, njit, types, uint8
from carebn.kernels.pool import BLOCKS, my_blocks, read_table, wait_for_all
from carebn.kernels.scan import array_at, rows_of

BITS = 4  # inputs that share a table
ENTRIES = 1 << BITS
AT_ONCE = 8  # tables whose rows are added in one pass over the result
LANES = 8  # floats in one vector of the processor
SLAB = 64  # columns worked on together
SMALL = 96  # so many columns are not cut


def _row_adder(unrolled: bool) -> Any:
    """out[i] += a[i] + … + h[i] for so many vectors; all are addresses of float32. One by one, in this order."""

    @intrinsic
    def add_rows(
        typingctx: Any, out: Any, vectors: Any, a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, g: Any, h: Any
    ) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            vector = ir.VectorType(ir.FloatType(), LANES).as_pointer()
            target, *sources = (builder.inttoptr(address, vector) for address in (args[0], *args[2:]))

            def add(index: Any) -> None:
                here = builder.gep(target, [index])
                total = builder.load(here, align=4)
                for source in sources:
                    total = builder.fadd(total, builder.load(builder.gep(source, [index]), align=4))
                builder.store(total, here, align=4)

            if unrolled:
                for index in range(SLAB // LANES):
                    add(ir.Constant(ir.IntType(64), index))
            else:
                with cgutils.for_range(builder, args[1]) as loop:
                    add(loop.index)
            return context.get_dummy_value()

        return types.none(*[types.int64] * 10), codegen

    return add_rows


_add_full_rows, _add_rows = _row_adder(True), _row_adder(False)


@njit
def _add_looked_up(out_: int, table_: int, code: Any, columns: int, whole_slab: bool) -> None:
    """out += Σ_g table[g, code[g]] for AT_ONCE tables of rows with so many columns.

    With the width of a whole slab as a constant, the compiler turns the addresses into shifts and the loop into a list.
    """
    row = SLAB * 4 if whole_slab else columns * 4
    size = ENTRIES * row
    a = table_ + code[0] * row
    b = table_ + size + code[1] * row
    c = table_ + 2 * size + code[2] * row
    d = table_ + 3 * size + code[3] * row
    e = table_ + 4 * size + code[4] * row
    f = table_ + 5 * size + code[5] * row
    g = table_ + 6 * size + code[6] * row
    h = table_ + 7 * size + code[7] * row
    if whole_slab:
        _add_full_rows(out_, 0, a, b, c, d, e, f, g, h)
    else:
        _add_rows(out_, columns // LANES, a, b, c, d, e, f, g, h)


@njit
def _eight(codes: Any, g: int) -> Any:
    """A tuple, because making a slice costs as much as using it."""
    return (
        codes[g], codes[g + 1], codes[g + 2], codes[g + 3], codes[g + 4], codes[g + 5], codes[g + 6], codes[g + 7]
    )  # fmt: skip


@njit
def _eight_down(codes: Any, k: int) -> Any:
    return (
        codes[0, k], codes[1, k], codes[2, k], codes[3, k], codes[4, k], codes[5, k], codes[6, k], codes[7, k]
    )  # fmt: skip


@njit
def _extend(table: Any, bit: int, row: Any) -> None:
    """The entries that have this bit as their highest: those without it, plus its row."""
    half = 1 << bit
    for c in range(half):
        without, with_it = table[c], table[half + c]
        for n in range(row.size):
            with_it[n] = without[n] + row[n]


@njit
def _extend_by_nothing(table: Any, bit: int) -> None:
    half = 1 << bit
    for c in range(half):
        table[half + c] = table[c]


@njit
def _code_row(x: Any, groups: int, code: Any) -> None:
    """The codes of one sample whose inputs are all 0 or 1."""
    for g in range(groups, code.size):
        code[g] = 0
    for j in range(BITS):
        part = x[min(j * groups, x.size) : min((j + 1) * groups, x.size)]
        if j == 0:
            for g in range(part.size):
                code[g] = uint8(int32(part[g]))
        else:
            for g in range(part.size):
                code[g] |= uint8(int32(part[g]) << j)


@njit
def _is_binary(x: Any, one: Any) -> bool:
    zero = one - one
    odd = int32(0)
    for k in range(x.size):
        odd |= int32((x[k] != one) & (x[k] != zero))
    return bool(odd == 0)


@njit
def product(table: int, at: int, one: Any) -> None:
    """z [M, N] = x·Wᵀ + bias for spikes x [M, K]; flags[block] says whether that block's inputs were all 0 or 1.

    If any was not, z is not filled in.
    """
    (samples, inputs, outputs, padded, x_, weight_, bias_, codes_, sums_, z_, flags_) = read_table(table, at, 11)
    groups = (inputs + BITS - 1) // BITS
    x = array_at(x_, (samples, inputs), one)
    weight = array_at(weight_, (outputs, inputs), one)
    codes = array_at(codes_, (samples, padded), uint8(0))
    z = array_at(z_, (samples, outputs), one)
    flags = array_at(flags_, (BLOCKS,), int64(0))
    slab = outputs if outputs <= SMALL else SLAB
    row = np.empty(slab, x.dtype)
    for block in my_blocks(table):
        flags[block] = 1
        for m in rows_of(block, samples):
            if not _is_binary(x[m], one):
                flags[block] = 0
                break
            _code_row(x[m], groups, codes[m])
        for g in rows_of(block, padded):
            for n0 in range(0, outputs, slab):
                width = min(slab, outputs - n0)
                start = sums_ + (n0 * padded + g * width) * ENTRIES * 4
                sums = array_at(start, (ENTRIES, width), one)
                sums[0] = 0
                for j in range(BITS):
                    k = g + j * groups
                    if g < groups and k < inputs:
                        for n in range(width):
                            row[n] = weight[n0 + n, k]
                        _extend(sums, j, row[:width])
                    else:
                        _extend_by_nothing(sums, j)
    wait_for_all(table)
    for block in range(BLOCKS):
        if flags[block] == 0:
            return
    for n0 in range(0, outputs, slab):
        width = min(slab, outputs - n0)
        for block in my_blocks(table):
            for m in rows_of(block, samples):
                if bias_ != 0:
                    z[m, n0 : n0 + width] = array_at(bias_, (outputs,), one)[n0 : n0 + width]
                else:
                    z[m, n0 : n0 + width] = 0
        for g in range(0, padded, AT_ONCE):  # outside the loop over samples, so that the tables stay in the cache
            start = sums_ + (n0 * padded + g * width) * ENTRIES * 4
            for block in my_blocks(table):
                for m in rows_of(block, samples):
                    out = z_ + (m * outputs + n0) * 4
                    if width == SLAB:
                        _add_looked_up(out, start, _eight(codes[m], g), width, True)
                    else:
                        _add_looked_up(out, start, _eight(codes[m], g), width, False)


@njit
def _sample_code_row(x: Any, bit: int, code: Any) -> None:
    for k in range(x.size):
        code[k] |= uint8(int32(x[k]) << bit)


@njit
def weight_gradient(table: int, at: int, one: Any) -> None:
    """grad_weight [N, K] = gradᵀ·x for spikes x [M, K] and grad [M, N]. ``slab`` columns go to a thread at a time."""
    (samples, inputs, outputs, slab, x_, grad_, codes_, result_) = read_table(table, at, 8)
    together = BITS * AT_ONCE
    passes = (samples + together - 1) // together
    x = array_at(x_, (samples, inputs), one)
    grad = array_at(grad_, (samples, outputs), one)
    codes = array_at(codes_, (passes, AT_ONCE, inputs), uint8(0))
    result = array_at(result_, (outputs, inputs), one)
    for block in my_blocks(table):
        for p in rows_of(block, passes):
            codes[p] = 0
            for m in range(p * together, min((p + 1) * together, samples)):
                within = m - p * together
                _sample_code_row(x[m], within % BITS, codes[p, within // BITS])
    wait_for_all(table)
    sums = np.empty(AT_ONCE * ENTRIES * slab, x.dtype)
    total = np.empty(inputs * slab, x.dtype)
    for block in my_blocks(table):
        for n0 in range(block * slab, outputs, BLOCKS * slab):
            width = min(slab, outputs - n0)
            tables = sums[: AT_ONCE * ENTRIES * width].reshape((AT_ONCE, ENTRIES, width))
            by_input = total[: inputs * width].reshape((inputs, width))
            by_input[:] = 0
            for p in range(passes):
                for g in range(AT_ONCE):
                    tables[g, 0] = 0
                    for j in range(BITS):
                        m = p * together + g * BITS + j
                        if m < samples:
                            _extend(tables[g], j, grad[m, n0 : n0 + width])
                        else:
                            _extend_by_nothing(tables[g], j)
                for k in range(inputs):
                    out = total.ctypes.data + k * width * 4
                    if width == SLAB:
                        _add_looked_up(out, sums.ctypes.data, _eight_down(codes[p], k), width, True)
                    else:
                        _add_looked_up(out, sums.ctypes.data, _eight_down(codes[p], k), width, False)
            for n in range(width):
                for k in range(inputs):
                    result[n0 + n, k] = by_input[k, n]

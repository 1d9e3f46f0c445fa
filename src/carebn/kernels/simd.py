"""Vectors of the processor, and the inner loops of ``lookup`` and ``act`` written in them.

A compiler that is given plain loops here adds checks and remainders that cost more than the work. All arguments are
addresses, steps and sizes in bytes or items, as 64-bit integers; ``vectors`` is the width of a row. Every column is
computed by itself in one fixed order, so no result depends on how many columns make a vector.
"""

import inspect
import os
from collections.abc import Callable, Sequence
from typing import Any

import numba
import numpy as np
from llvmlite import binding, ir
from numba.core import cgutils

from carebn.kernels.jit import intrinsic, types

BITS = 4  # inputs that share a table
ENTRIES = 1 << BITS
AT_ONCE = 8  # tables whose rows are added in one pass over the result


def _lanes() -> int:
    """Sixteen floats where the processor has such registers, else eight, which a compiler can split: the bits of eight
    neurons fill a byte."""
    if (asked := os.environ.get("CAREBN_LANES")) in ("8", "16"):
        return int(asked)
    config: Any = numba.config
    ours = config.CPU_NAME in (None, "host") and config.CPU_FEATURES is None
    return 16 if ours and binding.get_host_cpu_features().get("avx512f") else 8


LANES = _lanes()  # floats in a vector
ROW = 4 * LANES  # bytes of a vector
BYTES = LANES // 8  # bytes of a vector's spikes
WIDEST = 64 // LANES  # vectors in the widest row: so that the tables in use fit into the first-level cache
TABLES = AT_ONCE * ENTRIES * WIDEST * LANES  # floats of the tables of one pass

ONE = int(np.float32(1).view(np.int32))  # the bits of 1.0
_LOWEST = 23  # 1.0 has its bits 23 to 29 set, and no others
LONG, _SHORT = ir.IntType(64), ir.IntType(16)
FLOATS = ir.VectorType(ir.FloatType(), LANES)
INTS = ir.VectorType(ir.IntType(32), LANES)
_SHORTS = ir.VectorType(_SHORT, LANES)


def number(value: int) -> Any:
    return ir.Constant(LONG, value)


def _everywhere(value: int) -> Any:
    return ir.Constant(INTS, [value] * LANES)


def load(builder: Any, address: Any, kind: Any, align: int = 4) -> Any:
    return builder.load(builder.inttoptr(address, kind.as_pointer()), align=align)


def store(builder: Any, value: Any, address: Any, align: int = 4) -> None:
    builder.store(value, builder.inttoptr(address, value.type.as_pointer()), align=align)


def instructions(returns: Any = types.none) -> Callable[[Callable[..., Any]], Any]:
    """Makes ``write(builder, *arguments)`` callable inside kernels: there its instructions are laid down. Arguments are
    64-bit integers."""

    def make(write: Callable[..., Any]) -> Any:
        _, *arguments = inspect.signature(write).parameters
        plainly = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in ("context", *arguments)]

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            result = write(builder, *args)
            return context.get_dummy_value() if result is None else result

        def typed(context: Any, *types_: Any) -> Any:
            return returns(*[types.int64] * len(arguments)), codegen

        typed.__name__ = write.__name__
        typed.__signature__ = inspect.Signature(plainly)  # type: ignore[attr-defined]  # which numba asks for
        return intrinsic(typed)

    return make


def for_every_width(builder: Any, vectors: Any, write: Callable[[int], None]) -> None:
    """The instructions of ``write(width)`` for each width of a row, of which those for ``vectors`` are run.

    With its width known, a row is a list of instructions and an address in a table a shift.
    """
    after = builder.append_basic_block("after")
    switch = builder.switch(vectors, after)
    for width in range(1, WIDEST + 1):
        block = builder.append_basic_block(f"width_{width}")
        switch.add_case(number(width), block)
        builder.position_at_end(block)
        write(width)
        builder.branch(after)
    builder.position_at_end(after)


def write_sum(builder: Any, width: int, out: Any, source: Any, table: Any, codes: Sequence[Any]) -> None:
    """out = source + Σ_g table[g, code_g]; a code is an offset in bytes in a table of rows one vector wide."""
    totals = [load(builder, builder.add(source, number(v * ROW)), FLOATS) for v in range(width)]
    for g, code in enumerate(codes):
        row = builder.add(table, builder.mul(code, number(width)))
        for v in range(width):
            entry = builder.add(row, number((g * ENTRIES * width + v) * ROW))
            totals[v] = builder.fadd(totals[v], load(builder, entry, FLOATS))
    for v in range(width):
        store(builder, totals[v], builder.add(out, number(v * ROW)))


@instructions()
def add_looked_up(
    builder: Any, vectors: Any, out: Any, out_step: Any, source: Any, source_step: Any, codes: Any, code_step: Any,
    group_step: Any, table: Any, rows: Any,
) -> None:  # fmt: skip
    """out[i] = source[i] + Σ_g table[g, code[i, g]] for AT_ONCE tables of rows of so many vectors."""

    def write(width: int) -> None:
        with cgutils.for_range(builder, rows) as loop:
            code = builder.add(codes, builder.mul(loop.index, code_step))
            places = [builder.add(code, builder.mul(group_step, number(g))) for g in range(AT_ONCE)]
            offsets = [builder.zext(load(builder, place, _SHORT, align=2), LONG) for place in places]
            here = builder.add(out, builder.mul(loop.index, out_step))
            there = builder.add(source, builder.mul(loop.index, source_step))
            write_sum(builder, width, here, there, table, offsets)

    for_every_width(builder, vectors, write)


@instructions()
def fill_table(builder: Any, table: Any, a: Any, b: Any, c: Any, d: Any, vectors: Any) -> None:
    """The sixteen sums of the four rows at a, b, c and d."""
    step = builder.mul(vectors, number(ROW))
    with cgutils.for_range(builder, vectors) as loop:
        shift = builder.mul(loop.index, number(ROW))
        sums = [ir.Constant(FLOATS, [0.0] * LANES)]
        for row in (a, b, c, d):
            addend = load(builder, builder.add(row, shift), FLOATS)
            sums += [addend if i == 0 else builder.fadd(total, addend) for i, total in enumerate(sums)]
        for entry, total in enumerate(sums):
            store(builder, total, builder.add(builder.add(table, shift), builder.mul(step, number(entry))))


_PARTS = 32  # partial sums of a dot product; fixed, so that its rounding does not depend on the processor's vectors
_PARTIAL = ir.VectorType(ir.FloatType(), _PARTS)


@instructions(types.float32)
def dot(builder: Any, a: Any, b: Any, count: Any) -> Any:
    """Σ a[i]·b[i] of so many floats, in one fixed order."""
    total = cgutils.alloca_once_value(builder, ir.Constant(_PARTIAL, [0.0] * _PARTS))  # type: ignore[no-untyped-call]
    passes = builder.sdiv(count, number(_PARTS))
    with cgutils.for_range(builder, passes) as loop:
        shift = builder.mul(loop.index, number(4 * _PARTS))
        x, y = (load(builder, builder.add(row, shift), _PARTIAL) for row in (a, b))
        builder.store(builder.fadd(builder.load(total), builder.fmul(x, y)), total)
    parts, width = builder.load(total), _PARTS
    while width > 1:  # the upper half is added to the lower one
        width //= 2
        halves = [ir.Constant(ir.VectorType(ir.IntType(32), width), list(range(i, i + width))) for i in (0, width)]
        low, high = (builder.shuffle_vector(parts, ir.Constant(parts.type, ir.Undefined), half) for half in halves)
        parts = builder.fadd(low, high)
    result = cgutils.alloca_once_value(builder, builder.extract_element(parts, ir.Constant(ir.IntType(32), 0)))  # type: ignore[no-untyped-call]
    done = builder.mul(passes, number(_PARTS))
    with cgutils.for_range(builder, builder.sub(count, done)) as loop:
        shift = builder.mul(builder.add(done, loop.index), number(4))
        x, y = (load(builder, builder.add(row, shift), ir.FloatType()) for row in (a, b))
        builder.store(builder.fadd(builder.load(result), builder.fmul(x, y)), result)
    return builder.load(result)


@instructions(types.boolean)
def write_codes(builder: Any, a: Any, b: Any, c: Any, d: Any, codes: Any, count: Any) -> Any:
    """The codes of ``count`` ≥ LANES columns of four rows of 0.0 and 1.0; returns whether there was nothing else.

    A code is what the four make as a number, times ROW: the offset of its entry in a table one vector wide.
    """
    odd = cgutils.alloca_once_value(builder, _everywhere(0))  # type: ignore[no-untyped-call]
    passes = builder.sdiv(builder.add(count, number(LANES - 1)), number(LANES))
    latest = builder.sub(count, number(LANES))
    with cgutils.for_range(builder, passes) as loop:
        start = builder.mul(loop.index, number(LANES))
        start = builder.select(builder.icmp_signed("<", start, latest), start, latest)
        together = _everywhere(0)
        strange = builder.load(odd)
        for j, row in enumerate((a, b, c, d)):
            bits = load(builder, builder.add(row, builder.mul(start, number(4))), INTS)
            is_one = builder.icmp_signed("==", bits, _everywhere(ONE))
            strange = builder.or_(strange, builder.select(is_one, _everywhere(0), bits))
            together = builder.or_(together, builder.and_(bits, _everywhere(1 << (_LOWEST + j))))
        builder.store(strange, odd)
        offset = builder.lshr(together, _everywhere(_LOWEST - (ROW.bit_length() - 1)))
        store(builder, builder.trunc(offset, _SHORTS), builder.add(codes, builder.mul(start, number(2))), align=2)
    any_odd = builder.bitcast(builder.load(odd), ir.IntType(32 * LANES))
    return builder.icmp_unsigned("==", any_odd, ir.Constant(ir.IntType(32 * LANES), 0))

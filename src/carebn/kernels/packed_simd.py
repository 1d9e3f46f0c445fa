"""The inner loops of ``packed``, written vector by vector: neurons over time, their gradients, and spikes as bits.

Each works on one vector of neighbouring neurons at a time, keeps its state in registers over all time steps, and turns
the comparison with the threshold into one bit a neuron. Arguments are addresses, steps and sizes in bytes or items,
as 64-bit integers. No expression is re-ordered or contracted: spikes agree with the pure-torch step to the last bit.
"""

from typing import Any

from llvmlite import ir
from numba.core import cgutils

from carebn.kernels.simd import (
    AT_ONCE,
    BITS,
    BYTES,
    ENTRIES,
    FLOATS,
    INTS,
    LANES,
    LONG,
    ROW,
    for_every_width,
    instructions,
    load,
    number,
    store,
    write_sum,
)

_SPIKES, _WORD, _FLOAT = ir.IntType(LANES), ir.IntType(32), ir.FloatType()
_FLAGS = ir.VectorType(ir.IntType(1), LANES)
_SHORTS = ir.VectorType(ir.IntType(16), LANES)
_DOUBLES = ir.VectorType(ir.DoubleType(), LANES)
_ZERO = ir.Constant(FLOATS, [0.0] * LANES)
_ONE = ir.Constant(FLOATS, [1.0] * LANES)
RECTANGLE, TRIANGLE = 0, 1  # the surrogates that are written here, numbered as in ``scan``


def _along(b: Any, address: Any, index: Any, step: Any) -> Any:
    return b.add(address, b.mul(index, step))


def _broadcast(b: Any, address: Any, index: int) -> Any:
    """The float at this place of an array, in every lane."""
    value = load(b, b.add(address, number(4 * index)), _FLOAT)
    lane = b.insert_element(ir.Constant(FLOATS, ir.Undefined), value, ir.Constant(ir.IntType(32), 0))
    lanes = ir.Constant(INTS, [0] * LANES)
    return b.shuffle_vector(lane, ir.Constant(FLOATS, ir.Undefined), lanes)


def _variable(b: Any, value: Any) -> Any:
    """Room for a value that changes in a loop; the compiler keeps it in a register."""
    place = cgutils.alloca_once(b, value.type)  # type: ignore[no-untyped-call]
    b.store(value, place)
    return place


def _backwards(b: Any, count: Any, index: Any) -> Any:
    return b.sub(b.sub(count, number(1)), index)


# --- products --------------------------------------------------------------------------------------------------------


@instructions()
def add_looked_up(
    b: Any, vectors: Any, out: Any, source: Any, source_step: Any, words: Any, word_step: Any, table: Any, rows: Any
) -> None:
    """out[i] = source[i] + Σ_g table[g, code_g(i)], where the eight codes of a row are one 32-bit word of spikes."""

    def write(width: int) -> None:
        with cgutils.for_range(b, rows) as loop:
            word = load(b, _along(b, words, loop.index, word_step), _WORD)
            codes = [
                b.and_(b.lshr(word, ir.Constant(_WORD, BITS * g)), ir.Constant(_WORD, ENTRIES - 1))
                for g in range(AT_ONCE)
            ]
            offsets = [b.mul(b.zext(code, LONG), number(ROW)) for code in codes]
            here = _along(b, out, loop.index, number(width * ROW))
            write_sum(b, width, here, _along(b, source, loop.index, source_step), table, offsets)

    for_every_width(b, vectors, write)


@instructions()
def unpack_codes(b: Any, m0: Any, m1: Any, m2: Any, m3: Any, codes: Any, size: Any) -> None:
    """The codes of four samples for every input, from ``size`` bytes of spikes each; see ``simd.write_codes``."""
    with cgutils.for_range(b, b.sdiv(size, number(BYTES))) as loop:
        together = ir.Constant(_SHORTS, [0] * LANES)
        for j, row in enumerate((m0, m1, m2, m3)):
            spikes = b.bitcast(load(b, _along(b, row, loop.index, number(BYTES)), _SPIKES, align=1), _FLAGS)
            shift = ir.Constant(_SHORTS, [j + ROW.bit_length() - 1] * LANES)
            together = b.or_(together, b.shl(b.zext(spikes, _SHORTS), shift))
        store(b, together, _along(b, codes, loop.index, number(2 * LANES)), align=2)


# --- statistics ------------------------------------------------------------------------------------------------------


@instructions()
def add_moments(b: Any, z: Any, step: Any, rows: Any, pivot: Any, total: Any, square: Any) -> None:
    """total += Σ (z − pivot), square += Σ (z − pivot)², in float64, over so many rows."""
    middle = b.fpext(load(b, pivot, FLOATS), _DOUBLES)
    sums = _variable(b, load(b, total, _DOUBLES, align=8))
    squares = _variable(b, load(b, square, _DOUBLES, align=8))
    with cgutils.for_range(b, rows) as loop:
        x = b.fsub(b.fpext(load(b, _along(b, z, loop.index, step), FLOATS), _DOUBLES), middle)
        b.store(b.fadd(b.load(sums), x), sums)
        b.store(b.fadd(b.load(squares), b.fmul(x, x)), squares)
    store(b, b.load(sums), total, align=8)
    store(b, b.load(squares), square, align=8)


# --- encoder ---------------------------------------------------------------------------------------------------------


@instructions()
def encode(b: Any, a: Any, spikes: Any, step: Any, steps: Any, constants: Any, vectors: Any) -> None:
    """Soft-reset integrate-and-fire under the constant excitation of one sample; a time step's spikes are ``step``
    apart. Constants: threshold, and what a spike subtracts."""
    threshold, subtract = (_broadcast(b, constants, i) for i in range(2))
    with cgutils.for_range(b, vectors) as column:
        excitation = load(b, _along(b, a, column.index, number(ROW)), FLOATS)
        potential = _variable(b, _ZERO)
        with cgutils.for_range(b, steps) as time:
            h = b.fadd(b.load(potential), excitation)
            fired = b.fcmp_ordered(">", h, threshold)
            b.store(b.fsub(h, b.select(fired, subtract, _ZERO)), potential)
            place = _along(b, _along(b, spikes, time.index, step), column.index, number(BYTES))
            store(b, b.bitcast(fired, _SPIKES), place, align=1)


@instructions()
def count_spikes(b: Any, spikes: Any, step: Any, steps: Any, counts: Any, size: Any) -> None:
    """How often each neuron of one sample fired, as floats."""
    with cgutils.for_range(b, size) as column:
        total = _variable(b, _ZERO)
        with cgutils.for_range(b, steps) as time:
            place = _along(b, _along(b, spikes, time.index, step), column.index, number(BYTES))
            fired = b.bitcast(load(b, place, _SPIKES, align=1), _FLAGS)
            b.store(b.fadd(b.load(total), b.select(fired, _ONE, _ZERO)), total)
        store(b, b.load(total), _along(b, counts, column.index, number(ROW)))


# --- leaky integrate-and-fire, with or without a synaptic current ----------------------------------------------------


class _Neurons:
    """The recurrence of one vector of neurons; constants: threshold, decay of the current, decay of the potential."""

    def __init__(self, b: Any, constants: Any, scale: Any, shift: Any) -> None:
        self.b = b
        self.threshold, self.current_decay, self.decay = (_broadcast(b, constants, i) for i in range(3))
        self.scale, self.shift = load(b, scale, FLOATS), load(b, shift, FLOATS)

    def begin(self) -> None:
        self.current, self.potential = _variable(self.b, _ZERO), _variable(self.b, _ZERO)

    def step(self, z: Any) -> tuple[Any, Any]:
        """The potential before the reset, and where it is above the threshold."""
        b = self.b
        y = b.fadd(b.fmul(z, self.scale), self.shift)
        current = b.fadd(b.fmul(self.current_decay, b.load(self.current)), y)
        h = b.fadd(b.fmul(self.decay, b.load(self.potential)), current)
        fired = b.fcmp_ordered(">", h, self.threshold)
        b.store(current, self.current)
        # zero, but for an infinite potential, which the pure step makes NaN
        b.store(b.select(fired, b.fsub(h, h), h), self.potential)
        return h, fired


@instructions()
def fire(
    b: Any, z: Any, row: Any, steps: Any, batch: Any, scale: Any, shift: Any, constants: Any, spikes: Any, size: Any
) -> None:
    """One vector of neurons for the whole batch: products z, ``row`` bytes apart, to spikes, ``size`` bytes apart."""
    neurons = _Neurons(b, constants, scale, shift)
    with cgutils.for_range(b, batch) as sample:
        neurons.begin()
        with cgutils.for_range(b, steps) as time:
            index = _along(b, sample.index, time.index, batch)
            _, fired = neurons.step(load(b, _along(b, z, index, row), FLOATS))
            store(b, b.bitcast(fired, _SPIKES), _along(b, spikes, index, size), align=1)


def _slope(b: Any, h: Any, threshold: Any, size: Any, surrogate: int) -> Any:
    signed = b.bitcast(b.fsub(h, threshold), INTS)
    distance = b.bitcast(b.and_(signed, ir.Constant(INTS, [0x7FFFFFFF] * LANES)), FLOATS)
    if surrogate == RECTANGLE:
        height = b.fdiv(_ONE, b.fadd(size, size))
        return b.select(b.fcmp_ordered("<=", distance, size), height, _ZERO)
    slope = b.fsub(_ONE, b.fdiv(distance, size))
    return b.fdiv(b.select(b.fcmp_ordered(">", slope, _ZERO), slope, _ZERO), size)


@instructions()
def fire_backward(
    b: Any, surrogate: Any, z: Any, row: Any, steps: Any, batch: Any, first: Any, samples: Any, scale: Any, shift: Any,
    center: Any, constants: Any, grad: Any, grad_row: Any, grad_time: Any, potentials: Any, grad_y: Any, y_row: Any,
    total: Any, product: Any,
) -> None:  # fmt: skip
    """The gradient of ``fire`` for one vector of neurons and the samples from ``first``, so many."""
    neurons = _Neurons(b, constants, scale, shift)
    middle, size = load(b, center, FLOATS), _broadcast(b, constants, 3)
    sums, products = _variable(b, _ZERO), _variable(b, _ZERO)

    def write(kind: int) -> None:
        with cgutils.for_range(b, samples) as sample:
            place = b.add(first, sample.index)
            neurons.begin()
            with cgutils.for_range(b, steps) as time:
                index = _along(b, place, time.index, batch)
                h, _ = neurons.step(load(b, _along(b, z, index, row), FLOATS))
                store(b, h, _along(b, potentials, time.index, number(ROW)))
            grad_v, grad_c = _variable(b, _ZERO), _variable(b, _ZERO)
            mine = _along(b, grad, place, grad_row)
            with cgutils.for_range(b, steps) as time:
                t = _backwards(b, steps, time.index)
                h = load(b, _along(b, potentials, t, number(ROW)), FLOATS)
                slope = _slope(b, h, neurons.threshold, size, kind)
                grad_spike = load(b, _along(b, mine, t, grad_time), FLOATS)
                to_v = b.load(grad_v)
                kept = b.select(b.fcmp_ordered(">", h, neurons.threshold), b.fsub(to_v, to_v), to_v)
                last = b.icmp_signed("==", time.index, number(0))  # whose potential nobody inherits, be it infinite
                grad_h = b.fadd(kept, b.fmul(b.fsub(grad_spike, b.fmul(to_v, b.select(last, _ZERO, h))), slope))
                grad_current = b.fadd(grad_h, b.load(grad_c))
                b.store(b.fmul(neurons.decay, grad_h), grad_v)
                b.store(b.fmul(neurons.current_decay, grad_current), grad_c)
                index = _along(b, place, t, batch)
                store(b, grad_current, _along(b, grad_y, index, y_row))
                distance = b.fsub(load(b, _along(b, z, index, row), FLOATS), middle)
                b.store(b.fadd(b.load(sums), grad_current), sums)
                b.store(b.fadd(b.load(products), b.fmul(grad_current, distance)), products)

    with b.if_else(b.icmp_signed("==", surrogate, number(RECTANGLE))) as (rectangle, triangle):
        with rectangle:
            write(RECTANGLE)
        with triangle:
            write(TRIANGLE)
    store(b, b.load(sums), total)
    store(b, b.load(products), product)


@instructions()
def norm_backward(
    b: Any, z: Any, row: Any, steps: Any, batch: Any, first: Any, samples: Any, scale: Any, center: Any, constant: Any,
    slope: Any, grad_y: Any, y_row: Any, over_time: Any,
) -> None:  # fmt: skip
    """grad_z = grad_y·scale + constant + slope·(z − center) in place of grad_y, and its sum over time."""
    factor, middle, offset, pull = (load(b, address, FLOATS) for address in (scale, center, constant, slope))
    with cgutils.for_range(b, samples) as sample:
        place = b.add(first, sample.index)
        total = _variable(b, _ZERO)
        with cgutils.for_range(b, steps) as time:
            index = _along(b, place, time.index, batch)
            here = _along(b, grad_y, index, y_row)
            distance = b.fsub(load(b, _along(b, z, index, row), FLOATS), middle)
            through = b.fadd(offset, b.fmul(pull, distance))
            grad_z = b.fadd(b.fmul(load(b, here, FLOATS), factor), through)
            store(b, grad_z, here)
            b.store(b.fadd(b.load(total), grad_z), total)
        store(b, b.load(total), _along(b, over_time, place, y_row))

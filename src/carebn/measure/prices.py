"""What an operation costs, and what moving a number costs: price lists as data, sources and formulas in docs/energy.md.

``paper`` and ``45nm`` price arithmetic alone, whatever the width of its numbers. ``memory`` is 45 nm with the traffic:
every weight that is read, every membrane that is read and written, every spike and every activation that is sent. Its
prices follow from the widths of the words and the size of the memory that they lie in, so each network has its own.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from carebn.paper.facts import FLOP_PICOJOULE, SYNAPTIC_PICOJOULE


class Prices(NamedTuple):
    """In pJ."""

    multiplication: float
    addition: float
    synaptic: float
    source: str
    weight: float = 0.0  # one weight read
    state: float = 0.0  # one word of a membrane, a current or a stimulation read, or written
    activation: float = 0.0  # one number between layers read, or written; observation and action are such numbers
    address_bit: float = 0.0  # one bit of a spike's address read, or written


class Operations(NamedTuple):
    """Per decision; a mean over decisions, so not always whole."""

    multiplications: float = 0.0
    additions: float = 0.0
    synaptic: float = 0.0

    def plus(self, other: "Operations") -> "Operations":
        return Operations(*(a + b for a, b in zip(self, other, strict=True)))

    def nanojoule(self, prices: Prices) -> float:
        picojoule = (
            self.multiplications * prices.multiplication
            + self.additions * prices.addition
            + self.synaptic * prices.synaptic
        )
        return picojoule / 1000

    @property
    def flops(self) -> float:
        return self.multiplications + self.additions


class Traffic(NamedTuple):
    """What goes to and from memory in a decision: words read or written, and bits of spikes' addresses."""

    weights: float = 0.0
    states: float = 0.0
    activations: float = 0.0
    address_bits: float = 0.0

    def plus(self, other: "Traffic") -> "Traffic":
        return Traffic(*(a + b for a, b in zip(self, other, strict=True)))

    def nanojoule(self, prices: Prices) -> float:
        costs = prices.weight, prices.state, prices.activation, prices.address_bit
        return sum(number * cost for number, cost in zip(self, costs, strict=True)) / 1000


def total(operations: Sequence[Operations]) -> Operations:
    result = Operations()
    for each in operations:
        result = result.plus(each)
    return result


def macs(number: float) -> Operations:
    return Operations(multiplications=number, additions=number)


# --- the lists --------------------------------------------------------------------------------------------------------

FLOAT_MULTIPLICATION, FLOAT_ADDITION = 3.7, 0.9  # 45 nm, 32 bits
INTEGER_MULTIPLICATION, INTEGER_ADDITION = 0.2, 0.03  # 45 nm, 8 bits
SRAM = ((8, 10.0), (32, 20.0), (1024, 100.0))  # 45 nm: KiB, and pJ for 64 bits

PRICES = {
    "paper": Prices(
        *(FLOP_PICOJOULE, FLOP_PICOJOULE, SYNAPTIC_PICOJOULE),
        f"{FLOP_PICOJOULE:g} pJ per FLOP, 2 FLOP per MAC, {1000 * SYNAPTIC_PICOJOULE:g} fJ per synaptic operation",
    ),
    "45nm": Prices(
        FLOAT_MULTIPLICATION,
        FLOAT_ADDITION,
        FLOAT_ADDITION,
        "4.6 pJ per MAC, 0.9 pJ per synaptic operation, 45 nm",
    ),
}
MEMORY = "memory"  # the list that counts traffic


def sram_bit(kibibytes: float) -> float:
    """pJ to read or write a bit of a memory of this size: between its neighbours in the table, on a log-log scale."""
    places = [math.log(size) for size, _ in SRAM]
    heights = [math.log(picojoule / 64) for _, picojoule in SRAM]
    x = math.log(kibibytes)
    i = 0 if x < places[1] else 1
    slope = (heights[i + 1] - heights[i]) / (places[i + 1] - places[i])
    return math.exp(heights[i] + slope * (x - places[i]))


def memory_for(bits: float) -> float:
    """The smallest memory that holds so much: KiB, a power of two, at least the smallest that the table has."""
    return max(float(SRAM[0][0]), 2.0 ** math.ceil(math.log2(max(bits, 1) / 8192)))


@dataclass(frozen=True)
class Words:
    """How wide numbers are in a network of integers."""

    weight: int = 8
    state: int = 16  # membranes and sums

    def __post_init__(self) -> None:
        for name, bits in (("--bits", self.weight), ("--state-bits", self.state)):
            if not 1 <= bits <= 64:
                raise ValueError(f"{name} must lie between 1 and 64, got {bits}")


@dataclass(frozen=True)
class Size:
    """What a network keeps in memory: numbers of words."""

    weights: int
    states: int = 0
    activations: int = 0


def equal_bits(time_steps: int) -> int:
    """An activation of so many bits has as many values as a count of spikes in T steps: ⌈log2(T + 1)⌉."""
    return math.ceil(math.log2(time_steps + 1))


def spiking_prices(words: Words, size: Size, kibibytes: float | None = None) -> Prices:
    """Of a spiking network of integers; ``kibibytes``: of its memory, if it is not to be as small as can be."""
    weight_kib = kibibytes or memory_for(size.weights * words.weight)
    state_kib = kibibytes or memory_for((size.states + size.activations) * words.state)
    near = sram_bit(state_kib)
    add = INTEGER_ADDITION * words.state / 8
    return Prices(
        INTEGER_MULTIPLICATION * words.state**2 / 64, add, add,
        f"45 nm, {words.weight}-bit weights in {weight_kib:g} KiB, {words.state}-bit membranes in {state_kib:g} KiB",
        words.weight * sram_bit(weight_kib), words.state * near, words.state * near, near,
    )  # fmt: skip


def quantised_prices(words: Words, activation: int, size: Size, kibibytes: float | None = None) -> Prices:
    """Of an ordinary network of integers with activations of so many bits."""
    weight_kib = kibibytes or memory_for(size.weights * words.weight)
    state_kib = kibibytes or memory_for(size.activations * activation)
    near = sram_bit(state_kib)
    add = INTEGER_ADDITION * words.state / 8
    return Prices(
        INTEGER_MULTIPLICATION * words.weight * activation / 64, add, add,
        f"45 nm, {words.weight}-bit weights in {weight_kib:g} KiB, {activation}-bit activations",
        words.weight * sram_bit(weight_kib), words.state * near, activation * near, near,
    )  # fmt: skip


def float_prices(size: Size, kibibytes: float | None = None) -> Prices:
    """Of an ordinary network of 32-bit floating-point numbers."""
    weight_kib = kibibytes or memory_for(size.weights * 32)
    near = 32 * sram_bit(kibibytes or memory_for(size.activations * 32))
    return Prices(
        FLOAT_MULTIPLICATION, FLOAT_ADDITION, FLOAT_ADDITION,
        f"45 nm, 32-bit floating point, weights in {weight_kib:g} KiB",
        32 * sram_bit(weight_kib), near, near, near / 32,
    )  # fmt: skip


Lists = Mapping[str, Prices]

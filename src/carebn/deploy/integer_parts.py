"""The parts of a policy in whole numbers, and what each of them does; ``integer.py`` has the whole."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carebn.deploy.graph import READOUTS

Whole = NDArray[np.signedinteger[Any]]
Wide = NDArray[np.int64]

FORMATS = ("int8", "int16")
NEURONS = ("lif", "clif", "if", "relu")
LARGEST = 2**31 - 1
LARGEST_WIDE = 2**62
EXACT = 2**53  # whole numbers that a product in float64 gets right
LARGEST_VALUE = 2**23 - 1  # of an observation that is itself an input
LARGEST_ACTIVATION = 2**15 - 1
TANH_STEP, TANH_BITS = 6, 15  # the table has 2^6 places to one, and its numbers are in units of 2^−15
TANH = np.rint(np.tanh(np.arange((8 << TANH_STEP) + 1) / (1 << TANH_STEP)) * (1 << TANH_BITS)).astype(np.int64)


def towards_zero(x: Wide, bits: int) -> Wide:
    """x / 2^bits, rounded as C rounds."""
    found: Wide = (x + ((x >> 63) & ((1 << bits) - 1))) >> bits
    return found


@dataclass(frozen=True, eq=False)
class Decay:
    """numerator / 2^bits."""

    numerator: int
    bits: int

    @classmethod
    def of(cls, value: float) -> "Decay":
        """Exactly, if it takes no more than 15 bits (0.75 is 3/4); else the nearest of 15 bits."""
        bits = next((d for d in range(15) if value * 2**d == int(value * 2**d)), 15)
        return cls(round(value * 2**bits), bits)


@dataclass(frozen=True, eq=False)
class Fields:
    """Spikes of a population encoder. ``edges``: for each neuron where, with the observation rising, its spike train
    becomes denser, up to the middle of its receptive field, and then where it becomes sparser again. The train of a
    neuron with ``p`` edges below the observation is ``trains[min(p, all − p)]``."""

    edges: Whole  # [neurons, 2·(trains − 1)] int32, sorted
    trains: Whole  # [trains, T], 0 or 1

    def __post_init__(self) -> None:
        check(self.edges.ndim == 2 and self.trains.ndim == 2, "the table of the encoder has another shape")
        check(self.edges.shape[1] == 2 * (len(self.trains) - 1), "the table of the encoder has another shape")
        check(bool((np.diff(self.edges.astype(np.int64)) >= 0).all()), "the edges of the encoder are not sorted")
        check(bool(np.isin(self.trains, (0, 1)).all()), "a spike of the encoder is neither 0 nor 1")
        fits("the edges of the encoder", self.edges)

    def spikes(self, obs: Wide) -> NDArray[np.float64]:
        """[T, B, neurons]."""
        edges = self.edges.astype(np.int64)
        population = len(edges) // obs.shape[1]
        each = np.repeat(obs, population, 1)
        passed = np.zeros(each.shape, np.int64)
        for edge in edges.T:
            passed += each > edge
        level = np.minimum(passed, edges.shape[1] - passed)
        return self.trains.T[:, level].astype(np.float64)


@dataclass(frozen=True, eq=False)
class Stage:
    """One layer."""

    kind: str  # of NEURONS
    levels: Whole  # [inputs, outputs], int8 or int16
    multiplier: Whole  # [1, 1], or [T, outputs] where steps differ, or [1, outputs]
    shift: int
    bias: Whole  # [1 or T, outputs] int32
    threshold: Whole  # [outputs] int32; none for ReLU
    start: Whole  # [outputs] int32, of integrate-and-fire neurons
    current_decay: Decay
    decay: Decay

    def __post_init__(self) -> None:
        check(self.kind in NEURONS, f"there is no neuron {self.kind!r} in whole numbers")
        check(self.levels.dtype.name in FORMATS and self.levels.ndim == 2, "the weights of a layer are not levels")
        check(self.shift in range(63), "a shift is out of range")
        for decay in (self.current_decay, self.decay):
            check(decay.bits in range(16) and abs(decay.numerator) <= LARGEST, "a decay is out of range")
        for name, length in (("threshold", self.kind != "relu"), ("start", self.kind == "if")):
            check(getattr(self, name).shape == (length * self.outputs,), f"the {name} of a layer has another shape")
        check(self.bias.ndim == 2 and self.bias.shape[1] == self.outputs, "the bias of a layer has another shape")
        for name in ("bias", "threshold", "start", "multiplier"):
            fits(f"the {name} of a layer", getattr(self, name))

    @property
    def inputs(self) -> int:
        return int(self.levels.shape[0])

    @property
    def outputs(self) -> int:
        return int(self.levels.shape[1])


@dataclass(frozen=True)
class Bounds32:
    """The largest magnitudes that a layer can reach, whatever the observation."""

    sum: int
    product: int  # of a sum and its multiplier
    state: int  # current or potential
    decayed: int  # of a state and the numerator of its decay

    @classmethod
    def of_each(cls, stage: Stage, largest_input: int, steps: int) -> "dict[str, NDArray[Any]]":
        """Neuron by neuron, in Python's numbers, which have no end."""
        each = np.abs(stage.levels.astype(object)).sum(0) * largest_input
        product, current = each * 0, []
        for t in range(steps):
            m = np.abs(stage.multiplier[t % len(stage.multiplier)].astype(object))
            b = np.abs(stage.bias[t % len(stage.bias)].astype(object))
            product = np.maximum(product, each * m)
            current.append(((each * m) >> stage.shift) + b)
        c = v = most = decayed = each * 0
        v = v + (np.abs(stage.start.astype(object)) if stage.kind == "if" else 0)
        fade, leak = stage.current_decay, stage.decay
        for now in current:
            scaled = (c * abs(fade.numerator), v * abs(leak.numerator))
            decayed = np.maximum(decayed, np.maximum(*scaled))
            c = (scaled[0] >> fade.bits) + now
            v = (scaled[1] >> leak.bits) + c
            most = np.maximum(most, np.maximum(c, v))
        return {"sum": each, "product": product, "state": most, "decayed": decayed}

    @classmethod
    def of(cls, stage: Stage, largest_input: int, steps: int) -> "Bounds32":
        found = cls.of_each(stage, largest_input, steps)
        bounds = cls(**{name: int(max(each, default=0)) for name, each in found.items()})
        check(bounds.state <= LARGEST, "a potential might leave 32 bits")
        check(
            bounds.product < LARGEST_WIDE and bounds.sum < EXACT and bounds.decayed < LARGEST_WIDE, "a sum is too wide"
        )
        return bounds


@dataclass(frozen=True, eq=False)
class Reading:
    """From the last layer to values, ``kind`` as in the policy graph; their unit is 2^−bits."""

    kind: str
    weight: Whole  # [features, values] int16 or int32
    bias: Whole  # [values] int32
    share: Whole  # [T]
    shift: int
    bits: int

    def __post_init__(self) -> None:
        check(self.kind in READOUTS, f"there is no read-out {self.kind!r} in whole numbers")
        check(self.shift in range(63) and TANH_STEP <= self.bits <= 24, "the unit of the read-out is out of range")
        check(self.weight.ndim == 2 and self.bias.shape == self.weight.shape[1:], "the read-out has another shape")
        for name in ("weight", "bias", "share"):
            fits(f"the {name} of the read-out", getattr(self, name))

    def largest(self, largest_input: int) -> tuple[int, int]:
        """(of a sum, of a value)."""
        total = int(np.abs(self.share.astype(object)).sum()) * largest_input
        sums = np.abs(self.weight.astype(object)).sum(0) * total
        steps = len(self.share) if self.kind == "furthest" else 1
        values = (sums >> self.shift) + steps * np.abs(self.bias.astype(object))
        return int(max(sums)), int(max(values))


@dataclass(frozen=True, eq=False)
class Command:
    """What the motors are told; all in units of 2^−bits."""

    middle: Whole
    reach: Whole
    low: Whole
    high: Whole
    bits: int

    def __post_init__(self) -> None:
        for name in ("middle", "reach", "low", "high"):
            fits(f"the {name} of the command", getattr(self, name))
            check(getattr(self, name).shape == self.low.shape, "the bounds of the command have another shape")
        most = np.abs(self.middle.astype(object)) + np.abs(self.reach.astype(object))
        check(self.bits in range(31) and int(max(most)) <= LARGEST, "a command might leave 32 bits")


# --- the steps -------------------------------------------------------------------------------------------------------


def currents(stage: Stage, x: NDArray[np.float64], steps: int) -> Wide:
    """[T, B, outputs]. The product is of whole numbers below 2^53, which float64 adds up exactly."""
    sums = (x.reshape(-1, stage.inputs) @ stage.levels.astype(np.float64)).astype(np.int64)
    sums = sums.reshape(*x.shape[:2], stage.outputs)
    scaled = towards_zero(sums * stage.multiplier.astype(np.int64)[:, None], stage.shift)
    current = scaled + stage.bias.astype(np.int64)[:, None]
    return np.broadcast_to(current, (steps, *current.shape[1:])) if len(current) != steps else current


def fire(stage: Stage, currents: Wide) -> NDArray[np.float64]:
    if stage.kind == "relu":
        return np.clip(currents, 0, LARGEST_ACTIVATION).astype(np.float64)
    threshold = stage.threshold.astype(np.int64)
    spikes = np.empty(currents.shape)
    c = np.zeros(currents.shape[1:], np.int64)
    v = c + stage.start.astype(np.int64) if stage.kind == "if" else c
    for now, spike in zip(currents, spikes, strict=True):
        c = towards_zero(c * stage.current_decay.numerator, stage.current_decay.bits) + now
        v = towards_zero(v * stage.decay.numerator, stage.decay.bits) + c
        fired = v > threshold
        spike[:] = fired
        v = np.where(fired, v - threshold if stage.kind == "if" else 0, v)
    return spikes


def read(reading: Reading, x: NDArray[np.float64]) -> Wide:
    weight, bias = reading.weight.astype(np.float64), reading.bias.astype(np.int64)
    if reading.kind == "sum":
        total = np.tensordot(reading.share.astype(np.float64), x, 1)
        return towards_zero((total @ weight).astype(np.int64), reading.shift) + bias
    potentials = (towards_zero((x @ weight).astype(np.int64), reading.shift) + bias).cumsum(0)
    found: Wide = np.take_along_axis(potentials, np.abs(potentials).argmax(0)[None], 0)[0]
    return found


def commanded(command: Command, values: Wide, bits: int) -> Wide:
    fine = bits - TANH_STEP
    size = np.abs(values)
    place = np.minimum(size >> fine, len(TANH) - 1)
    following = TANH[np.minimum(place + 1, len(TANH) - 1)]
    tanh = TANH[place] + (((following - TANH[place]) * (size & ((1 << fine) - 1))) >> fine)
    moved = towards_zero(command.reach.astype(np.int64) * np.where(values < 0, -tanh, tanh), TANH_BITS)
    found: Wide = np.clip(command.middle + moved, command.low, command.high).astype(np.int64)
    return found


def check(holds: bool, what: str) -> None:
    if not holds:
        raise ValueError(what)


def fits(name: str, array: Whole) -> None:
    most = max((abs(int(x)) for x in (array.min(initial=0), array.max(initial=0))), default=0)
    check(array.dtype.kind == "i" and most <= LARGEST + 1, f"{name} does not fit in 32 bits")

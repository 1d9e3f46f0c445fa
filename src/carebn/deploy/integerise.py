"""From a policy graph with integer weights to whole numbers throughout.

``quantised`` has chosen levels and factors on observations of the run. What is left is arithmetic: a unit for the
potentials of each neuron, the table of the encoder, the units of observation, value and command. The unit is the
smallest with which the worst case of every sum still fits in 32 bits.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carebn.deploy.graph import Array, Bounds, Encoder, Layer, PolicyGraph, Readout
from carebn.deploy.integer import IntegerPolicy
from carebn.deploy.integer_parts import (
    LARGEST,
    LARGEST_ACTIVATION,
    LARGEST_VALUE,
    NEURONS,
    TANH_STEP,
    Bounds32,
    Command,
    Decay,
    Fields,
    Reading,
    Stage,
    Wide,
)
from carebn.deploy.runtime import checked, currents, encode, fire

BITS = 16  # behind the point of observations, values and commands, where nothing asks for fewer
FINEST = 12  # of a level, as a power of two: the finest unit of a potential
COARSE = 4  # a neuron that would force a coarser unit than this on its layer is given coarser weights instead
SPREAD = 15  # bits of what a step's scale is relative to the largest
ROOM = 1.25  # beyond the largest activation that was seen
BEYOND = 4.0  # times the largest observation that was seen: what an input can be at most
STEPS_OF_A_FIELD = 2**10  # at least, in the standard deviation of an observation


def integerised(network: PolicyGraph, obs: NDArray[Any]) -> IntegerPolicy:
    """The network, whose weights ``quantised`` has made, in whole numbers; ``obs`` are of its run."""
    _refuse(network)
    encoder, steps = network.encoder, network.time_steps
    rows = checked(obs, encoder)
    fields, bits, worth = None, _observation_bits(encoder, rows), 1.0
    if encoder.coding == "spikes":
        fields = _fields(encoder, bits, steps)
    else:
        worth = 2.0 ** -int(bits[0]) / float(encoder.divisor[0])
    largest = 1 if fields is not None else 255 if encoder.byte_observations else LARGEST_VALUE
    stages, x = [], encode(encoder, steps, rows)
    for i, layer in enumerate(network.layers, 1):
        x = fire(layer, currents(layer, x, steps))
        if layer.neuron.kind == "relu":
            unit = ROOM * float(x.max(initial=0.0)) / LARGEST_ACTIVATION or 1.0
            stages.append(_relu(layer, largest, worth, unit))
            largest, worth = LARGEST_ACTIVATION, unit
        else:
            stages.append(_spiking(layer, largest, worth, steps, i))
            largest, worth = 1, 1.0
    reading = _reading(network.readout, largest, worth)
    return IntegerPolicy(
        time_steps=steps,
        byte_observations=encoder.byte_observations,
        observation_bits=bits,
        fields=fields,
        stages=tuple(stages),
        reading=reading,
        command=None if network.bounds is None else _command(network.bounds),
        origin=network.origin,
    )


def check_integer(network: PolicyGraph) -> None:
    """Say at once what cannot be had in whole numbers."""
    _refuse(network, with_weights=False)


def _refuse(network: PolicyGraph, with_weights: bool = True) -> None:
    instead = "; use --weights float32, or float64 for numpy"
    for layer in network.layers:
        kind = layer.neuron.kind
        if layer.neuron.own is not None or kind not in NEURONS:
            why = "squares its potential" if kind == "dn" else "has equations of its own"
            raise ValueError(f"the neuron {kind} {why}, and in whole numbers there are only lif and clif{instead}")
        if with_weights and layer.integers is None:
            raise ValueError("the network has no integer weights; carebn.deploy.quantise makes them")
    if network.encoder.coding == "analogue":
        raise ValueError(f"an encoder with analogue coding has no spikes that a table could hold{instead}")
    if len(set(network.encoder.divisor.tolist())) > 1 and network.encoder.coding == "direct":
        raise ValueError(
            f"observations that are divided each by another number are not known in whole numbers{instead}"
        )
    if (network.readout.share != np.rint(network.readout.share)).any():
        raise ValueError(f"the read-out counts steps by shares that are not whole numbers{instead}")


# --- observations ----------------------------------------------------------------------------------------------------


def _observation_bits(encoder: Encoder, rows: NDArray[np.float32]) -> NDArray[np.int32]:
    if encoder.byte_observations:
        return np.zeros(encoder.obs_dim, np.int32)
    if encoder.coding == "direct":
        most = max(BEYOND * float(np.abs(rows).max(initial=0.0)), 1.0)
        return np.full(encoder.obs_dim, max(min(math.floor(math.log2(LARGEST_VALUE / most)), BITS), 0), np.int32)
    bits = np.full(encoder.obs_dim, BITS, np.int32)
    if encoder.squash == "clip":  # what lies within the clip must fit, and be fine enough
        far = np.abs(encoder.offset) + (encoder.limit + 1) * encoder.divisor
        fitting = np.floor(np.log2(LARGEST / far))
        fine = np.ceil(np.log2(STEPS_OF_A_FIELD / encoder.divisor))
        bits = np.clip(np.maximum(BITS, fine), 0, np.clip(fitting, 0, 30)).astype(np.int32)
    return bits


def _fields(encoder: Encoder, bits: NDArray[np.int32], steps: int) -> Fields:
    """Where the spike trains change, found by halving, for all neurons at once."""
    levels, trains = _trains(encoder, steps)
    obs_dim, population = encoder.mean.shape
    index = np.repeat(np.arange(obs_dim), population)
    mean, precision = encoder.mean.ravel(), encoder.precision.ravel()
    unit = 2.0 ** -bits.astype(np.float64)[index]

    def squashed(x: Wide) -> Array:
        z = (x * unit - encoder.offset[index]) / encoder.divisor[index]
        if encoder.squash == "tanh":
            return np.tanh(z)
        return np.clip(z, -encoder.limit, encoder.limit) if encoder.squash == "clip" else z

    def stimulation(x: Wide) -> Array:
        u = (squashed(x) - mean) * precision
        return np.exp(-(u * u * 0.5))

    shape = (len(index),)
    first, last = np.full(shape, -(2**31)), np.full(shape, 2**31 - 1)
    peak = _first_true(lambda x: squashed(x) >= mean, first, last)  # last + 1: it is never reached
    left, right = [], []
    for level in levels:
        rising = _first_true(lambda x, a=level: stimulation(x) >= a, first, peak - 1)  # type: ignore[misc]
        falling = _first_true(lambda x, a=level: stimulation(x) < a, peak, last)  # type: ignore[misc]
        left.append(rising - 1)  # from the next observation on, it is reached; if never, both lie at the peak
        right.append(falling - 1)
    edges = np.clip(np.stack([*left, *right[::-1]], 1) if len(levels) else np.empty((*shape, 0)), -(2**31), 2**31 - 1)
    return Fields(np.maximum.accumulate(edges, 1).astype(np.int32), trains)


def _first_true(holds: Callable[[Wide], NDArray[np.bool_]], low: Wide, high: Wide) -> Wide:
    """The first x of low…high at which it holds, or high + 1; once it holds, it goes on holding."""
    low, high = low.astype(np.int64), high.astype(np.int64) + 1
    while (low < high).any():
        middle = (low + high) >> 1
        found = holds(middle)
        open_ = low < high
        high = np.where(open_ & found, middle, high)
        low = np.where(open_ & ~found, middle + 1, low)
    return low


def _trains(encoder: Encoder, steps: int) -> tuple[list[float], NDArray[np.int8]]:
    """(the stimulations at which the spike train changes, the trains): with more stimulation no spike comes later."""

    def train(a: float) -> tuple[int, ...]:
        v, spikes = 0.0, []
        for _ in range(steps):
            v += a
            spikes.append(int(v > encoder.threshold))
            v -= spikes[-1] * encoder.subtract
        return tuple(spikes)

    found: list[tuple[float, tuple[int, ...]]] = []

    def part(low: float, high: float) -> None:
        if train(low) == train(high):
            return
        middle = (low + high) / 2
        if not low < middle < high:
            found.append((high, train(high)))
            return
        part(low, middle)
        part(middle, high)

    part(0.0, 1.0)
    found = found or [(math.inf, train(0.0))]  # one that never comes, so that the table is not empty
    trains = [train(0.0), *(spikes for _, spikes in found)]
    return [a for a, _ in found], np.array(trains, np.int8)


# --- layers ----------------------------------------------------------------------------------------------------------


def _spiking(layer: Layer, largest: int, worth: float, steps: int, number: int) -> Stage:
    """The finest unit with which nothing overflows; neurons that almost alone stand in its way get coarser weights."""
    for fine in range(FINEST, -1, -1):
        stage = _in_units(layer, largest, worth, fine)
        over = _over(stage, largest, steps)
        if not over.any():
            return stage
        if over.mean() <= 0.05 or fine == COARSE:
            for _ in range(64):
                layer = _coarser(layer, over)
                stage = _in_units(layer, largest, worth, fine)
                over = _over(stage, largest, steps)
                if not over.any():
                    return stage
    raise ValueError(f"the potentials of layer {number} do not fit in 32 bits; use --weights float32")


def _over(stage: Stage, largest: int, steps: int) -> NDArray[np.bool_]:
    return np.array(Bounds32.of_each(stage, largest, steps)["state"] > LARGEST, bool)


def _coarser(layer: Layer, which: NDArray[np.bool_]) -> Layer:
    whole = layer.integers
    assert whole is not None
    levels = np.where(which, np.rint(whole.levels / 2), whole.levels).astype(whole.levels.dtype)
    halved = replace(whole, levels=levels, factor=np.where(which, whole.factor * 2, whole.factor))
    return replace(layer, weight=halved.weight, integers=halved)


def _in_units(layer: Layer, largest: int, worth: float, fine: int) -> Stage:
    """Potentials in units of 2^−fine of a level; ``worth``: what one unit of an input stands for."""
    whole, neuron = layer.integers, layer.neuron
    assert whole is not None
    unit, spread, bits = whole.factor / 2.0**fine, None, 0
    if largest > 1:  # inputs are numbers: a sum is worth less than a level, or more
        bits = round(-math.log2(worth)) if worth < 1 and math.log2(worth).is_integer() else 0
        unit = unit * worth * 2.0**bits
    if layer.scale is not None:
        most = np.abs(layer.scale).max(0)
        spread = layer.scale / np.where(most > 0, most, 1.0)
        unit = unit * np.where(most > 0, most, 1.0)
    # current = sum·2^fine / 2^bits, times the spread
    own = 0 if spread is None else SPREAD
    shift = max(bits + own - fine, 0)
    left = fine - bits - own + shift
    multiplier = np.array([[1 << left]]) if spread is None else np.rint(spread * 2.0 ** (own + left))
    kind, constants = neuron.kind, neuron.constants
    return Stage(
        kind=kind,
        levels=whole.levels,
        multiplier=multiplier.astype(np.int32),
        shift=shift,
        bias=_saturated(np.rint(layer.bias / unit)),
        threshold=_saturated(np.floor(constants["v_threshold"] / unit)),
        start=_saturated(np.rint(constants["v_start"] / unit)) if kind == "if" else np.empty(0, np.int32),
        current_decay=Decay.of(constants.get("current_decay", 0.0)),
        decay=Decay.of(1.0 if kind == "if" else constants["decay"]),
    )


def _saturated(x: Array) -> NDArray[np.int32]:
    """A bias that is cut off leaves no room for its potential, so that a coarser unit is taken; a threshold that is
    cut off is out of reach anyway."""
    return np.clip(x, -LARGEST, LARGEST).astype(np.int32)


def _relu(layer: Layer, largest: int, worth: float, unit: float) -> Stage:
    """Activations in units that leave some room above the largest that was seen; beyond, they are cut off."""
    whole = layer.integers
    assert whole is not None
    rate = whole.factor * worth / unit
    sums = max(int(np.abs(whole.levels.astype(np.int64)).sum(0).max(initial=0)) * largest, 1)
    room = min(30.0, 61 - math.log2(sums))
    shift = max(min(math.floor(room - math.log2(np.abs(rate).max())), 46), 0)
    nothing = np.empty(0, np.int32)
    return Stage(
        kind="relu",
        levels=whole.levels,
        multiplier=_saturated(np.rint(rate * 2.0**shift))[None],
        shift=shift,
        bias=np.clip(np.rint(layer.bias / unit), -(2**30), 2**30).astype(np.int32),
        threshold=nothing,
        start=nothing,
        current_decay=Decay(0, 0),
        decay=Decay(0, 0),
    )


# --- read-out and command --------------------------------------------------------------------------------------------


def _reading(readout: Readout, largest: int, worth: float) -> Reading:
    """Values in units of 2^−16, or coarser ones if they might not fit."""
    share = readout.share.astype(np.int32)
    total = float(np.abs(share).sum()) * largest * worth
    steps = len(share) if readout.kind == "furthest" else 1
    most = float((np.abs(readout.weight).sum(0) * total + steps * np.abs(readout.bias)).max(initial=0.0))
    bits = min(BITS, math.floor(math.log2(LARGEST / 2 / max(most, 1e-9))))
    shift = 0
    if largest > 1:  # weights for activations are small numbers
        widest = max(float(np.abs(readout.weight).max()) * worth, 1e-30)
        shift = max(min(math.floor(math.log2(LARGEST_ACTIVATION / widest)) - bits, 30), 0)
    if bits < TANH_STEP:
        raise ValueError("the weights of the read-out are too large for whole numbers; use --weights float32")
    weight = np.rint(readout.weight * worth * 2.0 ** (bits + shift))
    small = np.abs(weight).max(initial=0.0) <= LARGEST_ACTIVATION
    bias = np.rint(readout.bias * 2.0**bits).astype(np.int32)
    return Reading(readout.kind, weight.astype(np.int16 if small else np.int32), bias, share, shift, bits)


def _command(bounds: Bounds) -> Command:
    most = float(np.max([np.abs(bounds.middle) + np.abs(bounds.reach), np.abs(bounds.low), np.abs(bounds.high)]))
    bits = min(BITS, math.floor(math.log2(LARGEST / 2 / max(most, 1e-9))))
    if bits < 0:
        raise ValueError("the action's bounds are too far for 32 bits; use --weights float32")
    low, high = np.ceil(bounds.low * 2.0**bits), np.floor(bounds.high * 2.0**bits)  # never beyond the true bounds
    middle, reach = (np.rint(x * 2.0**bits).astype(np.int32) for x in (bounds.middle, bounds.reach))
    return Command(middle, reach, low.astype(np.int32), np.maximum(low, high).astype(np.int32), bits)

"""Weights as integers, so that every neuron fires as it did: weight ≈ levels·factor, a factor for each neuron.

Rounding each weight to the nearest level keeps the weights. What should be kept is the potentials, and above all on
which side of the threshold they lie. So each layer is rounded by what it does on observations of the run:

1. The factor is, of several shares of the neuron's largest weight, the one with the smallest squared error of the
   potentials. Weights beyond the last level are cut off.
2. Weights are rounded one input after the other, and the error that one makes is made up for by those that are not
   rounded yet: inputs fire together, so another weight can carry it (as in GPTQ, Frantar et al. 2023).
3. The bias, which stays a real number, takes what remains of the error on average.
4. LIF and CLIF: factor and bias are multiplied by one number, which moves the threshold relative to the potentials to
   where it best parts those that fired before rounding from those that did not.

A layer is rounded on the spikes of the rounded layers before it. In the end thresholds are centred, as for float32.

For chips with limits there can be one factor for all neurons of a layer, so that they share a threshold (``shared``;
then thresholds are neither moved nor centred), and room for biases among the levels (``with_bias``).
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from carebn.deploy.graph import LEVELS, Array, Integers, Layer, PolicyGraph
from carebn.deploy.runtime import checked, currents, encode, fire
from carebn.deploy.threshold_gaps import amplified, with_centred_thresholds

SHARES = np.arange(1.0, 0.39, -0.05)  # of the largest weight, which the last level may stand for
ROWS = 20_000  # inputs that a layer is rounded on, one per observation and step, about
DAMPING = 0.01  # of the mean square of an input: what is added, so that rare inputs do not carry everything
REACH = 0.1  # how far the threshold may move, relative to itself
NEAR = {"int8": 1e-4, "int16": 1e-5}  # how far into a gap it moves: out of float32's doubt, within rounding's
LARGEST_SUM = 2**31 - 1  # of a neuron's levels: they are added up in 32 bits


def quantised(
    network: PolicyGraph, weights: str, obs: NDArray[np.generic], *, shared: bool = False, with_bias: bool = False
) -> PolicyGraph:
    """The network with the weights of its layers in int8 or int16, and every other number in float32."""
    steps, last = network.time_steps, LEVELS[weights]
    obs = obs[np.linspace(0, len(obs) - 1, min(len(obs), max(ROWS // steps, 200))).astype(int)]
    before = after = encode(network.encoder, steps, checked(obs, network.encoder))
    layers = []
    for layer in network.layers:
        if layer.inputs * last > LARGEST_SUM:
            raise ValueError(f"the sum of {layer.inputs:,} {weights} weights may not fit in 32 bits; use float32")
        spikes = fire(layer, currents(layer, before, steps))
        rounded = _rounded(layer, after, steps, weights, shared, with_bias)
        if not shared:
            rounded = _with_threshold(rounded, after, spikes, NEAR[weights])
        layers.append(rounded)
        before, after = spikes, fire(rounded, currents(rounded, after, steps))
    whole = replace(network, layers=tuple(layers))
    if shared:
        return whole.rounded(np.float32)
    return with_centred_thresholds(whole, obs, NEAR[weights]).rounded(np.float32)


def _rounded(layer: Layer, x: Array, steps: int, weights: str, shared: bool, with_bias: bool) -> Layer:
    last, weight = LEVELS[weights], layer.weight
    inputs = _as_felt(layer, x, steps).reshape(-1, layer.inputs)
    bias = _as_felt(layer, np.ones((1, x.shape[1], 1)), steps).ravel()
    mean = bias @ inputs / (bias @ bias)  # what a change of the bias can stand for
    squares = inputs.T @ inputs - np.outer(mean, mean) * (bias @ bias)
    factor = _factor(weight, squares, last, shared)
    if with_bias:  # the rounding moves biases a little, so there is some room
        least = 1.05 * np.abs(layer.bias).max(0) / last
        factor = np.maximum(factor, least.max() if shared else least)
    levels = _compensated(weight, factor, squares, last)
    integers = Integers(levels.astype(weights), factor)
    shift = mean @ (weight - integers.weight)
    if layer.scale is not None:
        shift = shift * layer.scale
    return replace(layer, weight=integers.weight, bias=layer.bias + shift, integers=integers)


def _as_felt(layer: Layer, x: Array, steps: int) -> Array:
    """How much of each input is in the potential at every step, [T, B, inputs], as long as the neuron is silent."""
    constants = layer.neuron.constants
    x = np.broadcast_to(x, (steps, *x.shape[1:]))
    if layer.neuron.kind not in ("lif", "clif"):
        return x
    felt = np.empty(x.shape)
    current, potential = np.zeros(x.shape[1:]), np.zeros(x.shape[1:])
    for now, here in zip(x, felt, strict=True):
        current = constants.get("current_decay", 0.0) * current + now
        potential = constants["decay"] * potential + current
        here[:] = potential
    return felt


def _factor(weight: Array, squares: Array, last: int, shared: bool) -> Array:
    largest = np.abs(weight).max(0)
    if shared:
        largest = np.full_like(largest, largest.max())
    whole = np.where(largest > 0, largest, 1.0) / last
    best, least = whole, np.full(len(whole), np.inf)
    for share in SHARES:
        factor = whole * share
        error = weight - np.clip(np.rint(weight / factor), -last, last) * factor
        loss = np.einsum("ij,ij->j", error, squares @ error)
        if shared:
            loss = np.full_like(loss, loss.sum())
        best, least = np.where(loss < least, factor, best), np.minimum(loss, least)
    return best


def _compensated(weight: Array, factor: Array, squares: Array, last: int) -> Array:
    """Levels [inputs, outputs]; the most active input is rounded first."""
    power = np.diag(squares)
    order = np.argsort(-power, kind="stable")
    damped = squares[np.ix_(order, order)] + np.eye(len(power)) * (DAMPING * power.mean() or 1.0)
    carry = np.linalg.cholesky(np.linalg.inv(damped)).T
    left, levels = weight[order], np.empty_like(weight)
    for j, row in enumerate(carry):
        levels[order[j]] = np.clip(np.rint(left[j] / factor), -last, last)
        error = (left[j] - levels[order[j]] * factor) / row[j]
        left[j + 1 :] -= np.outer(row[j + 1 :], error)
    return levels


# --- thresholds ------------------------------------------------------------------------------------------------------


def _with_threshold(layer: Layer, x: Array, spikes: Array, near: float) -> Layer:
    """The layer with its thresholds where they part best what fired (``spikes``) from what did not."""
    threshold = layer.neuron.constants.get("v_threshold", 0.0)
    if layer.neuron.kind not in ("lif", "clif") or threshold <= 0:
        return layer
    potentials = _potentials(layer, currents(layer, x, len(spikes)), spikes).reshape(-1, layer.outputs)
    fired = spikes.reshape(-1, layer.outputs) > 0
    parted = np.array([_parting(potentials[:, f], fired[:, f], threshold, near) for f in range(layer.outputs)])
    return amplified(layer, threshold / parted)


def _potentials(layer: Layer, current: Array, spikes: Array) -> Array:
    """[T, B, outputs], reset where the neuron fired before rounding, so that one error does not lead to the next."""
    constants = layer.neuron.constants
    c, v = np.zeros(current.shape[1:]), np.zeros(current.shape[1:])
    seen = np.empty(current.shape)
    for now, spike, here in zip(current, spikes, seen, strict=True):
        c = constants.get("current_decay", 0.0) * c + now
        v = constants["decay"] * v + c
        here[:] = v
        v = v * (1 - spike)
    return seen


def _parting(potential: Array, fired: NDArray[np.bool_], threshold: float, near: float) -> float:
    """The threshold of one neuron with the fewest wrong spikes, of several the nearest to the one that it has."""
    within = np.abs(potential - threshold) < REACH * threshold
    order = np.argsort(potential[within], kind="stable")
    v, spike = potential[within][order], fired[within][order]
    wrong = np.append(0, spike.cumsum()) + np.append((~spike)[::-1].cumsum()[::-1], 0)
    below = np.append(threshold * (1 - REACH), v)
    above = np.append(v, threshold * (1 + REACH))
    gaps = np.flatnonzero(above > below)
    away = np.maximum(np.maximum(below - threshold, threshold - above), 0.0)
    best = gaps[np.lexsort((away[gaps], wrong[gaps]))[0]]
    nearest = np.clip(threshold, below[best], above[best])
    low, high = max(below[best], nearest - near * threshold), min(above[best], nearest + near * threshold)
    return float(low + high) / 2

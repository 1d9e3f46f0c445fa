"""Thresholds in the middle of a gap, so that float32 decides as float64 does.

A trained policy sees the same spike patterns again and again, and a pattern that leaves a neuron within 1e-8 of its
threshold does so for many observations. Float64 decides it one way, float32 perhaps the other. Between the largest
potential that did not fire and the smallest that did, the threshold may lie anywhere without changing a single recorded
spike; it is moved to the middle of that gap, by at most ``REACH``:

    V_th' = (max(below, V_th − REACH) + min(above, V_th + REACH))/2

LIF and CLIF neurons are linear between spikes and start at zero. So instead of the threshold, which chips want to be
the same for all neurons, their weights and biases are changed: multiplied by V_th/V_th'. Neurons that never come near
are left alone.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from carebn.deploy.graph import Array, Integers, Layer, PolicyGraph
from carebn.deploy.runtime import checked, currents, encode, fire

REACH = 1e-5  # far above float32's rounding, far below what matters to a neuron


def with_centred_thresholds(network: PolicyGraph, obs: NDArray[np.generic], reach: float = REACH) -> PolicyGraph:
    """The network with the thresholds of its LIF and CLIF neurons centred for these observations."""
    x = encode(network.encoder, network.time_steps, checked(obs, network.encoder))
    layers = []
    for layer in network.layers:
        below, above = np.full(layer.outputs, -np.inf), np.full(layer.outputs, np.inf)

        def watch(potential: Array, threshold: float, below: Array = below, above: Array = above) -> None:
            fired = potential > threshold
            np.maximum(below, np.where(fired, -np.inf, potential).max(0, initial=-np.inf), out=below)
            np.minimum(above, np.where(fired, potential, np.inf).min(0, initial=np.inf), out=above)

        x = fire(layer, currents(layer, x, network.time_steps), watch)
        layers.append(_moved(layer, below, above, reach))
    return replace(network, layers=tuple(layers))


def _moved(layer: Layer, below: Array, above: Array, reach: float) -> Layer:
    threshold = layer.neuron.constants.get("v_threshold", 0.0)
    if layer.neuron.kind not in ("lif", "clif") or threshold <= reach:
        return layer
    near = (below > threshold - reach) | (above < threshold + reach)
    middle = (np.maximum(below, threshold - reach) + np.minimum(above, threshold + reach)) / 2
    return amplified(layer, np.where(near, threshold / middle, 1.0))


def amplified(layer: Layer, gain: Array) -> Layer:
    """The layer with the current of each neuron multiplied, as if its threshold had been divided."""
    bias = layer.bias * gain
    if layer.integers is not None:
        integers = Integers(layer.integers.levels, layer.integers.factor * gain)
        return replace(layer, weight=integers.weight, bias=bias, integers=integers)
    if layer.scale is not None:
        return replace(layer, scale=layer.scale * gain, bias=bias)
    return replace(layer, weight=layer.weight * gain, bias=bias)

"""Compiled inference of a whole spiking actor for a few observations at a time: acting, not training.

One call does all: receptive fields, encoder spikes, and for every layer products, moving statistics and the scan. For
small batches the price of an action is the price of the calls around the arithmetic, so there is only one.
"""

from typing import Any

import numpy as np

from carebn.kernels.jit import njit
from carebn.kernels.lanes import dot
from carebn.kernels.pool import BLOCKS, my_blocks, read_table
from carebn.kernels.scan import array_at, dn_row, lif_row

TANH, RAW = 0, 1
NO_NORM, PLAIN_NORM, GIVEN_MAP = 0, 1, 2
HEAD, PER_LAYER = 15, 11  # table entries


@njit
def _encode(obs: Any, mean: Any, std: Any, squash: int, threshold: Any, subtract: Any, x: Any, one: Any) -> None:
    """Encoder spikes of one observation, x [T, N]."""
    zero = one - one
    half = one / (one + one)
    steps = x.shape[0]
    obs_dim, population = mean.shape
    for i in range(obs_dim):
        s = np.tanh(obs[i]) if squash == TANH else obs[i]
        for j in range(population):
            u = (s - mean[i, j]) * (one / std[i, j])
            a = np.exp(-(u * u * half))
            v = zero
            for t in range(steps):
                v = v + a
                fired = v > threshold
                x[t, i * population + j] = one if fired else zero
                v = v - (subtract if fired else zero)


@njit
def _scale_shift(mode: int, layer: Any, scale: Any, shift: Any, one: Any) -> None:
    """The map of inference, [Ts, out]: from moving statistics, or as given."""
    size, map_steps, a_, b_, c_, d_, eps_ = layer[1], layer[5], layer[6], layer[7], layer[8], layer[9], layer[10]
    if mode == NO_NORM:
        scale[:, :size] = one
        shift[:, :size] = one - one
    elif mode == GIVEN_MAP:
        scale[:map_steps, :size] = array_at(a_, (map_steps, size), one)
        shift[:map_steps, :size] = array_at(b_, (map_steps, size), one)
    else:
        weight = array_at(a_, (size,), one)
        bias = array_at(b_, (size,), one)
        mean = array_at(c_, (size,), one)
        var = array_at(d_, (size,), one)
        eps = array_at(eps_, (1,), one)[0]
        for f in range(size):
            scale[0, f] = weight[f] * (one / np.sqrt(var[f] + eps))
            shift[0, f] = bias[f] - mean[f] * scale[0, f]


@njit
def _layer(
    layer: Any, family: int, p: Any, x: Any, out: Any, z: Any, scale: Any, shift: Any, state: Any, one: Any
) -> None:
    """Spikes out [T, size] of one layer for one observation's input spikes x [T, inputs]."""
    zero = one - one
    inputs, size, weight_, bias_, map_steps = layer[0], layer[1], layer[2], layer[3], layer[5]
    weight = array_at(weight_, (size, inputs), one)
    bias = array_at(bias_, (size,), one)
    steps = x.shape[0]
    for f in range(size):
        for t in range(steps):
            z[t, f] = dot(weight[f].ctypes.data, x[t].ctypes.data, inputs) + bias[f]
    state[:, :size] = zero
    for t in range(steps):
        ts = t if map_steps > 1 else 0
        if family == 0:
            lif_row(z[t, :size], scale[ts], shift[ts], state[0], state[1], out[t], p[0], p[1], p[2], one)
        else:
            constants = (p[0], p[1], p[2], p[3], p[4], p[5])
            before, after = state[1 + t % 2], state[1 + (t + 1) % 2]
            dn_row(z[t, :size], scale[ts], shift[ts], state[0], before, state[3], after, constants, one)
            for f in range(size):
                out[t, f] = one if after[f] > p[1] else zero


@njit
def infer(table: int, at: int, one: Any) -> None:
    """Spike counts of the last layer, [B, out], for observations [B, obs].

    Head: family, batch, steps, layers, obs_dim, population, squash, widest layer, then the addresses of observations,
    means, widths, encoder constants, neuron constants, counts, and a spare entry. Then for each layer: inputs, outputs,
    weight, bias, kind of map, its steps, and five addresses that depend on the kind.
    """
    (family, batch, steps, layers, obs_dim, population, squash, widest, obs_, mean_, std_, encoder_, neuron_,
     counts_, _) = read_table(table, at, HEAD)  # fmt: skip
    obs = array_at(obs_, (batch, obs_dim), one)
    mean = array_at(mean_, (obs_dim, population), one)
    std = array_at(std_, (obs_dim, population), one)
    threshold, subtract = array_at(encoder_, (2,), one)
    constants = array_at(neuron_, (6,), one)
    last = read_table(table, at + HEAD + (layers - 1) * PER_LAYER, PER_LAYER)
    counts = array_at(counts_, (batch, last[1]), one)
    scales = np.empty((layers, steps, widest), obs.dtype)
    shifts = np.empty((layers, steps, widest), obs.dtype)
    for k in range(layers):
        layer = read_table(table, at + HEAD + k * PER_LAYER, PER_LAYER)
        _scale_shift(layer[4], layer, scales[k], shifts[k], one)
    spikes = np.empty((2, steps, widest), obs.dtype)
    z = np.empty((steps, widest), obs.dtype)
    state = np.empty((4, widest), obs.dtype)
    for block in my_blocks(table):
        for b in range(block, batch, BLOCKS):
            _encode(obs[b], mean, std, squash, threshold, subtract, spikes[0], one)
            for k in range(layers):
                layer = read_table(table, at + HEAD + k * PER_LAYER, PER_LAYER)
                source, target = spikes[k % 2], spikes[(k + 1) % 2]
                _layer(layer, family, constants, source, target, z, scales[k], shifts[k], state, one)
            result = spikes[layers % 2]
            for f in range(counts.shape[1]):
                total = one - one
                for t in range(steps):
                    total += result[t, f]
                counts[b, f] = total

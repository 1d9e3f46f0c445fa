"""Compiled inference of a whole spiking actor for a few observations at a time: acting, not training.

One call does all: receptive fields, encoder spikes, and for every layer products, moving statistics and the scan. For
small batches the price of an action is the price of the calls around the arithmetic, so there is only one. Float32.
"""

from typing import Any

import numpy as np
import torch

from carebn.kernels.jit import array_at, float32, int64, njit
from carebn.kernels.norm_statistics import LARGEST_SHIFT
from carebn.kernels.pool import BLOCKS, NOT_FINITE, my_part, my_share
from carebn.kernels.scan import potential
from carebn.kernels.simd import dot
from carebn.kernels.tables import INT, NUMBER, REAL, Array, Scratch, Table

TANH, RAW = 0, 1
NO_NORM, PLAIN_BATCH_NORM, GIVEN_MAP = 0, 1, 2

# A table of its own for each layer; the whole actor's has their addresses.
LAYER = Table(
    inputs=INT, outputs=INT, family=INT, constants=INT, map=INT, map_steps=INT, eps=NUMBER,
    weight=Array(REAL, "outputs, inputs"), bias=Array(REAL, "outputs", optional=True), neuron=Array(REAL, "constants"),
    norm_weight=Array(REAL, "outputs", optional=True), norm_bias=Array(REAL, "outputs", optional=True),
    running_mean=Array(REAL, "outputs", optional=True), running_var=Array(REAL, "outputs", optional=True),
    scale=Array(REAL, "map_steps, outputs", optional=True), shift=Array(REAL, "map_steps, outputs", optional=True),
)  # fmt: skip
_layer_at = LAYER.at
ACTOR = Table(
    batch=INT, steps=INT, layers=INT, obs_dim=INT, population=INT, squash=INT, widest=INT, outputs=INT,
    obs=Array(REAL, "batch, obs_dim"), mean=Array(REAL, "obs_dim, population"), std=Array(REAL, "obs_dim, population"),
    constants=Array(REAL, "2"),  # of the encoder: threshold, and what a spike subtracts
    tables=Array(torch.int64, "layers"), counts=Array(REAL, "batch, outputs"),
    maps=Scratch(REAL, "layers, 2, steps, widest"), room=Scratch(REAL, "3 * steps + 4, widest"),
)  # fmt: skip


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
def _scale_shift(layer: Any, scale: Any, shift: Any, one: Any) -> None:
    """The map of inference, [Ts, out]: from moving statistics, in the order of the pure-torch map, or as given."""
    size, steps = layer.outputs, layer.map_steps
    if layer.map == NO_NORM:
        scale[:, :size] = one
        shift[:, :size] = one - one
    elif layer.map == GIVEN_MAP:
        scale[:steps, :size] = array_at(layer.scale, (steps, size), one)
        shift[:steps, :size] = array_at(layer.shift, (steps, size), one)
    else:
        weight = array_at(layer.norm_weight, (size,), one)
        bias = array_at(layer.norm_bias, (size,), one)
        mean = array_at(layer.running_mean, (size,), one)
        var = array_at(layer.running_var, (size,), one)
        eps = float32(layer.eps)
        for f in range(size):
            scale[0, f] = weight[f] * (one / np.sqrt(var[f] + eps))
            shift[0, f] = bias[f] - mean[f] * scale[0, f]


@njit
def _run_layer(layer: Any, x: Any, out: Any, z: Any, scale: Any, shift: Any, state: Any, one: Any) -> None:
    """Spikes out [T, size] of one layer for one observation's input spikes x [T, inputs]."""
    zero = one - one
    size, steps = layer.outputs, x.shape[0]
    for f in range(size):
        row = layer.weight + f * layer.inputs * 4
        start = array_at(layer.bias, (size,), one)[f] if layer.bias != 0 else zero
        for t in range(steps):
            z[t, f] = dot(row, x[t].ctypes.data, layer.inputs) + start
    state[:, :size] = zero
    constants = array_at(layer.neuron, (layer.constants,), one)
    for t in range(steps):
        ts = t if layer.map_steps > 1 else 0
        before, after = state[2 + t % 2], state[2 + (t + 1) % 2]
        potential(layer.family, z[t, :size], scale[ts], shift[ts], state, before, after, constants, one)
        for f in range(size):
            out[t, f] = one if after[f] > constants[0] else zero


@njit
def act(t: Any, one: Any) -> int:
    """Spike counts of the last layer, [B, out], for observations [B, obs]."""
    batch, steps, layers, widest = t.batch, t.steps, t.layers, t.widest
    obs = array_at(t.obs, (batch, t.obs_dim), one)
    mean = array_at(t.mean, (t.obs_dim, t.population), one)
    std = array_at(t.std, (t.obs_dim, t.population), one)
    constants = array_at(t.constants, (2,), one)
    tables = array_at(t.tables, (layers,), int64(0))
    counts = array_at(t.counts, (batch, t.outputs), one)
    maps = array_at(my_part(t, t.maps, layers * 2 * steps * widest * 4), (layers, 2, steps, widest), one)
    room = array_at(my_part(t, t.room, (3 * steps + 4) * widest * 4), (3 * steps + 4, widest), one)
    z, state = room[2 * steps : 3 * steps], room[3 * steps :]
    noticed = 0
    for k in range(layers):
        layer = _layer_at(tables[k])
        _scale_shift(layer, maps[k, 0], maps[k, 1], one)
        for step in range(layer.map_steps):
            for f in range(layer.outputs):
                if not (np.isfinite(maps[k, 0, step, f]) and abs(maps[k, 1, step, f]) <= LARGEST_SHIFT):
                    noticed = NOT_FINITE
    for block in my_share(t, BLOCKS):
        for b in range(block, batch, BLOCKS):
            x = room[:steps]
            _encode(obs[b], mean, std, t.squash, constants[0], constants[1], x, one)
            for k in range(layers):
                out = room[steps : 2 * steps] if k % 2 == 0 else room[:steps]
                _run_layer(_layer_at(tables[k]), x, out, z, maps[k, 0], maps[k, 1], state, one)
                x = out
            for f in range(t.outputs):
                total = one - one
                for step in range(steps):
                    total += x[step, f]
                counts[b, f] = total
    return noticed

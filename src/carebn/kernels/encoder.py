"""Compiled population encoder: receptive fields, spikes, and the gradients of the fields' means and widths."""

from typing import Any

import numpy as np

from carebn.kernels.jit import njit
from carebn.kernels.pool import BLOCKS, my_blocks, read_table
from carebn.kernels.scan import array_at, rows_of


@njit
def _spread(s: Any, population: int, out: Any) -> None:
    """Each value beside every member of its population."""
    for i in range(s.size):
        value = s[i]
        members = out[i * population : (i + 1) * population]
        for j in range(members.size):
            members[j] = value


@njit
def _distance_row(spread: Any, mean: Any, precision: Any, out: Any, one: Any) -> None:
    half = one / (one + one)
    for f in range(out.size):
        u = (spread[f] - mean[f]) * precision[f]
        out[f] = -(u * u * half)


@njit
def distances(table: int, at: int, one: Any) -> None:
    """out = −u²/2 with u = (s − mean)·(1/std), each s against its own population."""
    batch, obs, population, s_, mean_, std_, out_ = read_table(table, at, 7)
    features = obs * population
    s = array_at(s_, (batch, obs), one)
    mean = array_at(mean_, (features,), one)
    precision = one / array_at(std_, (features,), one)
    out = array_at(out_, (batch, features), one)
    spread = np.empty(features, s.dtype)
    for block in my_blocks(table):
        for b in rows_of(block, batch):
            _spread(s[b], population, spread)
            _distance_row(spread, mean, precision, out[b], one)


@njit
def _field_gradient_row(spread: Any, mean: Any, precision: Any, a: Any, grad: Any, to_mean: Any, to_std: Any) -> None:
    for f in range(a.size):
        u = (spread[f] - mean[f]) * precision[f]
        g = grad[f] * a[f] * u
        to_mean[f] += g
        to_std[f] += g * u


@njit
def field_gradients(table: int, at: int, one: Any) -> None:
    """Per block: the sums over samples of dL/dmean and dL/dstd."""
    batch, obs, population, s_, mean_, std_, a_, grad_, sums_ = read_table(table, at, 9)
    features = obs * population
    s = array_at(s_, (batch, obs), one)
    mean = array_at(mean_, (features,), one)
    precision = one / array_at(std_, (features,), one)
    a = array_at(a_, (batch, features), one)
    grad = array_at(grad_, (batch, features), one)
    sums = array_at(sums_, (2, BLOCKS, features), one)
    spread = np.empty(features, s.dtype)
    for block in my_blocks(table):
        to_mean, to_std = sums[0, block], sums[1, block]
        to_mean[:] = 0
        to_std[:] = 0
        for b in rows_of(block, batch):
            _spread(s[b], population, spread)
            _field_gradient_row(spread, mean, precision, a[b], grad[b], to_mean, to_std)
        for f in range(features):
            to_mean[f] *= precision[f]
            to_std[f] *= precision[f]


@njit
def _encode_row(a: Any, v: Any, out: Any, threshold: Any, subtract: Any, one: Any) -> None:
    zero = one - one
    for f in range(a.size):
        potential = v[f] + a[f]
        out[f] = one if potential > threshold else zero
        v[f] = potential - (subtract if potential > threshold else zero)


@njit
def encode(table: int, at: int, one: Any) -> None:
    """Soft-reset integrate-and-fire over all steps under a constant stimulation."""
    steps, batch, features, a_, out_, parameters_ = read_table(table, at, 6)
    a = array_at(a_, (batch, features), one)
    out = array_at(out_, (steps, batch, features), one)
    threshold, subtract = array_at(parameters_, (2,), one)
    v = np.empty(features, a.dtype)
    for block in my_blocks(table):
        for b in rows_of(block, batch):
            v[:] = 0
            for t in range(steps):
                _encode_row(a[b], v, out[t, b], threshold, subtract, one)

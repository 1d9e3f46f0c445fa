"""Compiled arithmetic on per-feature vectors: what happens between two scans.

A dozen torch operations on 256 numbers take longer than the numbers deserve; each of these is one call. All of it is in
float64 inside, whatever the precision outside, unless it says otherwise.
"""

from typing import Any

import numpy as np
import torch

from carebn.kernels.jit import array_at, float64, int64, njit
from carebn.kernels.pool import BLOCKS
from carebn.kernels.tables import INT, NUMBER, REAL, Array, Table

AVERAGE, CONFIDENCE = 1, 2
LARGEST_SHIFT = 1e-3 / float(np.finfo(np.float32).eps)  # see ``introspection.keeps_precision``

# How moving statistics follow. ``statistics`` are the mean and variance of the batch, which had ``count`` values a
# feature; beyond ``limit`` nothing is stored.
UPDATE = Table(
    rule=INT, features=INT, columns=INT, batch=INT, count=INT, momentum=NUMBER, limit=NUMBER,
    statistics=Array(torch.float64, "2, columns"),
    running_mean=Array(REAL, "features"), running_var=Array(REAL, "features"),
    error_mean=Array(REAL, "features", optional=True), error_var=Array(REAL, "features", optional=True),
    updates=Array(torch.int64, ""),
)  # fmt: skip


@njit
def _store(buffer: Any, f: int, value: Any, limit: Any) -> None:
    """Held within the buffer's range, so that 1e30 squared does not become infinity."""
    buffer[f] = min(max(value, -limit), limit)


@njit
def _follow(moving: Any, error: Any, f: int, value: Any, noise: Any, momentum: Any, limit: Any) -> None:
    gap = value - float64(moving[f])
    d = float64(error[f]) + momentum * (gap * gap - float64(error[f]))
    gain = d / (d + noise) if d + noise > 0 else 0.0
    _store(moving, f, float64(moving[f]) + gain * gap, limit)
    _store(error, f, d, limit)


@njit
def update_moving(t: Any, one: Any) -> int:
    """The moving statistics follow the batch's mean and variance by one of two rules.

    CONFIDENCE   Algorithm 1 of the paper: D ← (1 − α)D + α·gap²; K = D/(D + R); moving ← moving + K·gap
    AVERAGE      moving ← moving + momentum·gap, the variance unbiased; there are no error estimates

    It also counts the update.
    """
    features, momentum, limit = t.features, t.momentum, t.limit
    array_at(t.updates, (1,), int64(0))[0] += 1
    statistics = array_at(t.statistics, (2, t.columns), float64(0))
    mean, var = statistics[0], statistics[1]
    moving_mean = array_at(t.running_mean, (features,), one)
    moving_var = array_at(t.running_var, (features,), one)
    if t.rule == AVERAGE:
        for f in range(features):
            old_mean, old_var = float64(moving_mean[f]), float64(moving_var[f])
            unbiased = var[f] * t.count / (t.count - 1)
            _store(moving_mean, f, old_mean + momentum * (mean[f] - old_mean), limit)
            _store(moving_var, f, old_var + momentum * (unbiased - old_var), limit)
        return 0
    error_mean = array_at(t.error_mean, (features,), one)
    error_var = array_at(t.error_var, (features,), one)
    for f in range(features):
        _follow(moving_mean, error_mean, f, mean[f], var[f] / t.batch, momentum, limit)
        _follow(moving_var, error_var, f, var[f], 2 * var[f] * var[f] / (t.batch - 1), momentum, limit)
    return 0


# The rest is float32 and serves ``packed``, whose maps [3, columns] are scale, shift and center of every column.


@njit
def statistics_and_map(t: Any, first: int, last: int, one: Any) -> bool:
    """From the partial sums of the batch to its statistics, scale and shift, for the features first ≤ f < last.

    The pivot of the sums stands in the place of the center. The layer's bias was left out of the products: the reported
    mean has it, the center does not. Returns whether all of it is finite, and keeps its precision multiplied out: less
    the mean a feature that does not vary is exactly zero, and its rounded mean·scale only nearly so.
    """
    columns = t.columns
    sums = array_at(t.sums, (2, BLOCKS, columns), float64(0))
    weight = array_at(t.norm_weight, (t.features,), one)
    bias = array_at(t.norm_bias, (t.features,), one)
    maps = array_at(t.maps, (3, columns), one)
    statistics = array_at(t.statistics, (2, columns), float64(0))
    scale, shift, center = maps[0], maps[1], maps[2]
    finite = True
    for block in range(1, BLOCKS):
        for f in range(first, last):
            sums[0, 0, f] += sums[0, block, f]
            sums[1, 0, f] += sums[1, block, f]
    for f in range(first, last):
        total = sums[0, 0, f]
        square = sums[1, 0, f]
        offset = total / t.count
        middle = float64(center[f]) + offset
        var = max(square / t.count - offset * offset, 0.0)
        slope = float64(weight[f]) / np.sqrt(var + t.eps)
        scale[f] = slope
        shift[f] = float64(bias[f]) - middle * slope
        center[f] = middle
        statistics[0, f] = middle
        statistics[1, f] = var
        # max() above swallows NaN, so the sums themselves are asked
        finite &= np.isfinite(total) and np.isfinite(square) and np.isfinite(scale[f])
        finite &= abs(shift[f]) <= LARGEST_SHIFT and (var > 0 or middle == 0)
    if t.bias != 0:
        layer_bias = array_at(t.bias, (t.features,), one)
        for f in range(first, last):
            statistics[0, f] += float64(layer_bias[f])
            finite &= np.isfinite(statistics[0, f])
    return finite


@njit
def pull_back(t: Any, first: int, last: int, one: Any) -> None:
    """From the partial sums of the backward scan to the gradients of the norm's weight and bias, and to the two vectors
    that carry the gradient through the statistics to every product: constant + slope·(z − mean).

    Without a norm there is no such path, and the bias is the layer's own. For first ≤ feature < last.
    """
    sums = array_at(t.sums, (2, BLOCKS, t.columns), one)
    path = array_at(t.path, (2, t.columns), one)
    gradients = array_at(t.grad_map, (2, t.features), one)
    for f in range(first, last):
        total = 0.0
        product = 0.0
        for block in range(BLOCKS):
            total += float64(sums[0, block, f])
            product += float64(sums[1, block, f])
        gradients[1, f] = total
        if t.norm_weight == 0:
            path[:, f] = 0
        else:
            var = array_at(t.var, (t.columns,), float64(0))[f]
            deviation = 1 / np.sqrt(var + t.eps)
            scale = float64(array_at(t.norm_weight, (t.features,), one)[f]) * deviation
            gradients[0, f] = product * deviation
            path[0, f] = -scale * total / t.count
            path[1, f] = -scale * deviation * deviation * product / t.count

"""Compiled arithmetic on per-feature vectors: what happens between two scans.

A dozen torch operations on 256 numbers take longer than the numbers deserve; each of these is one call. All of it is in
float64 inside, whatever the precision outside.
"""

from typing import Any

import numpy as np

from carebn.kernels.jit import float64, int64, njit
from carebn.kernels.pool import BLOCKS, read_table
from carebn.kernels.scan import array_at

NO_UPDATE, AVERAGE, CONFIDENCE = 0, 1, 2


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
def _average(moving: Any, f: int, value: Any, momentum: Any, limit: Any) -> None:
    _store(moving, f, float64(moving[f]) + momentum * (value - float64(moving[f])), limit)


@njit
def update_moving(table: int, at: int, one: Any) -> None:
    """The moving statistics follow the batch's mean and var (float64) by one of two rules.

    CONFIDENCE   Algorithm 1 of the paper: D ← (1 − α)D + α·gap²; K = D/(D + R); moving ← moving + K·gap
    AVERAGE      moving ← moving + momentum·gap, the variance unbiased; there are no error estimates

    It also counts the update.
    """
    (rule, features, batch, count, mean_, var_, moving_mean_, moving_var_, error_mean_, error_var_,
     options_, updates_) = read_table(table, at, 12)  # fmt: skip
    if rule == NO_UPDATE:
        return
    array_at(updates_, (1,), int64(0))[0] += 1
    mean = array_at(mean_, (features,), float64(0))
    var = array_at(var_, (features,), float64(0))
    moving_mean = array_at(moving_mean_, (features,), one)
    moving_var = array_at(moving_var_, (features,), one)
    momentum, limit = array_at(options_, (2,), float64(0))
    if rule == AVERAGE:
        for f in range(features):
            _average(moving_mean, f, mean[f], momentum, limit)
            _average(moving_var, f, var[f] * count / (count - 1), momentum, limit)
        return
    error_mean = array_at(error_mean_, (features,), one)
    error_var = array_at(error_var_, (features,), one)
    for f in range(features):
        _follow(moving_mean, error_mean, f, mean[f], var[f] / batch, momentum, limit)
        _follow(moving_var, error_var, f, var[f], 2 * var[f] * var[f] / (batch - 1), momentum, limit)


@njit
def statistics(table: int, at: int, first: int, last: int, one: Any) -> None:
    """From the partial sums of the batch to its mean, variance, scale and shift, for the features first ≤ f < last.

    ``finite`` becomes 0 if one is not. The center may take the place of the pivot.

    ``layer_bias`` (an address, or 0) was left out of the products: the reported mean has it, the center does not.
    """
    (features, count, sums_, pivot_, weight_, bias_, epsilon_, layer_bias_, mean_, var_, scale_, shift_, center_,
     finite_) = read_table(table, at, 14)  # fmt: skip
    sums = array_at(sums_, (2, BLOCKS, features), float64(0))
    pivot = array_at(pivot_, (features,), one)
    weight = array_at(weight_, (features,), one)
    bias = array_at(bias_, (features,), one)
    epsilon = array_at(epsilon_, (1,), float64(0))[0]
    mean = array_at(mean_, (features,), float64(0))
    var = array_at(var_, (features,), float64(0))
    scale = array_at(scale_, (features,), one)
    shift = array_at(shift_, (features,), one)
    center = array_at(center_, (features,), one)
    finite = array_at(finite_, (1,), int64(0))
    for block in range(1, BLOCKS):
        for f in range(first, last):
            sums[0, 0, f] += sums[0, block, f]
            sums[1, 0, f] += sums[1, block, f]
    for f in range(first, last):
        total = sums[0, 0, f]
        square = sums[1, 0, f]
        offset = total / count
        middle = float64(pivot[f]) + offset
        var[f] = max(square / count - offset * offset, 0.0)
        slope = float64(weight[f]) / np.sqrt(var[f] + epsilon)
        scale[f] = slope
        shift[f] = float64(bias[f]) - middle * slope
        center[f] = middle
        mean[f] = middle
        # max() above swallows NaN, so the sums themselves are asked
        if not (np.isfinite(total) and np.isfinite(square)):
            finite[0] = 0
    if layer_bias_ != 0:
        layer_bias = array_at(layer_bias_, (features,), one)
        for f in range(first, last):
            mean[f] += float64(layer_bias[f])


@njit
def pull_back(table: int, at: int, first: int, last: int, one: Any) -> None:
    """From the partial sums of the backward scan to the gradients of weight and bias, and to the two vectors that carry
    the gradient through the statistics to every product: constant + slope·(z − mean). For first ≤ feature < last."""
    (features, count, sums_, weight_, epsilon_, var_, grad_weight_, grad_bias_, constant_,
     slope_) = read_table(table, at, 10)  # fmt: skip
    sums = array_at(sums_, (2, BLOCKS, features), one)
    weight = array_at(weight_, (features,), one)
    epsilon = array_at(epsilon_, (1,), float64(0))[0]
    var = array_at(var_, (features,), float64(0))
    grad_weight = array_at(grad_weight_, (features,), one)
    grad_bias = array_at(grad_bias_, (features,), one)
    constant = array_at(constant_, (features,), one)
    slope = array_at(slope_, (features,), one)
    totals = np.zeros((2, last))
    for block in range(BLOCKS):
        for f in range(first, last):
            totals[0, f] += float64(sums[0, block, f])
            totals[1, f] += float64(sums[1, block, f])
    for f in range(first, last):
        total = totals[0, f]
        product = totals[1, f]
        deviation = 1 / np.sqrt(var[f] + epsilon)
        scale = float64(weight[f]) * deviation
        grad_bias[f] = total
        grad_weight[f] = product * deviation
        constant[f] = -scale * total / count
        slope[f] = -scale * deviation * deviation * product / count


@njit
def pull_back_plainly(table: int, at: int, first: int, last: int, one: Any) -> None:
    """The same where there is no normaliser: the bias has a gradient, and no statistics carry any."""
    features, _, sums_, _, _, _, _, grad_bias_, constant_, slope_ = read_table(table, at, 10)
    sums = array_at(sums_, (2, BLOCKS, features), one)
    grad_bias = array_at(grad_bias_, (features,), one)
    constant = array_at(constant_, (features,), one)
    slope = array_at(slope_, (features,), one)
    for f in range(first, last):
        total = 0.0
        for block in range(BLOCKS):
            total += float64(sums[0, block, f])
        grad_bias[f] = total
        constant[f] = 0
        slope[f] = 0


@njit
def moving_map(table: int, at: int, moving_at: int, first: int, last: int, one: Any) -> None:
    """Scale and shift from the moving statistics, with the entries of ``statistics`` and ``update_moving``.

    In the precision and order of the pure-torch map; epsilon too is in that precision.
    """
    (features, _, _, _, weight_, bias_, epsilon_, _, _, _, scale_, shift_, _, _) = read_table(table, at, 14)
    moving_ = read_table(table, moving_at, 12)
    weight = array_at(weight_, (features,), one)
    bias = array_at(bias_, (features,), one)
    epsilon = array_at(epsilon_, (1,), one)[0]
    mean = array_at(moving_[6], (features,), one)
    var = array_at(moving_[7], (features,), one)
    scale = array_at(scale_, (features,), one)
    shift = array_at(shift_, (features,), one)
    for f in range(first, last):
        scale[f] = weight[f] * (one / np.sqrt(var[f] + epsilon))
        shift[f] = bias[f] - mean[f] * scale[f]


@njit
def is_finite(table: int, at: int) -> bool:
    """What ``statistics`` said, from the same entries."""
    entries = read_table(table, at, 14)
    flag: bool = array_at(entries[13], (1,), int64(0))[0] == 1
    return flag

"""The compiled inner loops: statistics, normalise + integrate + fire over all T steps, and their gradients.

Every kernel works on rows: one sample b, up to ``WIDTH`` neighbouring features, all T steps, so that the neuron's state
stays in the first-level cache and memory is read once. Layouts, all C-contiguous:

    z       [Tz, B, F]   the products; Tz is T, or 1 when the input is the same at every step
    scale   [Ts, F]      Ts is T for per-step normalisers, else 1; the same for shift and center
    spikes  [T, B, F]

The backward kernels run the forward recurrence again instead of reading stored potentials: arithmetic is cheaper here
than memory. Sums over samples go to one partial result per block of rows; the caller adds those up.

Each expression has the order of the pure-torch step, so that spikes agree to the last bit. ``one`` is 1 in the
precision at hand: every other constant is made from it, because a plain literal would widen float32 to float64.
"""

from typing import Any

import numpy as np

from carebn.kernels.jit import carray, float64, njit
from carebn.kernels.pool import BLOCKS, my_blocks, pointer_to, read_table

WIDTH = 256
RECTANGLE, TRIANGLE, SIGMOID, TANH = 0, 1, 2, 3


@njit
def array_at(address: int, shape: Any, one: Any) -> Any:
    return carray(pointer_to(address, one), shape)


@njit
def rows_of(block: int, batch: int) -> Any:
    """The rows of one block."""
    size = (batch + BLOCKS - 1) // BLOCKS
    return range(min(block * size, batch), min((block + 1) * size, batch))


@njit
def _surrogate(h: Any, slope: Any, threshold: Any, kind: int, size: Any, one: Any) -> None:
    """slope = the surrogate derivative of the spikes with respect to the potentials h."""
    zero = one - one
    two = one + one
    if kind == RECTANGLE:
        height = one / (two * size)
        for f in range(h.size):
            slope[f] = height if abs(h[f] - threshold) <= size else zero
    elif kind == TRIANGLE:
        for f in range(h.size):
            slope[f] = max(one - abs(h[f] - threshold) / size, zero) / size
    elif kind == SIGMOID:
        for f in range(h.size):
            y = one / (one + np.exp(-size * (h[f] - threshold)))
            slope[f] = size * y * (one - y)
    else:
        for f in range(h.size):
            y = np.tanh(size * (h[f] - threshold))
            slope[f] = size / two * (one - y * y)


# --- batch statistics ------------------------------------------------------------------------------------------------


@njit
def _moments_row(z: Any, pivot: Any, total: Any, square: Any) -> None:
    for f in range(z.size):
        x = float64(z[f]) - float64(pivot[f])
        total[f] += x
        square[f] += x * x


@njit
def moments(table: int, at: int, one: Any) -> None:
    """Per block: the sums of (z - pivot) and (z - pivot)², in float64; the pivot is the first sample.

    One float64 pass is exact enough for float32 input of any mean, and does not overflow at 1e30.
    """
    steps, batch, features, per_step, z_, total_, square_ = read_table(table, at, 7)
    groups = steps if per_step else 1
    z = array_at(z_, (steps, batch, features), one)
    total = array_at(total_, (BLOCKS, groups, features), float64(0))
    square = array_at(square_, (BLOCKS, groups, features), float64(0))
    for block in my_blocks(table):
        total[block] = 0
        square[block] = 0
        for t in range(steps):
            g = t if per_step else 0
            for b in rows_of(block, batch):
                _moments_row(z[t, b], z[g, 0], total[block, g], square[block, g])


# --- leaky integrate-and-fire, with or without a synaptic current ----------------------------------------------------
# LIF is CLIF with a current that is forgotten at once: 0·C + y.


@njit
def lif_row(
    z: Any, scale: Any, shift: Any, c: Any, v: Any, out: Any, current_decay: Any, decay: Any, threshold: Any, one: Any
) -> None:
    zero = one - one
    for f in range(z.size):
        current = current_decay * c[f] + (z[f] * scale[f] + shift[f])
        h = decay * v[f] + current
        c[f] = current
        v[f] = zero if h > threshold else h
        out[f] = one if h > threshold else zero


@njit
def _lif_potential_row(
    z: Any, scale: Any, shift: Any, c: Any, v: Any, h: Any, current_decay: Any, decay: Any, threshold: Any, one: Any
) -> None:
    zero = one - one
    for f in range(z.size):
        current = current_decay * c[f] + (z[f] * scale[f] + shift[f])
        potential = decay * v[f] + current
        c[f] = current
        v[f] = zero if potential > threshold else potential
        h[f] = potential


@njit
def _lif_backward_row(
    h: Any,
    slope: Any,
    grad_spike: Any,
    grad_v: Any,
    grad_c: Any,
    grad_y: Any,
    current_decay: Any,
    decay: Any,
    threshold: Any,
    one: Any,
) -> None:
    zero = one - one
    for f in range(h.size):
        kept = zero if h[f] > threshold else one
        grad_h = grad_v[f] * kept + (grad_spike[f] - grad_v[f] * h[f]) * slope[f]
        grad_current = grad_h + grad_c[f]
        grad_v[f] = decay * grad_h
        grad_c[f] = current_decay * grad_current
        grad_y[f] = grad_current


@njit
def lif_forward(table: int, at: int, one: Any) -> None:
    steps, batch, features, z_steps, s_steps, z_, scale_, shift_, out_, parameters_ = read_table(table, at, 10)
    z = array_at(z_, (z_steps, batch, features), one)
    scale = array_at(scale_, (s_steps, features), one)
    shift = array_at(shift_, (s_steps, features), one)
    out = array_at(out_, (steps, batch, features), one)
    current_decay, decay, threshold = array_at(parameters_, (3,), one)
    c = np.empty(WIDTH, z.dtype)
    v = np.empty(WIDTH, z.dtype)
    for block in my_blocks(table):
        for b in rows_of(block, batch):
            for f0 in range(0, features, WIDTH):
                f1 = min(f0 + WIDTH, features)
                c[:] = 0
                v[:] = 0
                for t in range(steps):
                    tz = t if z_steps > 1 else 0
                    ts = t if s_steps > 1 else 0
                    lif_row(z[tz, b, f0:f1], scale[ts, f0:f1], shift[ts, f0:f1], c, v, out[t, b, f0:f1],
                             current_decay, decay, threshold, one)  # fmt: skip


@njit
def _accumulate_row(grad_y: Any, z: Any, center: Any, total: Any, product: Any) -> None:
    for f in range(grad_y.size):
        total[f] += grad_y[f]
        product[f] += grad_y[f] * (z[f] - center[f])


@njit
def lif_backward(table: int, at: int, one: Any) -> None:
    (steps, batch, features, z_steps, s_steps, g_steps, z_, scale_, shift_, center_, grad_spikes_, grad_y_,
     total_, product_, parameters_, kind) = read_table(table, at, 16)  # fmt: skip
    z = array_at(z_, (z_steps, batch, features), one)
    scale = array_at(scale_, (s_steps, features), one)
    shift = array_at(shift_, (s_steps, features), one)
    center = array_at(center_, (s_steps, features), one)
    grad_spikes = array_at(grad_spikes_, (g_steps, batch, features), one)
    grad_y = array_at(grad_y_, (steps, batch, features), one)
    total = array_at(total_, (BLOCKS, s_steps, features), one)
    product = array_at(product_, (BLOCKS, s_steps, features), one)
    current_decay, decay, threshold, size = array_at(parameters_, (4,), one)
    h = np.empty((steps, WIDTH), z.dtype)
    slope = np.empty(WIDTH, z.dtype)
    c = np.empty(WIDTH, z.dtype)
    v = np.empty(WIDTH, z.dtype)
    for block in my_blocks(table):
        total[block] = 0
        product[block] = 0
        for b in rows_of(block, batch):
            for f0 in range(0, features, WIDTH):
                f1 = min(f0 + WIDTH, features)
                width = f1 - f0
                c[:] = 0
                v[:] = 0
                for t in range(steps):
                    tz = t if z_steps > 1 else 0
                    ts = t if s_steps > 1 else 0
                    _lif_potential_row(z[tz, b, f0:f1], scale[ts, f0:f1], shift[ts, f0:f1], c, v, h[t, :width],
                                       current_decay, decay, threshold, one)  # fmt: skip
                c[:] = 0  # from here on the gradients that arrive from the step after
                v[:] = 0
                for t in range(steps - 1, -1, -1):
                    tz = t if z_steps > 1 else 0
                    ts = t if s_steps > 1 else 0
                    tg = t if g_steps > 1 else 0
                    _surrogate(h[t, :width], slope, threshold, kind, size, one)
                    _lif_backward_row(h[t, :width], slope, grad_spikes[tg, b, f0:f1], v, c, grad_y[t, b, f0:f1],
                                      current_decay, decay, threshold, one)  # fmt: skip
                    _accumulate_row(grad_y[t, b, f0:f1], z[tz, b, f0:f1], center[ts, f0:f1],
                                    total[block, ts, f0:f1], product[block, ts, f0:f1])  # fmt: skip


# --- dynamic neuron --------------------------------------------------------------------------------------------------


@njit
def dn_row(z: Any, scale: Any, shift: Any, c: Any, v: Any, u: Any, h: Any, parameters: Any, one: Any) -> None:
    """One step: v is the potential after the last one, not yet reset; h gets the new one."""
    zero = one - one
    current_decay, threshold, theta_v, theta_u, theta_r, theta_s = parameters
    for f in range(z.size):
        current = current_decay * c[f] + (z[f] * scale[f] + shift[f])
        fired = v[f] > threshold
        v_reset = theta_r if fired else v[f]
        u_reset = u[f] + (theta_s if fired else zero)
        c[f] = current
        h[f] = v_reset + (v_reset * v_reset - v_reset - u_reset + current)
        u[f] = u_reset + (theta_v * v_reset - theta_u * u_reset)


@njit
def dn_forward(table: int, at: int, one: Any) -> None:
    steps, batch, features, z_steps, s_steps, z_, scale_, shift_, out_, parameters_ = read_table(table, at, 10)
    zero = one - one
    z = array_at(z_, (z_steps, batch, features), one)
    scale = array_at(scale_, (s_steps, features), one)
    shift = array_at(shift_, (s_steps, features), one)
    out = array_at(out_, (steps, batch, features), one)
    p = array_at(parameters_, (6,), one)
    parameters = (p[0], p[1], p[2], p[3], p[4], p[5])
    threshold = p[1]
    h = np.empty((2, WIDTH), z.dtype)  # the potentials before and after a step, taking turns
    c = np.empty(WIDTH, z.dtype)
    u = np.empty(WIDTH, z.dtype)
    for block in my_blocks(table):
        for b in rows_of(block, batch):
            for f0 in range(0, features, WIDTH):
                f1 = min(f0 + WIDTH, features)
                h[0] = 0
                c[:] = 0
                u[:] = 0
                for t in range(steps):
                    tz = t if z_steps > 1 else 0
                    ts = t if s_steps > 1 else 0
                    after = h[(t + 1) % 2]
                    dn_row(z[tz, b, f0:f1], scale[ts, f0:f1], shift[ts, f0:f1], c, h[t % 2], u, after, parameters, one)
                    spikes = out[t, b, f0:f1]
                    for f in range(f1 - f0):
                        spikes[f] = one if after[f] > threshold else zero


@njit
def _dn_backward_row(
    h: Any,
    h_before: Any,
    slope: Any,
    grad_spike: Any,
    grad_h: Any,
    grad_u: Any,
    grad_fired: Any,
    grad_c: Any,
    grad_y: Any,
    parameters: Any,
    one: Any,
) -> None:
    """The gradients of one step; ``grad_fired`` is what the step after says of this step's spike."""
    zero = one - one
    current_decay, threshold, theta_v, theta_u, theta_r, theta_s = parameters
    for f in range(h.size):
        fired = h_before[f] > threshold
        v_reset = theta_r if fired else h_before[f]
        to_h = grad_h[f] + (grad_spike[f] + grad_fired[f]) * slope[f]
        to_v_reset = to_h * (v_reset + v_reset) + grad_u[f] * theta_v
        to_u_reset = grad_u[f] - grad_u[f] * theta_u - to_h
        grad_current = to_h + grad_c[f]
        grad_h[f] = zero if fired else to_v_reset
        grad_u[f] = to_u_reset
        grad_fired[f] = to_v_reset * (theta_r - h_before[f]) + to_u_reset * theta_s
        grad_c[f] = current_decay * grad_current
        grad_y[f] = grad_current


@njit
def dn_backward(table: int, at: int, one: Any) -> None:
    (steps, batch, features, z_steps, s_steps, g_steps, z_, scale_, shift_, center_, grad_spikes_, grad_y_,
     total_, product_, parameters_, kind) = read_table(table, at, 16)  # fmt: skip
    z = array_at(z_, (z_steps, batch, features), one)
    scale = array_at(scale_, (s_steps, features), one)
    shift = array_at(shift_, (s_steps, features), one)
    center = array_at(center_, (s_steps, features), one)
    grad_spikes = array_at(grad_spikes_, (g_steps, batch, features), one)
    grad_y = array_at(grad_y_, (steps, batch, features), one)
    total = array_at(total_, (BLOCKS, s_steps, features), one)
    product = array_at(product_, (BLOCKS, s_steps, features), one)
    p = array_at(parameters_, (7,), one)
    parameters = (p[0], p[1], p[2], p[3], p[4], p[5])
    threshold = p[1]
    size = p[6]
    h = np.empty((steps + 1, WIDTH), z.dtype)  # h[0] is the potential before the first step: zero
    slope = np.empty(WIDTH, z.dtype)
    c = np.empty(WIDTH, z.dtype)
    u = np.empty(WIDTH, z.dtype)
    grad_h = np.empty(WIDTH, z.dtype)
    grad_fired = np.empty(WIDTH, z.dtype)
    for block in my_blocks(table):
        total[block] = 0
        product[block] = 0
        for b in rows_of(block, batch):
            for f0 in range(0, features, WIDTH):
                f1 = min(f0 + WIDTH, features)
                width = f1 - f0
                h[0] = 0
                c[:] = 0
                u[:] = 0
                for t in range(steps):
                    tz = t if z_steps > 1 else 0
                    ts = t if s_steps > 1 else 0
                    dn_row(z[tz, b, f0:f1], scale[ts, f0:f1], shift[ts, f0:f1], c, h[t], u, h[t + 1], parameters, one)
                c[:] = 0  # from here on c and u hold the gradients that arrive from the step after
                u[:] = 0
                grad_h[:] = 0
                grad_fired[:] = 0
                for t in range(steps - 1, -1, -1):
                    tz = t if z_steps > 1 else 0
                    ts = t if s_steps > 1 else 0
                    tg = t if g_steps > 1 else 0
                    _surrogate(h[t + 1, :width], slope, threshold, kind, size, one)
                    _dn_backward_row(h[t + 1, :width], h[t], slope, grad_spikes[tg, b, f0:f1], grad_h, u, grad_fired, c,
                                     grad_y[t, b, f0:f1], parameters, one)  # fmt: skip
                    _accumulate_row(grad_y[t, b, f0:f1], z[tz, b, f0:f1], center[ts, f0:f1],
                                    total[block, ts, f0:f1], product[block, ts, f0:f1])  # fmt: skip


# --- from the gradient of the normalised current to the gradient of the products -------------------------------------


@njit
def _finish_row(grad_y: Any, z: Any, scale: Any, center: Any, constant: Any, slope: Any) -> None:
    for f in range(grad_y.size):
        grad_y[f] = grad_y[f] * scale[f] + (constant[f] + slope[f] * (z[f] - center[f]))


@njit
def finish(table: int, at: int, one: Any) -> None:
    """grad_z = grad_y·scale + constant + slope·(z − center), in place of grad_y.

    The first term is the direct path, the others are the path through the batch statistics (k_steps of them).
    """
    (steps, batch, features, z_steps, s_steps, k_steps, z_, scale_, center_, constant_, slope_,
     grad_y_) = read_table(table, at, 12)  # fmt: skip
    z = array_at(z_, (z_steps, batch, features), one)
    scale = array_at(scale_, (s_steps, features), one)
    center = array_at(center_, (k_steps, features), one)
    constant = array_at(constant_, (k_steps, features), one)
    slope = array_at(slope_, (k_steps, features), one)
    grad_y = array_at(grad_y_, (steps, batch, features), one)
    for block in my_blocks(table):
        for t in range(steps):
            tz = t if z_steps > 1 else 0
            ts = t if s_steps > 1 else 0
            tk = t if k_steps > 1 else 0
            for b in rows_of(block, batch):
                _finish_row(grad_y[t, b], z[tz, b], scale[ts], center[tk], constant[tk], slope[tk])

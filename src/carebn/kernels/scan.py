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
import torch

from carebn.kernels.jit import array_at, float64, njit
from carebn.kernels.pool import BLOCKS, my_part, my_share, rows_of
from carebn.kernels.tables import INT, REAL, Array, Scratch, Table

LIF, DN = 0, 1  # the families of neurons
WIDTH = 256
RECTANGLE, TRIANGLE, SIGMOID, TANH = 0, 1, 2, 3

_NEURON: dict[str, Any] = {  # its family, and its constants; the last is the surrogate's size
    "family": INT, "constants": INT, "neuron": Array(REAL, "constants"),
}  # fmt: skip
_SCAN: dict[str, Any] = {
    "steps": INT, "batch": INT, "features": INT, "z_steps": INT, "s_steps": INT,
    "z": Array(REAL, "z_steps, batch, features"), "scale": Array(REAL, "s_steps, features"),
}  # fmt: skip
MOMENTS = Table(
    steps=INT, batch=INT, features=INT, groups=INT,
    z=Array(REAL, "steps, batch, features"), sums=Array(torch.float64, f"2, {BLOCKS}, groups, features"),
)  # fmt: skip
FIRE = Table(
    **_NEURON, **_SCAN,
    shift=Array(REAL, "s_steps, features"), spikes=Array(REAL, "steps, batch, features"),
    state=Scratch(REAL, f"6, {WIDTH}"),
)  # fmt: skip
FIRE_BACKWARD = Table(
    **_NEURON, **_SCAN, surrogate=INT, g_steps=INT,
    shift=Array(REAL, "s_steps, features"), center=Array(REAL, "s_steps, features"),
    grad_spikes=Array(REAL, "g_steps, batch, features"), grad_y=Array(REAL, "steps, batch, features"),
    sums=Array(REAL, f"2, {BLOCKS}, s_steps, features"),
    state=Scratch(REAL, f"steps + 6, {WIDTH}"),
)  # fmt: skip
NORM_BACKWARD = Table(
    **_SCAN, k_steps=INT,
    center=Array(REAL, "k_steps, features"), constant=Array(REAL, "k_steps, features"),
    slope=Array(REAL, "k_steps, features"), grad_y=Array(REAL, "steps, batch, features"),
)  # fmt: skip


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
def moments(t: Any, one: Any) -> int:
    """Per block: the sums of (z - pivot) and (z - pivot)², in float64; the pivot is the first sample.

    One float64 pass is exact enough for float32 input of any mean, and does not overflow at 1e30.
    """
    z = array_at(t.z, (t.steps, t.batch, t.features), one)
    sums = array_at(t.sums, (2, BLOCKS, t.groups, t.features), float64(0))
    for block in my_share(t, BLOCKS):
        sums[:, block] = 0
        for step in range(t.steps):
            g = step if t.groups > 1 else 0
            for b in rows_of(block, t.batch):
                _moments_row(z[step, b], z[g, 0], sums[0, block, g], sums[1, block, g])
    return 0


# --- neurons ---------------------------------------------------------------------------------------------------------
# Each family is two functions of one row and one step. ``potential`` integrates: from the potentials before (not yet
# reset) and the state of the neurons, some rows that start at zero, to the potentials after. ``pull`` goes back: what
# the step after said is in the same rows. The first constant is the threshold. An infinite potential is NaN after
# the reset, h − h, as the pure step has it: h·(1 − 1).


@njit
def _lif_potential(
    z: Any, scale: Any, shift: Any, state: Any, before: Any, after: Any, constants: Any, one: Any
) -> None:
    """With or without a synaptic current: LIF is CLIF with a current that is forgotten at once, 0·C + y."""
    threshold, current_decay, decay = constants[0], constants[1], constants[2]
    c = state[0]
    for f in range(z.size):
        current = current_decay * c[f] + (z[f] * scale[f] + shift[f])
        kept = before[f] - before[f] if before[f] > threshold else before[f]
        c[f] = current
        after[f] = decay * kept + current


@njit
def _lif_pull(
    h: Any, slope: Any, grad_spike: Any, state: Any, grad_y: Any, constants: Any, last: bool, one: Any
) -> None:
    """Nobody inherits the ``last`` potential, be it infinite."""
    threshold, current_decay, decay = constants[0], constants[1], constants[2]
    grad_c, grad_v = state[0], state[1]
    zero = one - one
    for f in range(h.size):
        kept = zero if h[f] > threshold else one
        grad_h = grad_v[f] * kept + (grad_spike[f] - grad_v[f] * (zero if last else h[f])) * slope[f]
        grad_current = grad_h + grad_c[f]
        grad_v[f] = decay * grad_h
        grad_c[f] = current_decay * grad_current
        grad_y[f] = grad_current


@njit
def _dn_potential(
    z: Any, scale: Any, shift: Any, state: Any, before: Any, after: Any, constants: Any, one: Any
) -> None:
    threshold, current_decay = constants[0], constants[1]
    theta_v, theta_u, theta_r, theta_s = constants[2], constants[3], constants[4], constants[5]
    c, u = state[0], state[1]
    zero = one - one
    for f in range(z.size):
        current = current_decay * c[f] + (z[f] * scale[f] + shift[f])
        fired = before[f] > threshold
        v_reset = before[f] - before[f] + theta_r if fired else before[f]
        u_reset = u[f] + (theta_s if fired else zero)
        c[f] = current
        after[f] = v_reset + (v_reset * v_reset - v_reset - u_reset + current)
        u[f] = u_reset + (theta_v * v_reset - theta_u * u_reset)


@njit
def _dn_pull(h: Any, before: Any, slope: Any, grad_spike: Any, state: Any, grad_y: Any, constants: Any) -> None:
    """``grad_fired`` is what the step after says of this step's spike."""
    threshold, current_decay = constants[0], constants[1]
    theta_v, theta_u, theta_r, theta_s = constants[2], constants[3], constants[4], constants[5]
    grad_c, grad_h, grad_u, grad_fired = state[0], state[1], state[2], state[3]
    for f in range(h.size):
        fired = before[f] > threshold
        v_reset = before[f] - before[f] + theta_r if fired else before[f]
        to_h = grad_h[f] + (grad_spike[f] + grad_fired[f]) * slope[f]
        to_v_reset = to_h * (v_reset + v_reset) + grad_u[f] * theta_v
        to_u_reset = grad_u[f] - grad_u[f] * theta_u - to_h
        grad_current = to_h + grad_c[f]
        grad_h[f] = to_v_reset - to_v_reset if fired else to_v_reset
        grad_u[f] = to_u_reset
        grad_fired[f] = to_v_reset * (theta_r - before[f]) + to_u_reset * theta_s
        grad_c[f] = current_decay * grad_current
        grad_y[f] = grad_current


# --- over time -------------------------------------------------------------------------------------------------------


@njit
def potential(
    family: int, z: Any, scale: Any, shift: Any, state: Any, before: Any, after: Any, constants: Any, one: Any
) -> None:
    if family == LIF:
        _lif_potential(z, scale, shift, state, before, after, constants, one)
    else:
        _dn_potential(z, scale, shift, state, before, after, constants, one)


@njit
def fire(t: Any, one: Any) -> int:
    steps, batch, features, z_steps, s_steps = t.steps, t.batch, t.features, t.z_steps, t.s_steps
    zero = one - one
    z = array_at(t.z, (z_steps, batch, features), one)
    scale = array_at(t.scale, (s_steps, features), one)
    shift = array_at(t.shift, (s_steps, features), one)
    out = array_at(t.spikes, (steps, batch, features), one)
    constants = array_at(t.neuron, (t.constants,), one)
    threshold = constants[0]
    state = array_at(my_part(t, t.state, 6 * WIDTH * z.itemsize), (6, WIDTH), one)
    for block in my_share(t, BLOCKS):
        for b in rows_of(block, batch):
            for f0 in range(0, features, WIDTH):
                here = slice(f0, min(f0 + WIDTH, features))
                state[:5] = 0
                for step in range(steps):
                    tz, ts = min(step, z_steps - 1), min(step, s_steps - 1)
                    before, after = state[4 + step % 2], state[4 + (step + 1) % 2]  # they take turns
                    potential(
                        t.family, z[tz, b, here], scale[ts, here], shift[ts, here], state, before, after, constants, one
                    )
                    spikes = out[step, b, here]
                    for f in range(spikes.size):
                        spikes[f] = one if after[f] > threshold else zero
    return 0


@njit
def _accumulate_row(grad_y: Any, z: Any, center: Any, total: Any, product: Any) -> None:
    for f in range(grad_y.size):
        total[f] += grad_y[f]
        product[f] += grad_y[f] * (z[f] - center[f])


@njit
def fire_backward(t: Any, one: Any) -> int:
    steps, batch, features = t.steps, t.batch, t.features
    z_steps, s_steps, g_steps = t.z_steps, t.s_steps, t.g_steps
    z = array_at(t.z, (z_steps, batch, features), one)
    scale = array_at(t.scale, (s_steps, features), one)
    shift = array_at(t.shift, (s_steps, features), one)
    center = array_at(t.center, (s_steps, features), one)
    grad_spikes = array_at(t.grad_spikes, (g_steps, batch, features), one)
    grad_y = array_at(t.grad_y, (steps, batch, features), one)
    sums = array_at(t.sums, (2, BLOCKS, s_steps, features), one)
    constants = array_at(t.neuron, (t.constants,), one)
    room = array_at(my_part(t, t.state, (steps + 6) * WIDTH * z.itemsize), (steps + 6, WIDTH), one)
    slope, state, h = room[0], room[1:5], room[5:]  # h[0] is the potential before the first step
    for block in my_share(t, BLOCKS):
        sums[:, block] = 0
        for b in rows_of(block, batch):
            for f0 in range(0, features, WIDTH):
                here = slice(f0, min(f0 + WIDTH, features))
                room[1:6] = 0
                for step in range(steps):
                    y, ts = z[min(step, z_steps - 1), b, here], min(step, s_steps - 1)
                    potential(
                        t.family, y, scale[ts, here], shift[ts, here], state, h[step], h[step + 1], constants, one
                    )
                state[:] = 0
                for step in range(steps - 1, -1, -1):
                    y, ts = z[min(step, z_steps - 1), b, here], min(step, s_steps - 1)
                    grad, mine = grad_spikes[min(step, g_steps - 1), b, here], grad_y[step, b, here]
                    after = h[step + 1, : mine.size]
                    _surrogate(after, slope, constants[0], t.surrogate, constants[constants.size - 1], one)
                    if t.family == LIF:
                        _lif_pull(after, slope, grad, state, mine, constants, step == steps - 1, one)
                    else:
                        _dn_pull(after, h[step], slope, grad, state, mine, constants)
                    _accumulate_row(mine, y, center[ts, here], sums[0, block, ts, here], sums[1, block, ts, here])
    return 0


# --- from the gradient of the normalised current to the gradient of the products -------------------------------------


@njit
def _norm_backward_row(grad_y: Any, z: Any, scale: Any, center: Any, constant: Any, slope: Any) -> None:
    for f in range(grad_y.size):
        grad_y[f] = grad_y[f] * scale[f] + (constant[f] + slope[f] * (z[f] - center[f]))


@njit
def norm_backward(t: Any, one: Any) -> int:
    """grad_z = grad_y·scale + constant + slope·(z − center), in place of grad_y.

    The first term is the direct path, the others are the path through the batch statistics (k_steps of them).
    """
    steps, batch, features, z_steps, s_steps, k_steps = t.steps, t.batch, t.features, t.z_steps, t.s_steps, t.k_steps
    z = array_at(t.z, (z_steps, batch, features), one)
    scale = array_at(t.scale, (s_steps, features), one)
    center = array_at(t.center, (k_steps, features), one)
    constant = array_at(t.constant, (k_steps, features), one)
    slope = array_at(t.slope, (k_steps, features), one)
    grad_y = array_at(t.grad_y, (steps, batch, features), one)
    for block in my_share(t, BLOCKS):
        for step in range(steps):
            tz, ts, tk = min(step, z_steps - 1), min(step, s_steps - 1), min(step, k_steps - 1)
            for b in rows_of(block, batch):
                _norm_backward_row(grad_y[step, b], z[tz, b], scale[ts], center[tk], constant[tk], slope[tk])
    return 0

"""The event-driven engine: one compiled call from observations to values.

Work follows the spikes: every layer keeps, per time step, the list of inputs that fired, and adds up their rows of the
weights. Inputs are taken in chunks, so that a row is fetched from memory once and serves all the steps in which its
neuron fired; rows are added four at a time, so that the sums are read and written a quarter as often.

The known neurons have loops of their own; of any other a small machine executes the equations.
"""

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from carebn.deploy.graph import CODINGS, NEURONS, SQUASHES, Array, Layer, PolicyGraph
from carebn.deploy.machine import first_values, program
from carebn.equations import OPERATIONS

njit: Any = numba.njit
CHUNK = 64
CONSTANTS = 6
LIF, DN, RELU, IF, OWN = 0, 1, 2, 3, 4
FAMILIES = {"lif": LIF, "clif": LIF, "dn": DN, "relu": RELU, "if": IF}
# all that is compiled stands in this file: numba does not notice when another one changes
(ADD, SUBTRACT, MULTIPLY, DIVIDE, NEGATIVE, ABSOLUTE, EXP, LOG, SQRT, HYPERBOLIC, MINIMUM, MAXIMUM, GREATER, AT_LEAST,
 NOT, AND, OR, WHERE, COPY) = range(len(OPERATIONS) + 1)  # fmt: skip
DIRECT, ANALOGUE, SPIKES = range(len(CODINGS))
NO_SQUASH, TANH, CLIP = range(len(SQUASHES))


class CompiledPolicy:
    """The network's numbers laid out for the kernel: all layers in one array each."""

    def __init__(self, network: PolicyGraph) -> None:
        encoder = network.encoder
        bounds = network.bounds
        readout = network.readout
        self._outputs = readout.values
        self._arguments = (
            encoder.offset,
            encoder.divisor,
            encoder.mean,
            encoder.precision,
            np.array([encoder.limit, encoder.threshold, encoder.subtract]),
            np.array([network.time_steps, CODINGS.index(encoder.coding), SQUASHES.index(encoder.squash)]),
            np.array([_plan(layer) for layer in network.layers]),
            np.array([_constants(layer) for layer in network.layers]),
            np.concatenate([program(layer.neuron) for layer in network.layers]),
            np.concatenate([first_values(layer.neuron) for layer in network.layers]),
            np.concatenate([layer.weight.ravel() for layer in network.layers]),
            np.concatenate([layer.bias.ravel() for layer in network.layers]),
            np.concatenate([np.empty(0) if layer.scale is None else layer.scale.ravel() for layer in network.layers]),
            readout.weight,
            readout.bias,
            readout.share,
            readout.kind == "furthest",
            np.empty((0, 0)) if bounds is None else np.stack([bounds.middle, bounds.reach, bounds.low, bounds.high]),
        )

    def values(self, obs: NDArray[np.float32]) -> Array:
        out = np.empty((len(obs), self._outputs))
        _decide(obs, *self._arguments, out)
        return out


def _plan(layer: Layer) -> tuple[int, ...]:
    scale_steps = 0 if layer.scale is None else len(layer.scale)
    family = FAMILIES[layer.neuron.kind] if layer.neuron.own is None else OWN
    lines, registers = len(program(layer.neuron)), len(first_values(layer.neuron))
    return layer.inputs, layer.outputs, family, len(layer.bias), scale_steps, lines, registers


def _constants(layer: Layer) -> list[float]:
    """In the neuron's order; a LIF is a CLIF whose current decays at once."""
    values = [layer.neuron[name] for name in NEURONS.get(layer.neuron.kind, ())]
    if layer.neuron.kind == "lif":
        values = [0.0, *values]
    return values + [0.0] * (CONSTANTS - len(values))


# Rows are named by number, not cut out: making an array for a row takes longer than adding it.


@njit(cache=True, inline="always")
def _add_four(z: Any, t: int, weight: Any, a: int, b: int, c: int, d: int) -> None:
    for f in range(weight.shape[1]):
        z[t, f] += (weight[a, f] + weight[b, f]) + (weight[c, f] + weight[d, f])


@njit(cache=True, inline="always")
def _add_two(z: Any, t: int, weight: Any, a: int, b: int) -> None:
    for f in range(weight.shape[1]):
        z[t, f] += weight[a, f] + weight[b, f]


@njit(cache=True, inline="always")
def _add_one(z: Any, t: int, weight: Any, a: int) -> None:
    for f in range(weight.shape[1]):
        z[t, f] += weight[a, f]


@njit(cache=True, inline="always")
def _add_scaled(z: Any, t: int, weight: Any, a: int, factor: float) -> None:
    for f in range(weight.shape[1]):
        z[t, f] += factor * weight[a, f]


@njit(cache=True)
def _add_rows(x: Any, steps: int, weight: Any, z: Any, fired: Any) -> None:
    """z [T, outputs] += x [T, inputs] @ weight for spikes x."""
    inputs = weight.shape[0]
    for start in range(0, inputs, CHUNK):
        stop = min(start + CHUNK, inputs)
        for t in range(steps):
            count = 0
            for j in range(start, stop):
                fired[count] = j
                count += x[t, j] != 0
            k = 0
            while k + 4 <= count:
                _add_four(z, t, weight, fired[k], fired[k + 1], fired[k + 2], fired[k + 3])
                k += 4
            if k + 2 <= count:
                _add_two(z, t, weight, fired[k], fired[k + 1])
                k += 2
            if k < count:
                _add_one(z, t, weight, fired[k])


@njit(cache=True)
def _add_values(x: Any, steps: int, weight: Any, z: Any) -> None:
    """z [T, outputs] += x [T, inputs] @ weight for real x; zeros cost nothing."""
    for j in range(weight.shape[0]):
        for t in range(steps):
            if x[t, j] != 0:
                _add_scaled(z, t, weight, j, x[t, j])


@njit(cache=True)
def _encode(obs: Any, offset: Any, divisor: Any, mean: Any, precision: Any, numbers: Any, plan: Any, x: Any) -> None:
    limit, threshold, subtract = numbers
    steps, coding, squash = plan
    population = mean.shape[1]
    # a stimulation below threshold/T never fires, so beyond this distance its exponential need not be known
    silent = np.log(steps / threshold) + 1e-6 if coding == SPIKES and threshold > 0 else np.inf
    x[:] = 0.0
    for i in range(obs.size):
        s = (np.float64(obs[i]) - offset[i]) / divisor[i]
        if squash == TANH:
            s = np.tanh(s)
        elif squash == CLIP:
            s = min(max(s, -limit), limit)
        if coding == DIRECT:
            x[0, i] = s
        for j in range(population):
            u = (s - mean[i, j]) * precision[i, j]
            distance = u * u * 0.5
            if distance > silent:
                continue
            a = np.exp(-distance)
            if coding == ANALOGUE:
                x[0, i * population + j] = a
            else:
                v = 0.0
                for t in range(steps):
                    v = v + a
                    if v > threshold:
                        x[t, i * population + j] = 1.0
                        v = v - subtract


@njit(cache=True)
def _lif_step(current: Any, c: Any, v: Any, out: Any, p: Any) -> None:
    for f in range(current.size):
        c[f] = p[0] * c[f] + current[f]
        h = p[1] * v[f] + c[f]
        fired = h > p[2]
        out[f] = 1.0 if fired else 0.0
        v[f] = 0.0 if fired else h


@njit(cache=True)
def _dn_step(current: Any, c: Any, v: Any, u: Any, out: Any, p: Any) -> None:
    for f in range(current.size):
        c[f] = p[0] * c[f] + current[f]
        fired = v[f] > p[1]
        v_reset = p[4] if fired else v[f]
        u_reset = u[f] + (p[5] if fired else 0.0)
        v[f] = v_reset + (v_reset * v_reset - v_reset - u_reset + c[f])
        u[f] = u_reset + (p[2] * v_reset - p[3] * u_reset)
        out[f] = 1.0 if v[f] > p[1] else 0.0


@njit(cache=True)
def _if_step(current: Any, v: Any, out: Any, p: Any) -> None:
    for f in range(current.size):
        v[f] += current[f]
        fired = v[f] > p[0]
        out[f] = 1.0 if fired else 0.0
        if fired:
            v[f] -= p[0]


@njit(cache=True, error_model="numpy")
def _machine_step(program: Any, registers: Any, size: int) -> None:
    """The equations of a layer's neurons, one operation after the other."""
    for k in range(len(program)):
        operation = program[k, 0]
        out, a, b, c = (registers[program[k, 1]], registers[program[k, 2]], registers[program[k, 3]],
                        registers[program[k, 4]])  # fmt: skip
        for f in range(size):
            if operation == ADD:
                out[f] = a[f] + b[f]
            elif operation == SUBTRACT:
                out[f] = a[f] - b[f]
            elif operation == MULTIPLY:
                out[f] = a[f] * b[f]
            elif operation == DIVIDE:
                out[f] = a[f] / b[f]
            elif operation == NEGATIVE:
                out[f] = -a[f]
            elif operation == ABSOLUTE:
                out[f] = abs(a[f])
            elif operation == EXP:
                out[f] = np.exp(a[f])
            elif operation == LOG:
                out[f] = np.log(a[f])
            elif operation == SQRT:
                out[f] = np.sqrt(a[f])
            elif operation == HYPERBOLIC:
                out[f] = np.tanh(a[f])
            elif operation == MINIMUM:
                out[f] = min(a[f], b[f])
            elif operation == MAXIMUM:
                out[f] = max(a[f], b[f])
            elif operation == GREATER:
                out[f] = 1.0 if a[f] > b[f] else 0.0
            elif operation == AT_LEAST:
                out[f] = 1.0 if a[f] >= b[f] else 0.0
            elif operation == NOT:
                out[f] = 1.0 - a[f]
            elif operation == AND:
                out[f] = a[f] * b[f]
            elif operation == OR:
                out[f] = max(a[f], b[f])
            elif operation == WHERE:
                out[f] = b[f] if a[f] != 0 else c[f]
            else:
                out[f] = a[f]


@njit(cache=True)
def _relu_step(current: Any, out: Any) -> None:
    for f in range(current.size):
        out[f] = max(current[f], 0.0)


@njit(cache=True)
def _scale_and_add(z: Any, scale: Any, bias: Any) -> None:
    for f in range(z.size):
        z[f] = z[f] * scale[f] + bias[f]


@njit(cache=True)
def _read_sum(last: Any, weight: Any, bias: Any, share: Any, out: Any, b: int) -> None:
    out[b] = bias
    for f in range(len(weight)):
        total = 0.0
        for t in range(len(share)):
            total += share[t] * last[t, f]
        if total != 0:
            _add_scaled(out, b, weight, f, total)


@njit(cache=True)
def _read_furthest(last: Any, weight: Any, bias: Any, steps: int, potential: Any, out: Any, b: int) -> None:
    potential[:] = 0.0
    out[b] = 0.0
    for t in range(steps):
        potential[0] += bias
        for f in range(len(weight)):
            if last[t, f] != 0:
                _add_scaled(potential, 0, weight, f, last[t, f])
        for o in range(len(bias)):
            if abs(potential[0, o]) > abs(out[b, o]):
                out[b, o] = potential[0, o]


@njit(cache=True, nogil=True)
def _decide(
    obs: Any,
    offset: Any,
    divisor: Any,
    mean: Any,
    precision: Any,
    numbers: Any,
    plan: Any,
    layers: Any,
    constants: Any,
    programs: Any,
    starts: Any,
    weights: Any,
    biases: Any,
    scales: Any,
    readout_weight: Any,
    readout_bias: Any,
    share: Any,
    furthest: bool,
    bounds: Any,
    out: Any,
) -> None:
    steps, coding, _ = plan
    outputs = out.shape[1]
    widest = layers[0, 0]
    for i in range(len(layers)):
        widest = max(widest, layers[i, 1])
    signals = np.empty((2, steps, widest))
    currents = np.empty((steps, widest))
    state = np.empty((3, widest))
    registers = np.empty((layers[:, 6].max(), widest))
    potential = np.empty((1, outputs))
    fired = np.empty(CHUNK + 1, np.uint64)  # unsigned: a negative index would have to be looked for
    for b in range(len(obs)):
        _encode(obs[b], offset, divisor, mean, precision, numbers, plan, signals[0])
        in_steps = steps if coding == SPIKES else 1
        spiking = coding == SPIKES
        at_weight, at_bias, at_scale, at_line, at_register = 0, 0, 0, 0, 0
        for i in range(len(layers)):
            inputs, size, family, bias_steps, scale_steps, lines, places = layers[i]
            p = constants[i]
            weight = weights[at_weight : at_weight + inputs * size].reshape(inputs, size)
            bias = biases[at_bias : at_bias + bias_steps * size].reshape(bias_steps, size)
            scale = scales[at_scale : at_scale + scale_steps * size].reshape(scale_steps, size)
            at_weight, at_bias, at_scale = at_weight + weight.size, at_bias + bias.size, at_scale + scale.size
            own = programs[at_line : at_line + lines]
            for k in range(places):
                registers[k, :size] = starts[at_register + k]
            at_line, at_register = at_line + lines, at_register + places
            x, y = signals[i % 2], signals[(i + 1) % 2]
            currents[:] = 0.0
            if spiking:
                _add_rows(x, in_steps, weight, currents, fired)
            else:
                _add_values(x, in_steps, weight, currents)
            for t in range(in_steps, steps):  # the same input at every step was multiplied once
                currents[t] = currents[0]
            state[:] = 0.0
            c, v, u = state[0, :size], state[1, :size], state[2, :size]
            if family == IF:
                v[:] = p[1]
            for t in range(steps):
                current = currents[t, :size]
                if scale_steps > 0:
                    _scale_and_add(current, scale[t], bias[min(t, bias_steps - 1)])
                else:
                    _add_one(currents, t, bias, min(t, bias_steps - 1))
                if family == LIF:
                    _lif_step(current, c, v, y[t, :size], p)
                elif family == DN:
                    _dn_step(current, c, v, u, y[t, :size], p)
                elif family == IF:
                    _if_step(current, v, y[t, :size], p)
                elif family == OWN:
                    registers[0, :size] = current
                    _machine_step(own, registers, size)
                    y[t, :size] = registers[0, :size]
                else:
                    _relu_step(current, y[t, :size])
            in_steps = steps
            spiking = family != RELU
        last = signals[len(layers) % 2]
        if furthest:
            _read_furthest(last, readout_weight, readout_bias, steps, potential, out, b)
        else:
            _read_sum(last, readout_weight, readout_bias, share, out, b)
        if bounds.size > 0:
            for o in range(outputs):
                action = bounds[0, o] + bounds[1, o] * np.tanh(out[b, o])
                out[b, o] = min(max(action, bounds[2, o]), bounds[3, o])

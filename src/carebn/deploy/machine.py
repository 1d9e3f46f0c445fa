"""A small machine that executes the equations of any neuron, compiled once for all of them.

Its registers are rows with a number for each neuron of a layer; an operation goes over whole rows.
"""

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from carebn.deploy.graph import Array, Neuron
from carebn.equations import OPERATIONS

njit: Any = numba.njit
(ADD, SUBTRACT, MULTIPLY, DIVIDE, NEGATIVE, ABSOLUTE, EXP, LOG, SQRT, HYPERBOLIC, MINIMUM, MAXIMUM, GREATER, AT_LEAST,
 NOT, AND, OR, WHERE, COPY) = range(len(OPERATIONS) + 1)  # fmt: skip


def program(neuron: Neuron) -> NDArray[np.int64]:
    """For the machine, [lines, 5]: an operation, where its result goes, its operands. The last lines copy the spike to
    register 0, which held the current, and every state to a free register, then all of them back."""
    lines: list[list[int]] = []
    if neuron.own is not None:
        places, names = neuron.own.registers, list(OPERATIONS)
        results, states = len(places.given), len(places.after)
        free = results + len(places.lines)
        lines = [[names.index(name), results + i, *operands] for i, (name, operands) in enumerate(places.lines)]
        lines += [[COPY, free + i, place] for i, place in enumerate(places.after)]
        lines += [[COPY, 0, places.spike]]
        lines += [[COPY, 1 + i, free + i] for i in range(states)]
    return np.array([line + [0] * (5 - len(line)) for line in lines], np.int64).reshape(-1, 5)


def first_values(neuron: Neuron) -> Array:
    """Of every register at the start of a decision."""
    if neuron.own is None:
        return np.empty(0)
    places, states = neuron.own.registers, len(neuron.own.start)
    given = [*neuron.own.start.values(), *places.given[1 + states :]]
    return np.array([0.0, *map(neuron.value, given), *[0.0] * (len(places.lines) + states)])


@njit(cache=True)
def machine_step(program: Any, registers: Any, size: int) -> None:
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
                out[f] = a[f] / b[f] if b[f] != 0 else a[f] * np.inf
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

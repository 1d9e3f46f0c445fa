"""The equations of a neuron as numbers, for the machine in the compiled engine that executes them.

Its registers are rows with a number for each neuron of a layer; an operation goes over whole rows.
"""

import numpy as np
from numpy.typing import NDArray

from carebn.deploy.graph import Array, Neuron
from carebn.equations import OPERATIONS

COPY = len(OPERATIONS)  # the others have their places in OPERATIONS as numbers


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

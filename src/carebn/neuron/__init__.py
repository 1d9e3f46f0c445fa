"""Spiking neurons: pure steps, thin modules."""

from collections.abc import Callable
from typing import Any

from carebn.errors import unknown_name
from carebn.neuron.base import Neuron
from carebn.neuron.dn import DN, DNAuthors, DNState
from carebn.neuron.lif import CLIF, LIF, CLIFState, LIFState
from carebn.neuron.surrogate import Rectangle, Sigmoid, Surrogate, Tanh, Triangle

#: Slopes that stand for the derivative of a spike, by the names that ``--surrogate`` takes.
SURROGATES: dict[str, Callable[[], Surrogate]] = {
    "rectangle": Rectangle,
    "triangle": Triangle,
    "sigmoid": Sigmoid,
    "tanh": Tanh,
}
#: Neurons by the names that ``--neuron`` takes; those of your own may be added.
NEURONS: dict[str, Callable[..., Neuron]] = {
    "lif": LIF,
    "clif": CLIF,
    "dn": DN,
    "dn-authors": DNAuthors,
}


def make_neuron(name: str | Neuron, *, surrogate: str | Surrogate | None = None, **options: Any) -> Neuron:
    """The neuron of that name, e.g. ``make_neuron("clif", surrogate="triangle")``; a neuron is handed back as it is."""
    if isinstance(name, Neuron):
        return name
    if name not in NEURONS:
        raise ValueError(unknown_name("neuron", name, NEURONS))
    if isinstance(surrogate, str):
        if surrogate not in SURROGATES:
            raise ValueError(unknown_name("surrogate", surrogate, SURROGATES))
        surrogate = SURROGATES[surrogate]()
    return NEURONS[name](surrogate=surrogate, **options)


__all__ = [
    "CLIF",
    "DN",
    "LIF",
    "NEURONS",
    "SURROGATES",
    "CLIFState",
    "DNAuthors",
    "DNState",
    "LIFState",
    "Neuron",
    "Rectangle",
    "Sigmoid",
    "Surrogate",
    "Tanh",
    "Triangle",
    "make_neuron",
]

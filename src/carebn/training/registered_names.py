"""Options that take a registered name: their help follows what is registered when it is asked for."""

from carebn.algorithm import ALGORITHMS
from carebn.neuron import NEURONS


def _by_kind_of_action() -> str:
    kinds: dict[bool, list[str]] = {False: [], True: []}
    for name, algorithm in ALGORITHMS.items():
        kinds[algorithm.discrete].append(name)
    return f"Learning algorithm. For continuous actions: {', '.join(kinds[False])}; discrete: {', '.join(kinds[True])}."


def _by_neuron() -> str:
    owners: dict[str, list[str]] = {}
    for name, algorithm in ALGORITHMS.items():
        owners.setdefault(algorithm.neuron, []).append(name)
    of_algorithms = ", ".join(f"{neuron} ({', '.join(names)})" for neuron, names in owners.items())
    return f"What fires. Default: the method's, else {of_algorithms}."


ALGO = {"names": ALGORITHMS, "says": _by_kind_of_action}
NEURON = {"names": NEURONS, "says": _by_neuron}

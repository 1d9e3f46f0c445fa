"""What a decision costs: operations counted, spike by spike, and priced.

A spike that meets n synapses costs n synaptic operations, one addition of a weight each. A layer whose input is not
spikes costs a multiplication and an addition per synapse, as in an ordinary network:

    synaptic operations of a layer   Σ_t Σ_i S_t,i · fan-out          (biases are not synapses)
    ANN counterpart                  MACs = Σ_layers inputs · outputs;  FLOPs = 2 · MACs

Connections inside a layer (ILC-SAN's) are synapses too: a spike meets, one step later, those neurons of its own
population that it is connected with. Spikes of the last step meet nobody, because the next decision starts anew.

Prices are in picojoule. The ``paper`` ones (12.5 pJ per FLOP, 77 fJ per synaptic operation) and those of a 45 nm chip
(multiplication 3.7, addition 0.9: 4.6 per MAC, 0.9 per synaptic operation) disagree: a MAC is worth 325 synaptic
operations by the first and 5 by the second. So both are always shown.

What the paper leaves out is counted apart, as `overhead`: the encoder, the membranes and the decoder. There, every
multiplication and addition of the equations is counted; functions (exp, tanh, ...) count as one multiplication each,
which is a lower bound; comparisons, resets and other choices are free. A normaliser is folded into the weights and
costs nothing, unless it differs from step to step: then it is a multiplication per neuron and step.

A converted network multiplies its analogue input once per decision. Every spike of all its T steps is counted, those of
the last layer before the read-out begins as well: they are sent all the same. In `overhead`, per neuron:

    membranes           V + I                                  an addition at every step
    resets              V − θ                                  an addition at every spike
    biases              in the constant current of the first layer once, in the other layers at every step
    carried potentials  with a residual, V(T) − V(0), θ·n, α·r, θ/2 + α·r: two of each, once
    output              of the read-out: its biases; of an actor also tanh, middle + reach · tanh
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from torch import nn

from carebn.conversion import Converted, ConvertedActor
from carebn.equations import known_kind
from carebn.measure.spikes import Decision
from carebn.network import ANNActor, ANNQNetwork, SpikingActor, SpikingLayer, SpikingQNetwork
from carebn.network.intralayer import CONNECTIONS, IntralayerSpikingLayer
from carebn.neuron import Neuron
from carebn.neuron.tracing import equations_of
from carebn.norm import Norm
from carebn.paper.facts import FLOP_PICOJOULE, SYNAPTIC_PICOJOULE
from carebn.paper.tables import ENERGY


class Prices(NamedTuple):
    """In pJ."""

    multiplication: float
    addition: float
    synaptic: float
    source: str


PRICES = {
    "paper": Prices(
        *(FLOP_PICOJOULE, FLOP_PICOJOULE, SYNAPTIC_PICOJOULE),
        f"{FLOP_PICOJOULE:g} pJ per FLOP, 2 FLOP per MAC, {1000 * SYNAPTIC_PICOJOULE:g} fJ per synaptic operation",
    ),
    "45nm": Prices(3.7, 0.9, 0.9, "4.6 pJ per MAC, 0.9 pJ per synaptic operation, 45 nm"),
}


class Operations(NamedTuple):
    """Per decision; a mean over decisions, so not always whole."""

    multiplications: float = 0.0
    additions: float = 0.0
    synaptic: float = 0.0

    def plus(self, other: "Operations") -> "Operations":
        return Operations(*(a + b for a, b in zip(self, other, strict=True)))

    def nanojoule(self, prices: Prices) -> float:
        picojoule = (
            self.multiplications * prices.multiplication
            + self.additions * prices.addition
            + self.synaptic * prices.synaptic
        )
        return picojoule / 1000

    @property
    def flops(self) -> float:
        return self.multiplications + self.additions


def total(operations: Sequence[Operations]) -> Operations:
    result = Operations()
    for each in operations:
        result = result.plus(each)
    return result


def macs(number: float) -> Operations:
    return Operations(multiplications=number, additions=number)


@dataclass(frozen=True)
class Item:
    """One line of the bill: the synapses between two populations, or something else that computes."""

    name: str
    operations: Operations
    inputs: int = 0
    outputs: int = 0
    sender_spiking: bool = False
    sender_rate: float | None = None  # share of the senders and steps with a spike; analogue: other than zero
    sender_spikes: float | None = None  # per decision


@dataclass(frozen=True)
class Bill:
    synapses: list[Item]
    overhead: list[Item]

    @property
    def synaptic(self) -> Operations:
        return total([item.operations for item in self.synapses])

    @property
    def all(self) -> Operations:
        return total([item.operations for item in (*self.synapses, *self.overhead)])


# --- the ordinary network ---------------------------------------------------------------------------------------------


def ann_bill(obs_dim: int, hidden: Sequence[int], outputs: int, *, squashed: bool) -> Bill:
    """An ordinary ReLU network on the raw observation; ``squashed``: its output goes through tanh into bounds."""
    sizes = (obs_dim, *hidden, outputs)
    names = ["input", *(f"layer {i + 1}" for i in range(len(hidden))), "output"]
    synapses = [
        Item(f"{a} → {b}", macs(m * n), inputs=m, outputs=n)
        for (a, b), (m, n) in zip(pairwise(names), pairwise(sizes), strict=True)
    ]
    biases = Operations(additions=float(sum(sizes[1:])))
    return Bill(synapses, [Item("biases and output", biases.plus(_squash(outputs) if squashed else Operations()))])


def _squash(outputs: int) -> Operations:
    """tanh, then middle + reach · tanh."""
    return Operations(2 * outputs, outputs)


# --- the spiking network ----------------------------------------------------------------------------------------------

# What cancels in the equations of the dynamic neuron is not computed:
# λ_c·C + x; U + θ_s on a spike; V² − U + C; θ_v·V + (1 − θ_u)·U
FEWER = {"dn": Operations(4, 5)}


def _membrane(neuron: Neuron) -> Operations:
    """Of one neuron in one step, with its reset as a selection."""
    try:
        equations, _ = equations_of(neuron)
    except ValueError as error:
        raise ValueError(f"the cost of a {type(neuron).__name__} neuron is not known: {error}") from error
    counted = Operations(equations.multiplications, equations.additions)
    return FEWER.get(known_kind(equations) or "", counted)


def _differs_by_step(norm: nn.Module) -> bool:
    return isinstance(norm, Norm) and norm.moving_scale_shift()[0].ndim == 2


def _fan_out(layer: IntralayerSpikingLayer) -> int:
    """Neurons of its own population that a neuron is connected with."""
    kind = CONNECTIONS[layer.connections.mode]
    return (layer.connections.population - 1 if kind.lateral else 0) + (1 if kind.to_self else 0)


def _times(operations: Operations, factor: float) -> Operations:
    return Operations(*(x * factor for x in operations))


@dataclass
class Tally:
    """What was seen of one population."""

    spiking: bool
    active: int = 0  # spikes; analogue: values other than zero
    places: int = 0  # neurons × steps × decisions
    last: int = 0  # spikes of the last steps of decisions

    @property
    def rate(self) -> float:
        return self.active / self.places


@dataclass
class Count:
    """Adds up decisions; ``bill`` is their mean."""

    network: nn.Module
    decisions: int = 0
    tallies: dict[str, Tally] = field(default_factory=dict)  # by population, from the input on

    def add(self, decision: Decision) -> None:
        self.decisions += len(decision.action)
        for population in decision.populations:
            tally = self.tallies.setdefault(population.name, Tally(population.spiking))
            tally.active += population.active
            tally.places += population.places
            tally.last += int(population.values[-1].sum(dtype=np.float64)) if population.spiking else 0

    def _synapses(self, sender: str, receiver: str, inputs: int, outputs: int) -> Item:
        name, tally = f"{sender} → {receiver}", self.tallies[sender]
        if not tally.spiking:  # the same at every step, so multiplied once
            return Item(name, macs(inputs * outputs), inputs, outputs, False, tally.rate)
        spikes = tally.active / self.decisions
        return Item(name, Operations(synaptic=spikes * outputs), inputs, outputs, True, tally.rate, spikes)

    def _within(self, name: str, layer: IntralayerSpikingLayer) -> Item:
        """Of a layer's populations to themselves."""
        tally, neurons = self.tallies[name], layer.linear.out_features
        spikes = (tally.active - tally.last) / self.decisions
        places = neurons * (layer.time_steps - 1)
        operations = Operations(synaptic=spikes * _fan_out(layer))
        return Item(f"{name} → itself", operations, neurons, neurons, True, spikes / max(places, 1), spikes)

    def bill(self) -> Bill:
        if self.decisions == 0:
            raise ValueError("no decision was counted, so there is nothing to average")
        network = self.network
        if isinstance(network, (ANNActor, ANNQNetwork)):
            return self._ordinary(network)
        if isinstance(network, Converted):
            return self._converted(network)
        assert isinstance(network, (SpikingActor, SpikingQNetwork))
        layers = [layer for layer in network.layers if isinstance(layer, SpikingLayer)]
        names = list(self.tallies)
        synapses = [
            self._synapses(sender, receiver, layer.linear.in_features, layer.linear.out_features)
            for (sender, receiver), layer in zip(pairwise(names), layers, strict=True)
        ]
        if isinstance(layers[-1], IntralayerSpikingLayer):
            synapses.append(self._within(names[-1], layers[-1]))
        overhead = [Item("membranes", total([self._membranes(layer) for layer in layers]))]
        if isinstance(network, SpikingActor):
            return Bill(synapses, [self._encoder(network), *overhead, self._decoder(network, names[-1])])
        readout = network.readout
        synapses.append(self._synapses(names[-1], "Q", readout.in_features, readout.out_features))
        return Bill(synapses, [*overhead, Item("read-out biases", Operations(additions=readout.out_features))])

    def _ordinary(self, network: ANNActor | ANNQNetwork) -> Bill:
        linears = [m for m in network.body if isinstance(m, nn.Linear)]
        hidden = [m.out_features for m in linears]
        bill = ann_bill(
            linears[0].in_features, hidden, network.head.out_features, squashed=isinstance(network, ANNActor)
        )
        rates = [tally.rate for tally in self.tallies.values()]
        synapses = [
            Item(item.name, item.operations, item.inputs, item.outputs, False, rate)
            for item, rate in zip(bill.synapses, rates, strict=True)
        ]
        return Bill(synapses, bill.overhead)

    def _converted(self, network: Converted) -> Bill:
        linears = [layer.linear for layer in network.body.parts()]
        steps, names = network.simulation.time_steps, [*self.tallies, "output"]
        synapses = [
            self._synapses(sender, receiver, linear.in_features, linear.out_features)
            for (sender, receiver), linear in zip(pairwise(names), (*linears, network.head), strict=True)
        ]
        spikes = sum(tally.active for tally in self.tallies.values() if tally.spiking) / self.decisions
        first, *others = [linear.out_features for linear in linears]
        neurons, outputs = first + sum(others), network.head.out_features
        output = Operations(additions=outputs)
        overhead = [
            Item("membranes", Operations(additions=steps * neurons)),
            Item("resets", Operations(additions=spikes)),
            Item("biases", Operations(additions=first + steps * sum(others))),
            Item("output", output.plus(_squash(outputs)) if isinstance(network, ConvertedActor) else output),
        ]
        if network.simulation.residual != "none":
            overhead.append(Item("carried potentials", macs(2 * neurons)))
        return Bill(synapses, overhead)

    @staticmethod
    def _membranes(layer: SpikingLayer) -> Operations:
        """With the layer's bias (or the normaliser's shift), and a scale where it differs from step to step."""
        entry = Operations(1, 1) if _differs_by_step(layer.norm) else Operations(additions=1)
        return _times(_membrane(layer.neuron).plus(entry), layer.time_steps * layer.linear.out_features)

    @staticmethod
    def _encoder(network: SpikingActor) -> Item:
        encoder = network.encoder
        n = encoder.out_features
        each = {"tanh": Operations(1), "zscore": Operations(1, 1), "raw": Operations()}  # tanh; (x − μ)/σ; nothing
        squash = _times(each[encoder.observation], encoder.obs_dim)
        fields = Operations(4 * n, n)  # (s − μ) · 1/σ, squared, halved, exp
        fire = {"deterministic": Operations(additions=2 * n), "poisson": Operations(multiplications=n)}
        per_step = fire.get(encoder.coding, Operations())
        return Item("encoder", total([squash, fields, _times(per_step, encoder.time_steps)]), encoder.obs_dim, n)

    def _decoder(self, network: SpikingActor, sender: str) -> Item:
        """A spike meets one synapse; then the bias, tanh, and middle + reach · tanh. A bias is added once, unless the
        potential matters at every step; for their mean, the potentials are added up too."""
        decoder, tally, steps = network.decoder, self.tallies[sender], network.encoder.time_steps
        outputs, spikes = decoder.outputs, tally.active / self.decisions
        read = Operations(
            additions=outputs * {"max-membrane": steps, "mean-membrane": 2 * steps}.get(decoder.readout, 1)
        )
        operations = total([read, _squash(outputs), Operations(synaptic=spikes)])
        name, inputs = f"{sender} → decoder", outputs * decoder.population
        return Item(name, operations, inputs, outputs, True, tally.rate, spikes)


def counterpart(network: nn.Module) -> Bill:
    """The ordinary network for the same task, with the same hidden sizes."""
    if isinstance(network, SpikingActor):
        hidden = [layer.linear.out_features for layer in list(network.layers)[:-1] if isinstance(layer, SpikingLayer)]
        return ann_bill(network.encoder.obs_dim, hidden, network.decoder.outputs, squashed=True)
    if isinstance(network, SpikingQNetwork):
        hidden = [layer.linear.out_features for layer in network.layers if isinstance(layer, SpikingLayer)]
        return ann_bill(network.obs_dim, hidden, network.readout.out_features, squashed=False)
    if isinstance(network, Converted):
        hidden = [layer.linear.out_features for layer in network.body.parts()]
        squashed = isinstance(network, ConvertedActor)
        return ann_bill(network.inputs, hidden, network.head.out_features, squashed=squashed)
    raise ValueError(f"a {type(network).__name__} is not a spiking network")


# --- the paper's table ------------------------------------------------------------------------------------------------

PAPER_NJ = {  # energy per inference with CLIF neurons and TD3, in nJ: ordinary network, spiking network with CaRe-BN
    env_id: (ann.mean, snn.mean)
    for env_id, ann, snn in zip(ENERGY.envs, *(row.published for row in ENERGY.rows), strict=True)
}


def as_json(bill: Bill) -> dict[str, Any]:
    def item(each: Item) -> dict[str, Any]:
        row: dict[str, Any] = {"name": each.name}
        if each.inputs:
            row |= {"inputs": each.inputs, "outputs": each.outputs}
        if each.sender_rate is not None:
            row |= {"sender": "spikes" if each.sender_spiking else "analogue", "sender_rate": each.sender_rate}
        if each.sender_spikes is not None:
            row["sender_spikes"] = each.sender_spikes
        return row | _priced(each.operations)

    return {
        "synapses": [item(each) for each in bill.synapses],
        "overhead": [item(each) for each in bill.overhead],
        "synapses_total": _priced(bill.synaptic),
        "total": _priced(bill.all),
    }


def _priced(operations: Operations) -> dict[str, Any]:
    return {
        **operations._asdict(),
        "nanojoule": {name: operations.nanojoule(prices) for name, prices in PRICES.items()},
    }

"""What a decision costs: operations counted, spike by spike, and priced.

A spike that meets n synapses costs n synaptic operations, one addition of a weight each. A layer whose input is not
spikes costs a multiplication and an addition per synapse, as in an ordinary network:

    synaptic operations of a layer   Σ_t Σ_i S_t,i · fan-out          (biases are not synapses)
    ANN counterpart                  MACs = Σ_layers inputs · outputs;  FLOPs = 2 · MACs

Connections inside a layer (ILC-SAN's) are synapses too: a spike meets, one step later, those neurons of its own
population that it is connected with. Spikes of the last step meet nobody, because the next decision starts anew.

Price lists (``prices``) disagree: a MAC is worth 325 synaptic operations by the paper's and 5 by that of a 45 nm chip.
So all are always shown.

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

What is moved to and from memory is counted beside it, as `traffic`. Sums stay in registers, so the accounts are small:

    a spike              reads fan-out weights; its address, ⌈log2 of its population⌉ bits, is written and read
    a membrane           every state, at every step but the first read and at every step but the last written
    a bias               a weight read per neuron and step, a scale that differs from step to step another
    the encoder          its fields once; a stimulation written once, then read at every step but the first
    a constant current   of an analogue input: written once, read at every step
    an ordinary layer    every weight once, every activation written once and read once
"""

import math
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
from torch import nn

from carebn.conversion import Converted, ConvertedActor
from carebn.equations import Equations, known_kind
from carebn.measure.bill import Bill, Item, ann_bill, squash
from carebn.measure.prices import Operations, Size, Traffic, macs, total
from carebn.measure.spikes import Decision
from carebn.network import ANNActor, ANNQNetwork, SpikingActor, SpikingLayer, SpikingQNetwork
from carebn.network.intralayer import CONNECTIONS, IntralayerSpikingLayer
from carebn.neuron import Neuron
from carebn.neuron.tracing import equations_of
from carebn.norm import Norm

# --- the spiking network ----------------------------------------------------------------------------------------------

# What cancels in the equations of the dynamic neuron is not computed:
# λ_c·C + x; U + θ_s on a spike; V² − U + C; θ_v·V + (1 − θ_u)·U
FEWER = {"dn": Operations(4, 5)}


def _equations(neuron: Neuron) -> Equations:
    try:
        return equations_of(neuron)[0]
    except ValueError as error:
        raise ValueError(f"the cost of a {type(neuron).__name__} neuron is not known: {error}") from error


def _membrane(neuron: Neuron) -> Operations:
    """Of one neuron in one step, with its reset as a selection."""
    equations = _equations(neuron)
    counted = Operations(equations.multiplications, equations.additions)
    return FEWER.get(known_kind(equations) or "", counted)


def _states(neuron: Neuron) -> int:
    """Words that a neuron keeps from step to step. What is only ever 0 or 1 is none."""
    equations = _equations(neuron)
    return len(set(equations.start) - equations.booleans)


def _kept(words: float, steps: int) -> float:
    """Reads and writes of what starts at zero and is not kept after the last step."""
    return 2 * (steps - 1) * words


def _address_bits(spikes: float, neurons: int) -> float:
    """Written by the sender, read by the receiver."""
    return 2 * spikes * math.ceil(math.log2(max(neurons, 2)))


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
    active: float = 0  # spikes; analogue: values other than zero
    places: int = 0  # neurons × steps × decisions
    last: float = 0  # spikes of the last steps of decisions

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

    def at_rate(self, rate: float) -> "Count":
        """As if every spiking population had fired at this rate."""
        steps = self.time_steps
        tallies = {
            name: replace(t, active=rate * t.places, last=rate * t.places / steps) if t.spiking else t
            for name, t in self.tallies.items()
        }
        return Count(self.network, self.decisions, tallies)

    @property
    def time_steps(self) -> int:
        network = self.network
        if isinstance(network, Converted):
            return network.simulation.time_steps
        if isinstance(network, SpikingActor):
            return network.encoder.time_steps
        return int(network.layers[0].time_steps) if isinstance(network, SpikingQNetwork) else 1  # type: ignore[arg-type]

    def _synapses(self, sender: str, receiver: str, inputs: int, outputs: int) -> Item:
        name, tally = f"{sender} → {receiver}", self.tallies[sender]
        if not tally.spiking:  # the same at every step, so multiplied once, and the current kept
            moved = Traffic(inputs * outputs, outputs * (1 + self.time_steps), inputs)
            return Item(name, macs(inputs * outputs), inputs, outputs, False, tally.rate, traffic=moved)
        spikes = tally.active / self.decisions
        moved = Traffic(weights=spikes * outputs, address_bits=_address_bits(spikes, inputs))
        return Item(name, Operations(synaptic=spikes * outputs), inputs, outputs, True, tally.rate, spikes, moved)

    def _within(self, name: str, layer: IntralayerSpikingLayer) -> Item:
        """Of a layer's populations to themselves."""
        tally, neurons = self.tallies[name], layer.linear.out_features
        spikes = (tally.active - tally.last) / self.decisions
        places = neurons * (layer.time_steps - 1)
        operations = Operations(synaptic=spikes * _fan_out(layer))
        moved = Traffic(weights=operations.synaptic, address_bits=_address_bits(spikes, neurons))
        return Item(f"{name} → itself", operations, neurons, neurons, True, spikes / max(places, 1), spikes, moved)

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
        moved = Traffic()
        for layer in layers:
            moved = moved.plus(self._membrane_traffic(layer))
        overhead = [Item("membranes", total([self._membranes(layer) for layer in layers]), traffic=moved)]
        if isinstance(network, SpikingActor):
            return Bill(synapses, [self._encoder(network), *overhead, self._decoder(network, names[-1])])
        readout = network.readout
        synapses.append(self._synapses(names[-1], "Q", readout.in_features, readout.out_features))
        outputs = readout.out_features
        moved = Traffic(outputs, _kept(outputs, self.time_steps), outputs)
        return Bill(synapses, [*overhead, Item("read-out biases", Operations(additions=outputs), traffic=moved)])

    def _ordinary(self, network: ANNActor | ANNQNetwork) -> Bill:
        linears = [m for m in network.body if isinstance(m, nn.Linear)]
        hidden = [m.out_features for m in linears]
        bill = ann_bill(
            linears[0].in_features, hidden, network.head.out_features, squashed=isinstance(network, ANNActor)
        )
        rates = [tally.rate for tally in self.tallies.values()]
        synapses = [replace(item, sender_rate=rate) for item, rate in zip(bill.synapses, rates, strict=True)]
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
        end = output.plus(squash(outputs)) if isinstance(network, ConvertedActor) else output
        biases = first + steps * sum(others)
        overhead = [  # every neuron has a threshold of its own, and starts its potential from it
            Item("membranes", Operations(additions=steps * neurons),
                 traffic=Traffic(weights=steps * neurons, states=_kept(neurons, steps))),
            Item("resets", Operations(additions=spikes)),
            Item("biases", Operations(additions=biases), traffic=Traffic(weights=biases)),
            Item("output", end, traffic=Traffic(outputs, _kept(outputs, steps), outputs)),
        ]  # fmt: skip
        if network.simulation.residual != "none":
            overhead.append(Item("carried potentials", macs(2 * neurons), traffic=Traffic(states=2 * neurons)))
        return Bill(synapses, overhead)

    @staticmethod
    def _membranes(layer: SpikingLayer) -> Operations:
        """With the layer's bias (or the normaliser's shift), and a scale where it differs from step to step."""
        entry = Operations(1, 1) if _differs_by_step(layer.norm) else Operations(additions=1)
        return _times(_membrane(layer.neuron).plus(entry), layer.time_steps * layer.linear.out_features)

    @staticmethod
    def _membrane_traffic(layer: SpikingLayer) -> Traffic:
        neurons, steps = layer.linear.out_features, layer.time_steps
        entries = 2 if _differs_by_step(layer.norm) else 1
        return Traffic(weights=entries * neurons * steps, states=_kept(_states(layer.neuron) * neurons, steps))

    @staticmethod
    def _encoder(network: SpikingActor) -> Item:
        encoder = network.encoder
        n = encoder.out_features
        each = {"tanh": Operations(1), "zscore": Operations(1, 1), "raw": Operations()}  # tanh; (x − μ)/σ; nothing
        squash = _times(each[encoder.observation], encoder.obs_dim)
        fields = Operations(4 * n, n)  # (s − μ) · 1/σ, squared, halved, exp
        fire = {"deterministic": Operations(additions=2 * n), "poisson": Operations(multiplications=n)}
        per_step = fire.get(encoder.coding, Operations())
        operations = total([squash, fields, _times(per_step, encoder.time_steps)])
        states = {"deterministic": n * encoder.time_steps + _kept(n, encoder.time_steps), "analogue": 0.0}
        weights = 2 * n + (2 * encoder.obs_dim if encoder.observation == "zscore" else 0)
        moved = Traffic(weights, states.get(encoder.coding, n * encoder.time_steps), encoder.obs_dim)
        return Item("encoder", operations, encoder.obs_dim, n, traffic=moved)

    def _decoder(self, network: SpikingActor, sender: str) -> Item:
        """A spike meets one synapse; then the bias, tanh, and middle + reach · tanh. A bias is added once, unless the
        potential matters at every step; for their mean, the potentials are added up too."""
        decoder, tally, steps = network.decoder, self.tallies[sender], network.encoder.time_steps
        outputs, spikes = decoder.outputs, tally.active / self.decisions
        read = Operations(
            additions=outputs * {"max-membrane": steps, "mean-membrane": 2 * steps}.get(decoder.readout, 1)
        )
        operations = total([read, squash(outputs), Operations(synaptic=spikes)])
        name, inputs = f"{sender} → decoder", outputs * decoder.population
        states = _kept(outputs, steps) * (2 if decoder.readout == "mean-membrane" else 1)
        moved = Traffic(outputs + spikes, states, outputs, _address_bits(spikes, inputs))
        return Item(name, operations, inputs, outputs, True, tally.rate, spikes, moved)


def shape(network: nn.Module) -> tuple[int, list[int], int]:
    """Observation, hidden sizes and outputs of the ordinary network for the same task."""
    if isinstance(network, SpikingActor):
        hidden = [layer.linear.out_features for layer in list(network.layers)[:-1] if isinstance(layer, SpikingLayer)]
        return network.encoder.obs_dim, hidden, network.decoder.outputs
    if isinstance(network, SpikingQNetwork):
        hidden = [layer.linear.out_features for layer in network.layers if isinstance(layer, SpikingLayer)]
        return network.obs_dim, hidden, network.readout.out_features
    if isinstance(network, Converted):
        return network.inputs, [layer.linear.out_features for layer in network.body.parts()], network.head.out_features
    raise ValueError(f"a {type(network).__name__} is not a spiking network")


def counterpart(network: nn.Module) -> Bill:
    """The ordinary network for the same task, with the same hidden sizes."""
    return ann_bill(*shape(network), squashed=isinstance(network, (SpikingActor, ConvertedActor)))


def spiking_size(network: nn.Module) -> Size:
    """Weights, biases, thresholds and fields; membranes, the encoder's and the read-out's too; what comes and goes."""
    obs_dim, _, outputs = shape(network)
    weights = sum(p.numel() for p in network.parameters())
    if isinstance(network, Converted):
        neurons = sum(layer.linear.out_features for layer in network.body.parts())
        return Size(weights + neurons, neurons + outputs, obs_dim + outputs)
    assert isinstance(network, (SpikingActor, SpikingQNetwork))
    layers = [layer for layer in network.layers if isinstance(layer, SpikingLayer)]
    weights -= sum(p.numel() for layer in layers for p in layer.norm.parameters())  # folded
    states = outputs + sum(_states(layer.neuron) * layer.linear.out_features for layer in layers)
    if isinstance(network, SpikingActor):
        states += 2 * network.encoder.out_features
    return Size(weights, states, obs_dim + outputs)

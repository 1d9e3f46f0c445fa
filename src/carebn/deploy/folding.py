"""From a trained network to a policy without normalisers: every one is folded into the weights before it.

It is done in float64 (``carebn.norm.folding``). Evaluated in float64 the folded network then gives the same spikes as
the unfolded one. In float32 neither is defined to the last spike: a sum's rounding depends on its order, which differs
between batch sizes and machines, and a potential within rounding of the threshold may go either way.
"""

import copy
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from carebn.conversion import Converted, ConvertedActor, ConvertedQNetwork
from carebn.conversion.integrate_fire import IntegrateFireBody, IntegrateFireLayer
from carebn.deploy.graph import NEURONS, Array, Bounds, Encoder, Layer, PolicyGraph, Readout
from carebn.deploy.graph import Neuron as GraphNeuron
from carebn.deploy.plain import check_unchanged
from carebn.equations import known_kind
from carebn.network import ANNActor, ANNQNetwork, PopulationDecoder, PopulationEncoder, SpikingActor, SpikingQNetwork
from carebn.network.ann import relu_layers
from carebn.network.bounds import ActionBounds
from carebn.network.decoder import MembraneReadout
from carebn.network.encoder import ZScore
from carebn.network.intralayer import IntralayerSpikingLayer
from carebn.network.layer import SpikingLayer
from carebn.neuron import Neuron
from carebn.neuron.tracing import equations_of
from carebn.norm.folding import fold_norm, plain


def fold(network: nn.Module, *, byte_observations: bool = False) -> PolicyGraph:
    """The inference of a policy network (moving statistics) as plain numbers; the network is left as it is.

    Only what is known is folded: a module whose type, or whose behaviour by a hook or a replaced method, is another is
    refused by name. ``byte_observations``: observations are uint8, which Q-networks divide by 255.
    """
    how = FOLDS.get(type(network))
    if how is None:
        known = ", ".join(sorted(kind.__name__ for kind in FOLDS))
        raise ValueError(f"do not know how to fold a {type(network).__name__}; known networks: {known}")
    check_unchanged(network)  # before the copy, which not every change survives
    with torch.no_grad():
        return how(copy.deepcopy(network).cpu().double().eval(), byte_observations)


def _spiking_actor(actor: SpikingActor, byte_observations: bool) -> PolicyGraph:
    steps = actor.encoder.time_steps
    return PolicyGraph(
        time_steps=steps,
        encoder=_population_encoder(plain(actor.encoder, PopulationEncoder), byte_observations),
        layers=_spiking_layers(actor.layers, steps),
        readout=_population_readout(plain(actor.decoder, PopulationDecoder), steps),
        bounds=_bounds(actor.bounds),
    )


def _spiking_q_network(network: SpikingQNetwork, byte_observations: bool) -> PolicyGraph:
    steps = plain(network.layers[0], SpikingLayer).time_steps
    readout = plain(network.readout, MembraneReadout)
    bias = {"membrane": float(steps), "count": 1.0}[readout.kind] * _numpy(readout.bias)
    return PolicyGraph(
        time_steps=steps,
        encoder=_direct(network.obs_dim, byte_observations, network.raw_bytes),
        layers=_spiking_layers(network.layers, steps),
        readout=Readout("sum", _numpy(readout.weight.t()), bias, np.ones(steps)),
        bounds=None,
    )


def _ann_actor(actor: ANNActor, byte_observations: bool) -> PolicyGraph:
    layers = _relu_layers(actor.body)
    return PolicyGraph(
        time_steps=1,
        encoder=_direct(layers[0].inputs, byte_observations, raw_bytes=True),
        layers=layers,
        readout=_head(actor.head, np.ones(1)),
        bounds=_bounds(actor.bounds),
    )


def _ann_q_network(network: ANNQNetwork, byte_observations: bool) -> PolicyGraph:
    return PolicyGraph(
        time_steps=1,
        encoder=_direct(network.obs_dim, byte_observations, network.raw_bytes),
        layers=_relu_layers(network.body),
        readout=_head(network.head, np.ones(1)),
        bounds=None,
    )


def _converted_actor(actor: ConvertedActor, byte_observations: bool) -> PolicyGraph:
    return _converted(actor, _direct(actor.inputs, byte_observations, raw_bytes=True), _bounds(actor.bounds))


def _converted_q_network(network: ConvertedQNetwork, byte_observations: bool) -> PolicyGraph:
    return _converted(network, _direct(network.inputs, byte_observations, network.raw_bytes), None)


def _converted(network: Converted, encoder: Encoder, bounds: Bounds | None) -> PolicyGraph:
    """Potentials are measured in thresholds, so that every neuron fires above 1 and starts at 1/2."""
    run = network.simulation
    if run.residual != "none":
        raise ValueError(
            f"a policy converted with --residual {run.residual} decides by what it carried over from the decision "
            "before, and an exported policy carries nothing; convert without --residual, or use carebn.load"
        )
    neuron = GraphNeuron("if", {"v_threshold": 1.0, "v_start": 0.5})
    layers = []
    for layer in plain(network.body, IntegrateFireBody).layers:
        part = plain(layer, IntegrateFireLayer)
        theta = _numpy(part.threshold)
        weight, bias = _linear(part.linear)
        layers.append(Layer(weight / theta, bias / theta, None, neuron))
    read = (np.arange(run.time_steps) >= run.read_out_from).astype(np.float64)
    head = _head(network.head, read)
    return PolicyGraph(
        time_steps=run.time_steps,
        encoder=encoder,
        layers=tuple(layers),
        readout=replace(head, weight=head.weight / read.sum()),
        bounds=bounds,
    )


FOLDS: dict[type[nn.Module], Callable[[Any, bool], PolicyGraph]] = {
    SpikingActor: _spiking_actor,
    SpikingQNetwork: _spiking_q_network,
    ANNActor: _ann_actor,
    ANNQNetwork: _ann_q_network,
    ConvertedActor: _converted_actor,
    ConvertedQNetwork: _converted_q_network,
}


# --- encoders --------------------------------------------------------------------------------------------------------


def _population_encoder(encoder: PopulationEncoder, byte_observations: bool) -> Encoder:
    if encoder.coding == "poisson":
        raise ValueError(
            "an encoder with Poisson coding draws its spikes at random, so nothing deployed can be equal to it; "
            "train with deterministic or analogue coding"
        )
    offset, divisor, limit = np.zeros(encoder.obs_dim), np.ones(encoder.obs_dim), 0.0
    squash = "tanh" if encoder.observation == "tanh" else "none"
    if encoder.zscore is not None:
        zscore = plain(encoder.zscore, ZScore)
        # the network was trained in float32, where this is the number that keeps the root above zero
        smallest = torch.finfo(torch.float32).eps
        offset = _numpy(zscore.running_mean)
        divisor = np.sqrt(_numpy(zscore.running_var) + smallest)
        squash, limit = "clip", float(zscore.clip)
    return Encoder(
        coding="analogue" if encoder.coding == "analogue" else "spikes",
        byte_observations=byte_observations,
        squash=squash,
        limit=limit,
        offset=offset,
        divisor=divisor,
        mean=_numpy(encoder.mean),
        precision=1 / _numpy(encoder.std),
        threshold=encoder.threshold,
        subtract=encoder.subtract,
    )


def _direct(obs_dim: int, byte_observations: bool, raw_bytes: bool) -> Encoder:
    divisor = 255.0 if byte_observations and not raw_bytes else 1.0
    nothing = np.empty((obs_dim, 0))
    return Encoder(
        coding="direct",
        byte_observations=byte_observations,
        squash="none",
        limit=0.0,
        offset=np.zeros(obs_dim),
        divisor=np.full(obs_dim, divisor),
        mean=nothing,
        precision=nothing,
    )


# --- layers ----------------------------------------------------------------------------------------------------------


def _linear(linear: nn.Module) -> tuple[Array, Array]:
    """(weight [inputs, outputs], bias [1, outputs])."""
    weight, bias, _ = fold_norm(linear)
    return _numpy(weight.t()), _numpy(bias)


def _layer(linear: nn.Module, norm: nn.Module | None, neuron: GraphNeuron, steps: int) -> Layer:
    weight, bias, scale = fold_norm(linear, norm, steps)
    return Layer(_numpy(weight.t()), _numpy(bias), None if scale is None else _numpy(scale), neuron)


def _spiking_layers(layers: Iterable[nn.Module], steps: int) -> tuple[Layer, ...]:
    folded = []
    for module in layers:
        if type(module) is IntralayerSpikingLayer:
            raise ValueError(
                "a policy whose output populations are connected within themselves (--intralayer, ilc-san) cannot be "
                "exported; the policy of carebn.load acts with it"
            )
        layer = plain(module, SpikingLayer)
        if layer.time_steps != steps:
            raise ValueError(f"do not know how to fold a layer of {layer.time_steps} steps in a network of {steps}")
        folded.append(_layer(layer.linear, layer.norm, _neuron(layer.neuron), steps))
    return tuple(folded)


def _relu_layers(body: nn.Module) -> tuple[Layer, ...]:
    return tuple(_layer(linear, norm, GraphNeuron("relu"), steps=1) for linear, norm in relu_layers(body))


def _neuron(neuron: Neuron) -> GraphNeuron:
    """By its step, whatever its class: one with the equations of a known neuron is that neuron."""
    own = type(neuron)
    if not isinstance(neuron, Neuron) or (own.scan, own.forward) != (Neuron.scan, Neuron.forward):
        raise ValueError(f"do not know how to fold the neuron {own.__name__}, because it has its own forward or scan")
    equations, constants = equations_of(neuron)
    kind = known_kind(equations)
    if kind is None:
        return GraphNeuron(own.__name__, constants, equations)
    if constants["v_threshold"] < 0:  # a potential of zero, where every decision starts, would count as a spike
        raise ValueError(f"cannot fold a neuron with a threshold below zero, got {neuron.v_threshold}")
    return GraphNeuron(kind, {name: constants[name] for name in NEURONS[kind]})


# --- read-outs -------------------------------------------------------------------------------------------------------


def _population_readout(decoder: PopulationDecoder, steps: int) -> Readout:
    """Block-diagonal, because each output reads its own population."""
    weight = _numpy(decoder.weight.reshape(-1, 1) * decoder.belongs)
    bias, every = _numpy(decoder.bias), np.ones(steps)
    if decoder.readout == "rate":
        return Readout("sum", weight / steps, bias, every)
    if decoder.readout == "membrane":
        return Readout("sum", weight, steps * bias, every)
    if decoder.readout == "mean-membrane":  # a spike is in the potentials of its own step and of all later ones
        potentials = np.arange(steps, 0, -1, dtype=np.float64)
        return Readout("sum", weight / steps, bias * potentials.mean(), potentials)
    if decoder.readout == "max-membrane":
        return Readout("furthest", weight, bias, every)
    raise ValueError(f"do not know how to fold the read-out {decoder.readout!r}")


def _head(head: nn.Module, share: Array) -> Readout:
    weight, bias = _linear(head)
    return Readout("sum", weight, bias[0], share)


def _bounds(bounds: ActionBounds) -> Bounds:
    bounds = plain(bounds, ActionBounds)
    return Bounds(_numpy(bounds.middle), _numpy(bounds.reach), _numpy(bounds.low), _numpy(bounds.high))


def _numpy(tensor: Tensor) -> Array:
    return np.ascontiguousarray(tensor.detach().numpy())

"""Folding: every normaliser into the weights before it, or where it differs from step to step, into per-step scales.

    norm:    y_t = scale_t·(W·x_t + b) + shift_t
    folded:  y_t = W'·x_t + b',        W' = scale·W,  b' = scale·b + shift          one scale for all steps
             y_t = scale_t·(W·x_t) + b'_t,            b'_t = scale_t·b + shift_t    a scale for each

It is done in float64, from the float32 parameters as they were trained. Evaluated in float64 the folded network then
gives the same spikes as the unfolded one. In float32 neither is defined to the last spike: a sum's rounding depends on
its order, which differs between batch sizes and machines, and a potential within rounding of the threshold may go
either way.
"""

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from carebn.deploy.folded import NEURONS, Array, Bounds, Encoder, Folded, Layer
from carebn.deploy.folded import Neuron as FoldedNeuron
from carebn.network import ANNActor, ANNQNetwork, PopulationDecoder, PopulationEncoder, SpikingActor, SpikingQNetwork
from carebn.network.bounds import ActionBounds
from carebn.network.converted import Converted, ConvertedActor, ConvertedQNetwork
from carebn.network.layer import SpikingLayer
from carebn.neuron import CLIF, DN, LIF, Neuron
from carebn.norm import NoNorm, Norm


def fold(network: nn.Module, *, byte_observations: bool = False) -> Folded:
    """The inference of a policy network (moving statistics) as plain numbers; the network is left as it is.

    ``byte_observations``: observations are uint8, which Q-networks divide by 255.
    """
    how = FOLDS.get(type(network))
    if how is None:
        known = ", ".join(sorted(kind.__name__ for kind in FOLDS))
        raise ValueError(f"do not know how to fold a {type(network).__name__}; known networks: {known}")
    with torch.no_grad():
        return how(copy.deepcopy(network).cpu().double().eval(), byte_observations)


def _spiking_actor(actor: SpikingActor, byte_observations: bool) -> Folded:
    steps = actor.encoder.time_steps
    weight, bias = _population_readout(actor.decoder, steps)
    return Folded(
        time_steps=steps,
        encoder=_population_encoder(actor.encoder, byte_observations),
        layers=_spiking_layers(actor.layers, steps),
        readout_weight=weight,
        readout_bias=bias,
        bounds=_bounds(actor.bounds),
    )


def _spiking_q_network(network: SpikingQNetwork, byte_observations: bool) -> Folded:
    layers = [layer for layer in network.layers if isinstance(layer, SpikingLayer)]
    steps = layers[0].time_steps
    return Folded(
        time_steps=steps,
        encoder=_direct(network.obs_dim, byte_observations, network.raw_bytes),
        layers=_spiking_layers(layers, steps),
        readout_weight=_numpy(network.readout.weight.t()),
        readout_bias=steps * _numpy(network.readout.bias),
        bounds=None,
    )


def _ann_actor(actor: ANNActor, byte_observations: bool) -> Folded:
    layers = _relu_layers(actor.body)
    return Folded(
        time_steps=1,
        encoder=_direct(layers[0].inputs, byte_observations, raw_bytes=True),
        layers=layers,
        readout_weight=_numpy(actor.head.weight.t()),
        readout_bias=_numpy(actor.head.bias),
        bounds=_bounds(actor.bounds),
    )


def _ann_q_network(network: ANNQNetwork, byte_observations: bool) -> Folded:
    return Folded(
        time_steps=1,
        encoder=_direct(network.obs_dim, byte_observations, network.raw_bytes),
        layers=_relu_layers(network.body),
        readout_weight=_numpy(network.head.weight.t()),
        readout_bias=_numpy(network.head.bias),
        bounds=None,
    )


def _converted_actor(actor: ConvertedActor, byte_observations: bool) -> Folded:
    return _converted(actor, _direct(actor.inputs, byte_observations, raw_bytes=True), _bounds(actor.bounds))


def _converted_q_network(network: ConvertedQNetwork, byte_observations: bool) -> Folded:
    return _converted(network, _direct(network.inputs, byte_observations, network.raw_bytes), None)


def _converted(network: Converted, encoder: Encoder, bounds: Bounds | None) -> Folded:
    """Potentials are measured in thresholds, so that every neuron fires above 1 and starts at 1/2."""
    run = network.simulation
    if run.residual != "none":
        raise ValueError(
            f"a policy converted with --residual {run.residual} decides by what it carried over from the decision "
            "before, and an exported policy carries nothing; convert without --residual, or use carebn.load"
        )
    neuron = FoldedNeuron("if", {"v_threshold": 1.0, "v_start": 0.5})
    layers = []
    for layer in network.body.parts():
        theta = _numpy(layer.threshold)
        weight, bias = _numpy(layer.linear.weight.t()), _numpy(layer.linear.bias)
        layers.append(Layer(weight / theta, (bias / theta)[None], None, neuron))
    return Folded(
        time_steps=run.time_steps,
        encoder=encoder,
        layers=tuple(layers),
        readout_weight=_numpy(network.head.weight.t()) / (run.time_steps - run.read_out_from),
        readout_bias=_numpy(network.head.bias),
        bounds=bounds,
        read_out_from=run.read_out_from,
    )


FOLDS: dict[type[nn.Module], Callable[[Any, bool], Folded]] = {
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
    if encoder.zscore is not None:
        # the network was trained in float32, where this is the number that keeps the root above zero
        smallest = torch.finfo(torch.float32).eps
        offset = _numpy(encoder.zscore.running_mean)
        divisor = np.sqrt(_numpy(encoder.zscore.running_var) + smallest)
        limit = float(encoder.zscore.clip)
    return Encoder(
        coding="analogue" if encoder.coding == "analogue" else "spikes",
        byte_observations=byte_observations,
        squash={"tanh": "tanh", "zscore": "clip", "raw": "none"}[encoder.observation],
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


def _fold_norm(linear: nn.Linear, norm: nn.Module | None, neuron: FoldedNeuron, steps: int) -> Layer:
    weight = _numpy(linear.weight.t())
    bias = np.zeros((1, linear.out_features)) if linear.bias is None else _numpy(linear.bias)[None]
    if norm is None or isinstance(norm, NoNorm):
        return Layer(weight, bias, None, neuron)
    if not isinstance(norm, Norm):
        raise ValueError(f"do not know how to fold a {type(norm).__name__} into the weights before it")
    scale, shift = (_numpy(m).reshape(-1, linear.out_features) for m in norm.moving_scale_shift())
    bias = bias * scale + shift
    if len(scale) == 1:
        return Layer(weight * scale, bias, None, neuron)
    if len(scale) != steps:
        raise ValueError(f"{type(norm).__name__} has {len(scale)} steps in a network of {steps}")
    return Layer(weight, bias, scale, neuron)


def _spiking_layers(layers: Sequence[nn.Module] | nn.ModuleList, steps: int) -> tuple[Layer, ...]:
    folded = []
    for layer in layers:
        if type(layer) is not SpikingLayer:
            raise ValueError(f"do not know how to fold a layer of type {type(layer).__name__}")
        folded.append(_fold_norm(layer.linear, layer.norm, _neuron(layer.neuron), steps))
    return tuple(folded)


def _relu_layers(body: nn.Sequential) -> tuple[Layer, ...]:
    folded = []
    linear, norm = None, None
    for module in body:
        if isinstance(module, nn.Linear):
            linear = module
        elif isinstance(module, Norm):
            norm = module
        elif isinstance(module, nn.ReLU) and linear is not None:
            folded.append(_fold_norm(linear, norm, FoldedNeuron("relu"), steps=1))
            linear, norm = None, None
        else:
            raise ValueError(f"do not know how to fold a {type(module).__name__} in an ordinary network")
    return tuple(folded)


def _neuron(neuron: Neuron) -> FoldedNeuron:
    """By the step it runs: a subclass that changes the step is another neuron."""
    kinds: dict[Any, str] = {(m.step, m.initial_state): kind for m, kind in ((LIF, "lif"), (CLIF, "clif"), (DN, "dn"))}
    kind = kinds.get((type(neuron).step, type(neuron).initial_state))
    if kind is None or type(neuron).scan is not Neuron.scan or "step" in vars(neuron):
        raise ValueError(
            f"do not know how to fold the neuron {type(neuron).__name__}; known: {', '.join(kinds.values())}"
        )
    return FoldedNeuron(kind, {name: float(getattr(neuron, name)) for name in NEURONS[kind]})


# --- read-outs -------------------------------------------------------------------------------------------------------


def _population_readout(decoder: PopulationDecoder, steps: int) -> tuple[Array, Array]:
    """(weight, bias) on spike counts: block-diagonal, because each output reads its own population."""
    weight = _numpy(decoder.weight.view(-1, 1) * decoder.belongs)
    bias = _numpy(decoder.bias)
    return (weight / steps, bias) if decoder.readout == "rate" else (weight, steps * bias)


def _bounds(bounds: ActionBounds) -> Bounds:
    return Bounds(_numpy(bounds.middle), _numpy(bounds.reach), _numpy(bounds.low), _numpy(bounds.high))


def _numpy(tensor: Tensor) -> Array:
    return np.ascontiguousarray(tensor.detach().numpy())

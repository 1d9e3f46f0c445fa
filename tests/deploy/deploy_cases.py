"""Networks that have seen some data, observations, and the unfolded network in float64: what deployment is held to."""

import copy

import numpy as np
import torch

from carebn.kernels import pure
from carebn.network import ANNActor, ANNQNetwork, SpikingActor, SpikingQNetwork

OBS, ACTIONS = 6, 2
LOW, HIGH = [-1.0, -0.5], [2.0, 0.5]


def observations(count=1000, size=OBS, seed=0):
    return np.random.default_rng(seed).standard_normal((count, size)).astype(np.float32)


def byte_observations(count=1000, size=OBS, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (count, size), dtype=np.uint8)


def warm(network, make=observations, seed=1):
    """Parameters and moving statistics that are not the first ones, in evaluation mode."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in network.named_parameters():
            # a higher β, so that neurons of every normaliser fire
            p.add_(0.05 * torch.randn(p.shape, generator=generator) + 0.2 * name.endswith("norm.bias"))
        network.train()
        for i in range(10):
            network(torch.from_numpy(make(64, seed=100 + i)))
    return network.eval()


def spiking_actor(norm="care", neuron="clif", hidden=(32, 24), seed=0, **options):
    torch.manual_seed(seed)
    return warm(SpikingActor(OBS, ACTIONS, norm=norm, neuron=neuron, hidden=hidden, low=LOW, high=HIGH, **options))


def spiking_q_network(norm="care", neuron="lif", make=observations, **options):
    torch.manual_seed(0)
    return warm(SpikingQNetwork(OBS, 4, norm=norm, neuron=neuron, hidden=(32, 24), **options), make)


def ann_actor(norm="care"):
    torch.manual_seed(0)
    return warm(ANNActor(OBS, ACTIONS, norm=norm, hidden=(32, 24), low=LOW, high=HIGH))


def ann_q_network(norm="none", make=observations, **options):
    torch.manual_seed(0)
    return warm(ANNQNetwork(OBS, 4, norm=norm, hidden=(32, 24), **options), make)


def wide(network):
    return copy.deepcopy(network).double().eval()


@torch.no_grad()
def unfolded_values(network, obs):
    """What the network says in float64, by plain torch, with its normalisers."""
    x = torch.from_numpy(obs)
    with pure():
        return wide(network)(x if obs.dtype == np.uint8 else x.double()).numpy()


@torch.no_grad()
def unfolded_spikes(network, obs):
    """The spikes of the encoder (or the constant input) and of every layer, in float64, by plain torch."""
    network = wide(network)
    x = torch.from_numpy(obs).double()
    with pure():
        if isinstance(network, SpikingActor):
            x = network.encoder.spikes(network.encoder.stimulation(x))
        else:
            x = (x / 255 if obs.dtype == np.uint8 and not network.raw_bytes else x)[None]
        spikes = [x.numpy()]
        for layer in network.layers:
            x = layer(x)
            spikes.append(x.numpy())
    return spikes

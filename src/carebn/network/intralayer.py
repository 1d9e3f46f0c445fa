"""Spiking layers whose populations are also connected within themselves: the output layer of ILC-SAN."""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from carebn.errors import unknown_name
from carebn.network.layer import SpikingLayer
from carebn.network.straight_through import straight_through


class Connections(NamedTuple):
    """What a population's neurons get from its spikes of the step before."""

    to_self: bool
    lateral: bool
    bias: bool


# ILC-SAN's, by the names of its ablation study
CONNECTIONS: dict[str, Connections] = {
    "intra": Connections(to_self=True, lateral=True, bias=True),
    "no-bias": Connections(to_self=True, lateral=True, bias=False),
    "no-self": Connections(to_self=False, lateral=True, bias=True),
    "no-lateral": Connections(to_self=True, lateral=False, bias=True),
    "bias": Connections(to_self=False, lateral=False, bias=True),
    "self": Connections(to_self=True, lateral=False, bias=False),
    "lateral": Connections(to_self=False, lateral=True, bias=False),
}


class PopulationConnections(nn.Module):
    """``connections(spikes: [B, groups·population]) → current``, M_k·S^(k) + m_k for each population k.

    Matrices and their bias start uniformly within ±1/√population, as a convolution of that width does. Without lateral
    connections there is one weight a neuron, and it and the bias start normally distributed, as in ILC-SAN's code.
    """

    allowed: Tensor

    def __init__(self, groups: int, population: int, mode: str = "intra") -> None:
        super().__init__()
        if mode not in CONNECTIONS:
            raise ValueError(unknown_name("intralayer mode", mode, CONNECTIONS))
        self.mode = mode
        self.groups, self.population = groups, population
        kind = CONNECTIONS[mode]
        self.register_parameter("weight", None)
        self.register_parameter("bias", None)
        bound = 1 / math.sqrt(population)
        if kind.lateral:
            self.weight = nn.Parameter(torch.empty(groups, population, population).uniform_(-bound, bound))
        elif kind.to_self:
            self.weight = nn.Parameter(torch.randn(groups, population))
        if kind.bias:
            bias = torch.empty(groups, population)
            self.bias = nn.Parameter(bias.uniform_(-bound, bound) if kind.lateral else bias.normal_())
        # A mask, not a parameter set to zero again and again: that one would be lost to the optimiser and the target.
        allowed = torch.ones(population, population) if kind.to_self else 1 - torch.eye(population)
        self.register_buffer("allowed", allowed, persistent=False)
        if kind.lateral and not kind.to_self:
            with torch.no_grad():
                self.weight.mul_(allowed)

    def forward(self, spikes: Tensor) -> Tensor:
        own = spikes.reshape(-1, self.groups, self.population)
        current = torch.zeros_like(own)
        if self.weight is not None:
            if self.weight.ndim == 3:
                current = torch.einsum("bgj,gij->bgi", own, self.weight * self.allowed)
            else:
                current = own * self.weight
        if self.bias is not None:
            current = current + self.bias
        return current.flatten(1)

    def extra_repr(self) -> str:
        return f"{self.groups} populations of {self.population}, {self.mode!r}"


class IntralayerSpikingLayer(SpikingLayer):
    """Linear → norm → neuron, whose input also holds what its own populations fired one step before:

    x_t = norm(W·s_t + b) + M·S_{t−1} + m, with S = 0 before the first step, so that m counts there too. In neurons with
    a synaptic current the sum enters that current and decays with it.
    """

    def __init__(
        self, in_features: int, out_features: int, *, population: int, connections: str = "intra", **options: Any
    ) -> None:
        super().__init__(in_features, out_features, **options)
        self.connections = PopulationConnections(out_features // population, population, connections)

    def forward(self, x: Tensor, stimulation: Tensor | None = None) -> Tensor:
        if x.ndim != 3:
            raise ValueError(f"a spiking layer expects input of shape [T, B, features], got {tuple(x.shape)}")
        steps = self.time_steps if x.shape[0] == 1 else x.shape[0]
        self.neuron.check_steps(steps)
        if stimulation is not None:
            x = straight_through(x, stimulation)
        currents = self.norm(self.linear(x).expand(steps, -1, -1))
        state = self.neuron.initial_state(currents[0])
        spike = torch.zeros_like(currents[0])
        spikes = []
        for current in currents.unbind(0):
            spike, state = self.neuron.step(current + self.connections(spike), state)
            spikes.append(spike)
        return torch.stack(spikes)

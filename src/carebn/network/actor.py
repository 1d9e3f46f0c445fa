"""Actors: an observation in, an action within its bounds out."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from carebn.network.bounds import ActionBounds, Bound
from carebn.network.decoder import PopulationDecoder
from carebn.network.encoder import PopulationEncoder
from carebn.network.layer import SpikingLayer
from carebn.neuron import Neuron
from carebn.norm import make_norm


class SpikingActor(nn.Module):
    """Population encoder → spiking layers → population decoder → tanh → [low, high].

    All neuron states start at zero at every call: an action depends on the observation alone.
    """

    def __init__(
        self,
        obs_dim: int,
        action_dim: int,
        *,
        norm: str = "care",
        neuron: str | Neuron = "clif",
        hidden: Sequence[int] = (256, 256),
        time_steps: int = 5,
        low: Bound = -1.0,
        high: Bound = 1.0,
        population: int = 10,
        readout: str = "membrane",
        encoder_options: dict[str, Any] | None = None,
        norm_options: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        if time_steps < 1:
            raise ValueError(f"a spiking actor needs at least one time step, got {time_steps}")
        self.encoder = PopulationEncoder(obs_dim, population, time_steps, **(encoder_options or {}))
        sizes = (self.encoder.out_features, *hidden, action_dim * population)
        self.layers = nn.ModuleList(
            SpikingLayer(a, b, norm=norm, neuron=neuron, time_steps=time_steps, norm_options=norm_options)
            for a, b in pairwise(sizes)
        )
        self.decoder = PopulationDecoder(action_dim, population, time_steps, readout=readout)
        self.bounds = ActionBounds(action_dim, low, high)

    def potential(self, obs: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """The decoder's output before tanh; ``generator`` feeds the Poisson encoder."""
        stimulation = self.encoder.stimulation(obs)
        first, *rest = self.layers
        if self.encoder.coding == "analogue":
            x = first(stimulation[None])
        else:
            x = first(self.encoder.spikes(stimulation, generator), stimulation)
        for layer in rest:
            x = layer(x)
        decoded: Tensor = self.decoder(x)
        return decoded

    def forward(self, obs: Tensor, generator: torch.Generator | None = None) -> Tensor:
        action: Tensor = self.bounds(self.potential(obs, generator))
        return action


class ANNActor(nn.Module):
    """Linear → [norm] → ReLU for each hidden size, then Linear → tanh → [low, high], on the raw observation.

    A norm starts at γ = 1, β = 0; there is none on the output.
    """

    def __init__(
        self,
        obs_dim: int,
        action_dim: int,
        *,
        norm: str = "none",
        hidden: Sequence[int] = (256, 256),
        low: Bound = -1.0,
        high: Bound = 1.0,
        norm_options: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for a, b in pairwise((obs_dim, *hidden)):
            layers.append(nn.Linear(a, b))
            if norm != "none":
                layers.append(_start_at_identity(make_norm(norm, b, time_steps=1, **(norm_options or {}))))
            layers.append(nn.ReLU())
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(hidden[-1], action_dim)
        self.bounds = ActionBounds(action_dim, low, high)

    def potential(self, obs: Tensor) -> Tensor:
        decoded: Tensor = self.head(self.body(obs[None])[0])  # one time step, for the norms that expect one
        return decoded

    def forward(self, obs: Tensor) -> Tensor:
        action: Tensor = self.bounds(self.potential(obs))
        return action


def _start_at_identity(norm: nn.Module) -> nn.Module:
    for name, start in (("weight", 1.0), ("bias", 0.0)):
        parameter = getattr(norm, name, None)
        if parameter is not None:
            nn.init.constant_(parameter, start)
    return norm

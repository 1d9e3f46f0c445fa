"""A deep spiking Q-network for discrete actions."""

from collections.abc import Sequence
from copy import deepcopy
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from carebn.kernels.rates import listener_of
from carebn.network.ann import relu_body
from carebn.network.decoder import MembraneReadout
from carebn.network.layer import SpikingLayer
from carebn.neuron import Neuron


def as_input(obs: Tensor, obs_dim: int, raw_bytes: bool, dtype: torch.dtype) -> Tensor:
    """Observations as a Q-network takes them."""
    if obs.ndim != 2 or obs.shape[1] != obs_dim:
        raise ValueError(f"expected observations of shape [B, {obs_dim}], got {tuple(obs.shape)}")
    x = obs.to(dtype)
    return x / 255 if obs.dtype == torch.uint8 and not raw_bytes else x


class SpikingQNetwork(nn.Module):
    """A spiking Q-network: ``network(obs: [B, obs_dim]) → values [B, actions]``.

    The observation at every step (direct coding) → spiking layers → one membrane per action, whose potential is Q.
    Bytes (uint8 observations, such as RAM) are divided by 255, or with ``raw_bytes`` taken as they are. The input is
    the same at every step, so the first product is computed once. ``readout``: see ``MembraneReadout``.
    """

    def __init__(
        self,
        obs_dim: int,
        actions: int,
        *,
        norm: str = "care",
        neuron: str | Neuron = "lif",
        hidden: Sequence[int] = (256, 256),
        time_steps: int = 5,
        raw_bytes: bool = False,
        readout: str = "membrane",
        norm_options: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.obs_dim = obs_dim
        self.raw_bytes = raw_bytes
        sizes = (obs_dim, *hidden)
        self.layers = nn.ModuleList(
            SpikingLayer(a, b, norm=norm, neuron=deepcopy(neuron), time_steps=time_steps, norm_options=norm_options)
            for a, b in pairwise(sizes)
        )
        self.readout = MembraneReadout(hidden[-1], actions, readout)

    def forward(self, obs: Tensor) -> Tensor:
        x = as_input(obs, self.obs_dim, self.raw_bytes, self.readout.weight.dtype)[None]
        listener, rates = listener_of(self), []
        for place, receiver in enumerate((*self.layers, self.readout)):
            sent = x
            if listener is not None and place > 0:  # the input is no spikes
                listener.ask(receiver)
            x = receiver(sent)
            if listener is not None and place > 0:
                rates.append(listener.answered(sent))
        if listener is not None:
            listener.note(torch.stack(rates), "torch", "a Q-network runs layer by layer")
        return x

    def populations(self) -> list[str]:
        """Whose spikes ``carebn.kernels.rates`` tells of, in its order."""
        return [f"layer_{i + 1}" for i in range(len(self.layers))]


class ANNQNetwork(nn.Module):
    """The ordinary Q-network: ``network(obs: [B, obs_dim]) → values [B, actions]``.

    Linear → [norm] → ReLU for each hidden size, then one value per action.
    """

    def __init__(
        self,
        obs_dim: int,
        actions: int,
        *,
        norm: str = "none",
        hidden: Sequence[int] = (256, 256),
        raw_bytes: bool = False,
        norm_options: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.obs_dim = obs_dim
        self.raw_bytes = raw_bytes
        self.body = relu_body(obs_dim, hidden, norm, norm_options)
        self.head = nn.Linear(hidden[-1], actions)

    def forward(self, obs: Tensor) -> Tensor:
        x = as_input(obs, self.obs_dim, self.raw_bytes, self.head.weight.dtype)
        q: Tensor = self.head(self.body(x[None])[0])
        return q

"""Actors: an observation in, an action within its bounds out."""

from collections.abc import Sequence
from copy import deepcopy
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from carebn.introspection import Remembered, stands_for
from carebn.kernels.plans import NotForKernelsError, told
from carebn.kernels.rates import listener_of
from carebn.kernels.stack import spike_counts
from carebn.network.bounds import ActionBounds, Bound
from carebn.network.decoder import PopulationDecoder
from carebn.network.encoder import PopulationEncoder
from carebn.network.intralayer import IntralayerSpikingLayer
from carebn.network.layer import SpikingLayer
from carebn.network.straight_through import straight_through
from carebn.neuron import Neuron
from carebn.router import plan_acting, plan_stack


@stands_for("actor", "forward potential", "encoder layers decoder bounds")
class SpikingActor(nn.Module):
    """A spiking policy: ``actor(obs: [B, obs_dim]) → actions [B, action_dim]`` within ``low`` and ``high``.

    Population encoder → spiking layers → population decoder → tanh → [low, high]. ``norm`` and ``neuron`` are names
    in ``NORMS`` and ``NEURONS``; ``hidden`` the sizes of the layers between; ``time_steps`` the simulation steps of one
    decision; ``population`` the neurons for each observation and each action; ``low`` and ``high`` numbers, or one for
    each action. ``encoder_options`` go to ``PopulationEncoder``, ``readout`` and ``readout_init`` to
    ``PopulationDecoder``, ``norm_options`` to the normaliser.

    All neuron states start at zero at every call: an action depends on the observation alone. ``intralayer`` connects
    the neurons of each output population with each other, see ``PopulationConnections``.
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
        readout_init: str = "scaled",
        intralayer: str = "none",
        encoder_options: dict[str, Any] | None = None,
        norm_options: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        if time_steps < 1:
            raise ValueError(f"a spiking actor needs at least one time step, got {time_steps}")
        self.encoder = PopulationEncoder(obs_dim, population, time_steps, **(encoder_options or {}))
        sizes = (self.encoder.out_features, *hidden, action_dim * population)
        *inner, last = pairwise(sizes)
        options: dict[str, Any] = {"norm": norm, "time_steps": time_steps, "norm_options": norm_options}
        # Each layer a neuron of its own: whoever listens to one hears that one alone.
        self.layers = nn.ModuleList(SpikingLayer(a, b, neuron=deepcopy(neuron), **options) for a, b in inner)
        if intralayer == "none":
            self.layers.append(SpikingLayer(*last, neuron=deepcopy(neuron), **options))
        else:
            self.layers.append(
                IntralayerSpikingLayer(
                    *last, population=population, connections=intralayer, neuron=deepcopy(neuron), **options
                )
            )
        self.decoder = PopulationDecoder(action_dim, population, time_steps, readout=readout, init=readout_init)
        self.bounds = ActionBounds(action_dim, low, high)
        self._remembered = Remembered()  # the router's

    def potential(self, obs: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """The decoder's output [B, action_dim] before tanh; ``generator`` feeds the Poisson encoder."""
        stimulation = self.encoder.stimulation(obs)
        stack, listener = plan_stack(self, stimulation), listener_of(self)
        if not isinstance(stack, str):
            encoder = self.encoder
            given = stimulation, encoder.time_steps, encoder.threshold, encoder.subtract, stack, listener
            try:
                return self.decoder.read(spike_counts(*given), encoder.time_steps)
            except NotForKernelsError:
                stack = "the statistics of this batch are not for the stack"
                told(self, "stack", stack, otherwise="parts")
        first, *rest = self.layers
        rates: list[Tensor] = []
        if self.encoder.coding == "analogue":
            x = first(stimulation[None])
        else:
            spikes = self.encoder.spikes(stimulation, generator)
            if listener is not None:
                listener.ask(first)
            x = first(spikes, stimulation)
            if listener is not None:
                rates.append(listener.answered(lambda: straight_through(spikes, stimulation)))
        for layer in rest:
            sent = x
            if listener is not None:
                listener.ask(layer)
            x = layer(sent)
            if listener is not None:
                rates.append(listener.answered(sent))
        if listener is not None:
            listener.ask(self.decoder)
        decoded: Tensor = self.decoder(x)
        if listener is not None:
            listener.note(torch.stack([*rates, listener.answered(x)]), "torch", stack)
        return decoded

    def populations(self) -> list[str]:
        """Whose spikes ``carebn.kernels.rates`` tells of, in its order."""
        encoder = [] if self.encoder.coding == "analogue" else ["encoder"]
        return [*encoder, *(f"layer_{i}" for i in range(1, len(self.layers))), "output_population"]

    def acting_path(self) -> object:
        """What the router says of acting with this actor; ``carebn.kernels.explain`` asks."""
        return plan_acting(self)

    def forward(self, obs: Tensor, generator: torch.Generator | None = None) -> Tensor:
        action: Tensor = self.bounds(self.potential(obs, generator))
        return action

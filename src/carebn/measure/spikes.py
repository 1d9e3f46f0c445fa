"""What every layer of a network does during a decision, listened to while the network itself decides."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from carebn.conversion import Converted
from carebn.network import ANNActor, ANNQNetwork, SpikingActor, SpikingQNetwork
from carebn.training.policy import Policy

Values = NDArray[np.float32]


class Population(NamedTuple):
    """The neurons of one layer. ``spiking``: values are spikes, 0 or 1; otherwise they are analogue.

    Of a converted network spikes are counted, not told apart: a value is the number of spikes in ``counted`` steps.
    """

    name: str
    values: Values  # [T, B, N]; T = 1 if they do not change within a decision, or are counted over all of it
    spiking: bool
    counted: int = 1

    @property
    def active(self) -> int:
        """Spikes (analogue: values other than zero)."""
        return int(self.values.sum(dtype=np.float64)) if self.spiking else int(np.count_nonzero(self.values))

    @property
    def places(self) -> int:
        """Neurons × steps × decisions: as many as there could be."""
        return self.values.size * self.counted

    @property
    def rate(self) -> float:
        """The share of neurons and steps with a spike (analogue: with a value other than zero)."""
        return self.active / self.places


class Decision(NamedTuple):
    action: NDArray[Any]  # [B, A], or [B] for a choice among actions
    output: Values  # what the network returned: the action, or the values Q [B, actions]
    populations: list[Population]  # from the input to the last layer before the read-out
    state: NDArray[Any] | None = None  # for the next decision of the same episodes; see Policy.predict


@contextmanager
def _listening(modules: list[nn.Module]) -> Iterator[dict[nn.Module, tuple[Tensor, Tensor]]]:
    """Inside, every call of these modules leaves its input and output in the dictionary."""
    heard: dict[nn.Module, tuple[Tensor, Tensor]] = {}

    def note(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        heard[module] = (inputs[0], output)

    hooks = [module.register_forward_hook(note) for module in modules]
    try:
        yield heard
    finally:
        for hook in hooks:
            hook.remove()


def _names(network: nn.Module, layers: int) -> list[str]:
    hidden = [f"layer {i + 1}" for i in range(layers)]
    if isinstance(network, SpikingActor):
        return ["encoder", *hidden[:-1], "output population"]
    return ["input", *hidden]


def record(network: nn.Module, obs: Tensor) -> tuple[Tensor, list[Population]]:
    """``network(obs)``, and every population on the way: first the encoder's spikes (or the input), then each layer."""
    if isinstance(network, Converted):
        output, _, populations = record_converted(network, obs)
        return output, populations
    if isinstance(network, SpikingActor):
        modules, spiking = list(network.layers), True
        first_spiking = network.encoder.coding != "analogue"
    elif isinstance(network, SpikingQNetwork):
        modules, spiking, first_spiking = list(network.layers), True, False
    elif isinstance(network, (ANNActor, ANNQNetwork)):
        modules, spiking, first_spiking = [m for m in network.body if isinstance(m, nn.ReLU)], False, False
    else:
        raise ValueError(f"a {type(network).__name__} is none of the networks whose layers can be recorded")
    # The body of an ordinary network gets the observation; a ReLU only what its linear layer made of it.
    source = network.body if isinstance(network, (ANNActor, ANNQNetwork)) else modules[0]
    with torch.no_grad(), _listening([*modules, source]) as heard:
        output = network(obs)
    values = [heard[source][0], *(heard[module][1] for module in modules)]
    kinds = [first_spiking, *[spiking] * len(modules)]
    populations = [
        Population(name, x.detach().cpu().numpy().astype(np.float32, copy=True), fires)
        for name, x, fires in zip(_names(network, len(modules)), values, kinds, strict=True)
    ]
    return output, populations


def record_converted(
    network: Converted, obs: Tensor, carried: Tensor | None = None
) -> tuple[Tensor, Tensor | None, list[Population]]:
    """``network.decide(obs, carried)``, and every population on the way, its spikes counted over the decision."""
    output, kept, activity = network.observed(obs, carried)
    sizes = [len(layer.threshold) for layer in network.body.parts()]
    values = [network.prepared(obs), *activity.counts.split_with_sizes(sizes, 1)]
    populations = [
        Population(
            name, x.cpu().numpy().astype(np.float32, copy=True)[None], i > 0, network.simulation.time_steps if i else 1
        )
        for i, (name, x) in enumerate(zip(_names(network, len(sizes)), values, strict=True))
    ]
    return output, kept, populations


def decide(policy: Policy, observations: NDArray[Any], state: NDArray[Any] | None = None) -> Decision:
    """The policy's decision for each of a batch of observations [B, obs], with all that fired.

    ``state``: that of the decision before in the same episodes; None at their start.
    """
    batch = policy.checked(observations)
    if batch.ndim != 2:
        raise ValueError(f"expected a batch of observations [B, {policy.obs_dim}], got shape {batch.shape}")
    obs, kept = torch.from_numpy(batch), None
    if isinstance(policy.network, Converted):
        carried = None if state is None else torch.from_numpy(state)
        output, kept, populations = record_converted(policy.network, obs, carried)
    else:
        output, populations = record(policy.network, obs)
    if not torch.isfinite(output).all():
        raise ValueError("the network's output is NaN or infinite")
    return Decision(policy.choose(output), output.numpy(), populations, None if kept is None else kept.numpy())

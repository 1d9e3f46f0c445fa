"""An algorithm as a record: all that the other rooms may know of it. It stands in the algorithm's own file."""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields, is_dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from carebn.algorithm.base import Agent
from carebn.algorithm.proxy import ProxyOptions
from carebn.network import ANNActor


@dataclass(frozen=True)
class Setup:
    """What an agent is built from. Networks that it adds itself start from torch's generator, which the run has seeded;
    they belong on ``device``."""

    policy: Any  # the network that learns and is deployed, on its device: an actor, or for discrete actions a Q-network
    obs_dim: int
    actions: int  # the numbers that an action consists of, or the discrete actions that there are
    options: Any  # of the record's own dataclass
    device: torch.device
    proxy: Callable[[], tuple[ANNActor, ProxyOptions]] | None = None  # makes what stands in for the target actor


@dataclass(frozen=True)
class Sampling:
    """How a policy draws actions where a user asks for random ones, by a network that is saved beside its own."""

    name: str  # of that network in a policy file
    part: str  # of that network in the agent's state
    make: Callable[[int, int], nn.Module]  # for observations and actions of these sizes
    # (policy, that network, the policy's output before any bounds, observations as both see them, generator) → actions
    draw: Callable[[Any, nn.Module, Tensor, Tensor, np.random.Generator], Tensor]


@dataclass(frozen=True)
class Algorithm:
    """What the rest of the package may know of an algorithm: its options, how it is built, what it can do."""

    options: type[Any]  # a dataclass; fields that ``carebn train`` has too are its options, others go by --algo-options
    build: Callable[[Setup], Agent]
    discrete: bool = False  # whether it chooses among discrete actions; else its actions are numbers within bounds
    neuron: str = "clif"  # unless the user or the method says otherwise
    target_actor: bool = False  # whether it has one, for which ``Setup.proxy`` may stand in (--target proxy)
    called: Mapping[str, str] = field(default_factory=dict)  # options that have another name in ``carebn train``
    sampling: Sampling | None = None  # None: its policy is deterministic
    spike_penalty: bool = False  # whether its update adds ``BaseAgent.spike_loss`` to the loss of its policy

    def __post_init__(self) -> None:
        if not is_dataclass(self.options):
            raise TypeError(f"the options of an algorithm are a dataclass, got {self.options!r}")
        for option in fields(self.options):
            if option.default is MISSING and option.default_factory is MISSING:
                raise TypeError(f"every option of an algorithm needs a default, and {option.name} has none")

    def table(self) -> dict[str, Any]:
        """The default of every option, under the names of ``carebn train``."""
        return {self.called.get(name, name): value for name, value in asdict(self.options()).items()}

    def options_from(self, values: Mapping[str, Any]) -> Any:
        """Its options, from values under the names of ``carebn train``; what is not among them is as by default."""
        names = {f.name: self.called.get(f.name, f.name) for f in fields(self.options)}
        return self.options(**{name: values[called] for name, called in names.items() if called in values})

    def policy_tensors(self, agent: Agent) -> dict[str, Tensor]:
        """What a policy file holds: the network that is deployed, and what sampling needs besides."""
        tensors: dict[str, Tensor] = agent.policy.state_dict()
        if self.sampling is None:
            return tensors
        name, part = f"{self.sampling.name}.", f"{self.sampling.part}."
        own = agent.state_dict()
        return tensors | {name + key.removeprefix(part): own[key] for key in own if key.startswith(part)}

"""What all agents share: acting with moving statistics, re-calibrating, saving and restoring."""

from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from carebn.algorithm.replay import ReplayBuffer
from carebn.algorithm.spike_penalty import SpikePenalty
from carebn.network import Actor
from carebn.network.inference import FastActor, moving_statistics
from carebn.norm import Norm, recalibrate

AnyModule = TypeVar("AnyModule", bound=nn.Module)
#: All that learning changes in an agent, modules and optimisers, by the names that checkpoints have for them.
Parts = dict[str, nn.Module | torch.optim.Optimizer]


class Agent(Protocol):
    """Four verbs: act, update, recalibrate, state_dict/load_state_dict. ``policy`` is what gets deployed."""

    policy: nn.Module

    def act(self, obs: NDArray[Any], rng: np.random.Generator | None) -> NDArray[Any]:
        """Actions for a batch of observations; with a generator exploring, without one greedy."""
        ...

    def update(self, replay: ReplayBuffer, rng: np.random.Generator) -> dict[str, Tensor]:
        """One training step on a fresh batch; returns losses as tensors, so that nothing waits for them."""
        ...

    def recalibrate(self, replay: ReplayBuffer, rng: np.random.Generator) -> bool:
        """Exact moving statistics from replay, if the method asks for it; says whether it did."""
        ...

    def state_dict(self) -> dict[str, Tensor]:
        """All that learning has changed, copied."""
        ...

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Put back what ``state_dict`` gave: learning goes on exactly there."""
        ...


def frozen_copy(network: AnyModule) -> AnyModule:
    """A target network: the same weights and statistics, in eval mode for ever, without gradients."""
    return deepcopy(network).eval().requires_grad_(False)


def normal(rng: np.random.Generator, like: Tensor) -> Tensor:
    """Standard normal numbers from an explicit generator."""
    return torch.from_numpy(rng.standard_normal(like.shape, dtype=np.float32)).to(like.device)


class BaseAgent:
    """An agent whose state is its modules and optimisers, as ``parts`` names them, and a count of updates."""

    def __init__(self, policy: nn.Module, recalibration_batches: int, batch_size: int) -> None:
        self.policy = policy
        self.updates = 0
        self.device = next(policy.parameters()).device
        self._norms = [module for module in policy.modules() if isinstance(module, Norm)]
        self._recalibration = recalibration_batches, batch_size
        self._spike_penalty: SpikePenalty | None = None

    # The penalty on spikes, for the update that trains the policy: hear it run, add the loss, log the rates
    def penalise_spikes(self, penalty: SpikePenalty) -> None:
        self._spike_penalty = penalty

    def hearing_spikes(self) -> AbstractContextManager[object]:
        return nullcontext() if self._spike_penalty is None else self._spike_penalty.hearing(self.policy)

    def spike_loss(self) -> Tensor | None:
        """Of what was heard last; None: there is no penalty."""
        return None if self._spike_penalty is None else self._spike_penalty.loss()

    def spikes_told(self) -> dict[str, Tensor]:
        return {} if self._spike_penalty is None else self._spike_penalty.told()

    def inference_mode(self) -> AbstractContextManager[None]:
        """Inside, the policy uses its moving statistics and changes nothing. Cheaper than eval() and train()."""
        return moving_statistics(self._norms)

    def recalibrate(self, replay: ReplayBuffer, rng: np.random.Generator) -> bool:
        if not any(norm.recalibrates for norm in self._norms) or len(replay) < 2:
            return False
        batches, size = self._recalibration
        recalibrate(self.policy, (replay.sample_obs(size, rng, self.device) for _ in range(batches)))
        return True

    def parts(self) -> Parts:
        """All that learning changes, by the names that checkpoints have for it: a name, once given, stays."""
        raise NotImplementedError

    def _all_parts(self) -> Parts:
        return self.parts() | ({} if self._spike_penalty is None else {"spike_penalty": self._spike_penalty})

    def state_dict(self) -> dict[str, Tensor]:
        state = {"updates": torch.tensor(self.updates)}
        for name, part in self._all_parts().items():
            if isinstance(part, nn.Module):
                state |= {f"{name}.{key}": value for key, value in part.state_dict().items()}
            else:
                for index, slots in part.state_dict()["state"].items():
                    state |= {f"{name}.{index}.{slot}": value for slot, value in slots.items()}
        return {key: value.detach().cpu().clone() for key, value in state.items()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.updates = int(state["updates"])
        for name, part in self._all_parts().items():
            own = {key[len(name) + 1 :]: value for key, value in state.items() if key.startswith(f"{name}.")}
            if isinstance(part, nn.Module):
                part.load_state_dict(own)
                continue
            slots: dict[int, dict[str, Tensor]] = {}
            for key, value in own.items():
                index, slot = key.split(".")
                slots.setdefault(int(index), {})[slot] = value
            part.load_state_dict({"state": slots, "param_groups": part.state_dict()["param_groups"]})


class ActorCritic(BaseAgent):
    """An agent for continuous actions."""

    def __init__(self, actor: Actor, recalibration_batches: int, batch_size: int) -> None:
        super().__init__(actor, recalibration_batches, batch_size)
        self._fast = FastActor(actor)
        self.action_dim = actor.bounds.middle.numel()
        bounds = actor.bounds
        limits = (bounds.reach, bounds.low, bounds.high)
        self._reach, self._low, self._high = (b.detach().cpu().resolve_neg().numpy() for b in limits)

    def explore(self, obs: NDArray[Any], rng: np.random.Generator | None, noise: float) -> NDArray[Any]:
        """The actor's actions, with Gaussian noise relative to half the range if there is a generator."""
        action: NDArray[Any] = self._fast(obs)
        if rng is None:
            return action
        action = action + noise * self._reach * rng.standard_normal(action.shape, dtype=np.float32)
        clipped: NDArray[Any] = np.clip(action, self._low, self._high)
        return clipped

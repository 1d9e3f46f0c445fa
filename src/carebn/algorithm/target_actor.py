"""What DDPG and TD3 share: a deterministic actor that explores by Gaussian noise, and a target copy that follows it."""

from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import nn

from carebn.algorithm.base import ActorCritic, Parts, frozen_copy
from carebn.algorithm.optimiser import adam
from carebn.algorithm.replay import Batch, ReplayBuffer
from carebn.network import Actor
from carebn.norm.polyak import Follower


class Options(Protocol):
    @property
    def actor_learning_rate(self) -> float: ...
    @property
    def batch_size(self) -> int: ...
    @property
    def tau(self) -> float: ...
    @property
    def exploration_noise(self) -> float: ...
    @property
    def recalibration_batches(self) -> int: ...


class ActorCriticWithTargetActor(ActorCritic):
    def __init__(self, actor: Actor, critic: nn.Module, options: Options) -> None:
        super().__init__(actor, options.recalibration_batches, options.batch_size)
        self._common = options
        self.actor, self.actor_target = actor, frozen_copy(actor)
        self.critic_target = frozen_copy(critic)
        self._critic_follower = Follower(self.critic_target, critic, options.tau)
        self.actor_optimiser = adam(actor, options.actor_learning_rate)

    def parts(self) -> Parts:
        return {
            "actor": self.actor,
            "actor_target": self.actor_target,
            "actor_optimiser": self.actor_optimiser,
            "critic_target": self.critic_target,
        }

    def act(self, obs: NDArray[Any], rng: np.random.Generator | None) -> NDArray[Any]:
        return self.explore(obs, rng, self._common.exploration_noise)

    # The two steps that another kind of target actor (see proxy.py) does differently
    def next_batch(self, replay: ReplayBuffer, rng: np.random.Generator) -> Batch:
        return replay.sample(self._common.batch_size, rng, self.device)

    @cached_property
    def _actor_follower(self) -> Follower:
        return Follower(self.actor_target, self.actor, self._common.tau)

    def follow_actor(self) -> None:
        self._actor_follower.step()

"""DDPG: deep deterministic policy gradient (Lillicrap et al., 2016), with a spiking or an ordinary actor."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from carebn.algorithm.base import ActorCritic, frozen_copy
from carebn.algorithm.optimiser import adam, descend
from carebn.algorithm.replay import Batch, ReplayBuffer
from carebn.network import Actor, Critic
from carebn.norm.polyak import Follower


@dataclass(frozen=True)
class DDPGOptions:
    """The paper's table of DDPG parameters."""

    actor_learning_rate: float = 1e-4
    critic_learning_rate: float = 1e-3
    critic_weight_decay: float = 0.01  # added to the gradient by Adam, not decoupled
    batch_size: int = 256
    gamma: float = 0.99
    tau: float = 0.001
    exploration_noise: float = 0.1  # relative to half the action range
    recalibration_batches: int = 100


class DDPG(ActorCritic):
    def __init__(self, actor: Actor, critic: Critic, options: DDPGOptions) -> None:
        super().__init__(actor, options.recalibration_batches, options.batch_size)
        self.options = options
        self.updates = 0
        self.actor, self.critic = actor, critic
        self.actor_target, self.critic_target = frozen_copy(actor), frozen_copy(critic)
        self._critic_follower = Follower(self.critic_target, critic, options.tau)
        self.actor_optimiser = adam(actor, options.actor_learning_rate)
        self.critic_optimiser = adam(critic, options.critic_learning_rate, options.critic_weight_decay)

    def act(self, obs: NDArray[Any], rng: np.random.Generator | None) -> NDArray[Any]:
        return self.explore(obs, rng, self.options.exploration_noise)

    # The two steps that another kind of target actor does differently
    def next_batch(self, replay: ReplayBuffer, rng: np.random.Generator) -> Batch:
        return replay.sample(self.options.batch_size, rng, self.device)

    @cached_property
    def _actor_follower(self) -> Follower:
        return Follower(self.actor_target, self.actor, self.options.tau)

    def follow_actor(self) -> None:
        self._actor_follower.step()

    def update(self, replay: ReplayBuffer, rng: np.random.Generator) -> dict[str, Tensor]:
        options = self.options
        obs, action, reward, next_obs, terminated = self.next_batch(replay, rng)
        with torch.no_grad():
            next_q = self.critic_target(next_obs, self.actor_target(next_obs))
            target = reward + options.gamma * (1 - terminated) * next_q
        q = self.critic(obs, action)
        critic_loss = (q - target).square().mean()
        descend(self.critic_optimiser, critic_loss)
        actor_loss = -self.critic(obs, self.actor(obs)).mean()
        descend(self.actor_optimiser, actor_loss)
        self.follow_actor()
        self._critic_follower.step()
        self.updates += 1
        return {
            "losses/qf_loss": critic_loss.detach(),
            "losses/qf_values": q.detach().mean(),
            "losses/actor_loss": actor_loss.detach(),
        }

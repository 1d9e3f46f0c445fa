"""DDPG: deep deterministic policy gradient (Lillicrap et al., 2016), with a spiking or an ordinary actor."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from carebn.algorithm.base import Agent, Parts
from carebn.algorithm.checks import check_at_least
from carebn.algorithm.optimiser import adam, descend
from carebn.algorithm.proxy import ProxyTarget
from carebn.algorithm.record import Algorithm, Setup
from carebn.algorithm.replay import ReplayBuffer
from carebn.algorithm.target_actor import ActorCriticWithTargetActor
from carebn.network import Actor, Critic


@dataclass(frozen=True)
class DDPGOptions:
    """Options of DDPG; the defaults are the paper's Table 7."""

    actor_learning_rate: float = 1e-4
    critic_learning_rate: float = 1e-3
    critic_weight_decay: float = 0.01  # added to the gradient by Adam, not decoupled
    batch_size: int = 256
    gamma: float = 0.99
    tau: float = 0.001
    exploration_noise: float = 0.1  # relative to half the action range
    recalibration_batches: int = 100

    def __post_init__(self) -> None:
        check_at_least(self, 0, "critic_weight_decay")


class DDPG(ActorCriticWithTargetActor):
    """The DDPG agent: an actor, a critic and a slow copy of each; ``update`` is one training step."""

    def __init__(self, actor: Actor, critic: Critic, options: DDPGOptions) -> None:
        super().__init__(actor, critic, options)
        self.options, self.critic = options, critic
        self.critic_optimiser = adam(critic, options.critic_learning_rate, options.critic_weight_decay)

    def parts(self) -> Parts:
        return super().parts() | {"critic": self.critic, "critic_optimiser": self.critic_optimiser}

    def update(self, replay: ReplayBuffer, rng: np.random.Generator) -> dict[str, Tensor]:
        options = self.options
        obs, action, reward, next_obs, terminated = self.next_batch(replay, rng)
        with torch.no_grad():
            next_q = self.critic_target(next_obs, self.actor_target(next_obs))
            target = reward + options.gamma * (1 - terminated) * next_q
        q = self.critic(obs, action)
        critic_loss = (q - target).square().mean()
        descend(self.critic_optimiser, critic_loss)
        with self.hearing_spikes():
            new_action = self.actor(obs)
        actor_loss = -self.critic(obs, new_action).mean()
        descend(self.actor_optimiser, actor_loss, spike_loss=self.spike_loss())
        self.follow_actor()
        self._critic_follower.step()
        self.updates += 1
        return {
            "losses/qf_loss": critic_loss.detach(),
            "losses/qf_values": q.detach().mean(),
            "losses/actor_loss": actor_loss.detach(),
        } | self.spikes_told()


class ProxyDDPG(ProxyTarget, DDPG):
    """DDPG whose target actor is a network that imitates the actor."""


def build(setup: Setup) -> Agent:
    critic = Critic(setup.obs_dim, setup.actions, hidden=(400, 300), action_layer=1).to(setup.device)
    if setup.proxy is not None:
        return ProxyDDPG(setup.policy, critic, setup.options, *setup.proxy())
    return DDPG(setup.policy, critic, setup.options)


RECORD = Algorithm(DDPGOptions, build, target_actor=True, spike_penalty=True)

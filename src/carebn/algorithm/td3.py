"""TD3: twin delayed deterministic policy gradient (Fujimoto et al., 2018), with a spiking or an ordinary actor."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from carebn.algorithm.base import Agent, Parts, normal
from carebn.algorithm.checks import check_at_least
from carebn.algorithm.optimiser import adam, descend
from carebn.algorithm.proxy import ProxyTarget
from carebn.algorithm.record import Algorithm, Setup
from carebn.algorithm.replay import ReplayBuffer
from carebn.algorithm.target_actor import ActorCriticWithTargetActor
from carebn.network import Actor, TwinCritic


@dataclass(frozen=True)
class TD3Options:
    """Options of TD3; the defaults are the paper's Table 8."""

    actor_learning_rate: float = 3e-4
    critic_learning_rate: float = 3e-4
    batch_size: int = 256
    gamma: float = 0.99
    tau: float = 0.005
    exploration_noise: float = 0.1  # noise is relative to half the action range
    policy_noise: float = 0.2
    noise_clip: float = 0.5
    policy_frequency: int = 2
    recalibration_batches: int = 100

    def __post_init__(self) -> None:
        check_at_least(self, 0, "policy_noise", "noise_clip")
        check_at_least(self, 1, "policy_frequency")


class TD3(ActorCriticWithTargetActor):
    """The TD3 agent: an actor, two critics and a slow copy of each; ``update`` is one training step."""

    def __init__(self, actor: Actor, critic: TwinCritic, options: TD3Options) -> None:
        super().__init__(actor, critic, options)
        self.options, self.critic = options, critic
        self.critic_optimiser = adam(critic, options.critic_learning_rate)

    def parts(self) -> Parts:
        return super().parts() | {"critic": self.critic, "critic_optimiser": self.critic_optimiser}

    def update(self, replay: ReplayBuffer, rng: np.random.Generator) -> dict[str, Tensor]:
        options, bounds = self.options, self.actor.bounds
        obs, action, reward, next_obs, terminated = self.next_batch(replay, rng)
        with torch.no_grad():
            # Target policy smoothing
            noise = normal(rng, action).mul_(options.policy_noise).clamp_(-options.noise_clip, options.noise_clip)
            next_action = bounds.clip(self.actor_target(next_obs) + noise * bounds.reach)
            # Clipped double Q-learning
            next_q = self.critic_target(next_obs, next_action).amin(0)
            target = reward + options.gamma * (1 - terminated) * next_q
        q, critic_loss, gradients = self.critic.squared_error(obs, action, target)
        self.critic_optimiser.update(gradients)
        losses = {"losses/qf_loss": critic_loss, "losses/qf_values": q.mean()}
        # Delayed policy updates
        self.updates += 1
        if self.updates % options.policy_frequency == 0:
            with self.hearing_spikes():
                new_action = self.actor(obs)
            value, slope = self.critic.first_and_slope(obs, new_action.detach())
            # the loss is the mean of −value
            descend(self.actor_optimiser, new_action, slope / -len(obs), self.spike_loss())
            losses |= {"losses/actor_loss": -value.mean()} | self.spikes_told()
            self.follow_actor()
            self._critic_follower.step()
        return losses


class ProxyTD3(ProxyTarget, TD3):
    """TD3 whose target actor is a network that imitates the actor."""


def build(setup: Setup) -> Agent:
    critic = TwinCritic(setup.obs_dim, setup.actions).to(setup.device)
    if setup.proxy is not None:
        return ProxyTD3(setup.policy, critic, setup.options, *setup.proxy())
    return TD3(setup.policy, critic, setup.options)


RECORD = Algorithm(TD3Options, build, target_actor=True, spike_penalty=True)

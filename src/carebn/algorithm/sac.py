"""SAC: soft actor-critic (Haarnoja et al., 2018). The mean comes from the actor, the spread from an ordinary MLP."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from carebn.algorithm.base import ActorCritic, Agent, Parts, frozen_copy, normal
from carebn.algorithm.checks import check_above
from carebn.algorithm.optimiser import adam, descend
from carebn.algorithm.record import Algorithm, Sampling, Setup
from carebn.algorithm.replay import ReplayBuffer
from carebn.network import Actor, TwinCritic
from carebn.norm.polyak import Follower

LOG_STD_RANGE = (-20.0, 2.0)


@dataclass(frozen=True)
class SACOptions:
    """Options of SAC; the defaults are the paper's Table 9."""

    actor_learning_rate: float = 3e-4
    critic_learning_rate: float = 3e-4
    alpha_learning_rate: float = 3e-4
    batch_size: int = 256
    gamma: float = 0.99
    tau: float = 0.001
    recalibration_batches: int = 100

    def __post_init__(self) -> None:
        check_above(self, 0, "alpha_learning_rate")


def log_std_network(obs_dim: int, actions: int, hidden: int = 256) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(obs_dim, hidden),
        nn.ReLU(),
        nn.Linear(hidden, hidden),
        nn.ReLU(),
        nn.Linear(hidden, actions),
    )


class GaussianPolicy(nn.Module):
    """An action drawn around the actor's potential, squashed into the bounds, with its log-probability.

    Only the actor is deployed: the log-std network is there for training and exploring.
    """

    def __init__(self, actor: Actor, obs_dim: int, hidden: int = 256) -> None:
        super().__init__()
        self.actor = actor
        self.log_std = log_std_network(obs_dim, actor.bounds.middle.numel(), hidden)

    def sample(self, obs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Actions [B, action_dim] for ``obs`` and standard normal ``noise`` of that shape; log-probabilities [B]."""
        log_std = self.log_std(obs).clamp(*LOG_STD_RANGE)
        u = self.actor.potential(obs) + log_std.exp() * noise
        # log N(u) minus the logarithm of the slope of reach·tanh; the slope 1 − tanh² in a form that cannot underflow
        log_slope = 2 * (math.log(2) - u - nn.functional.softplus(-2 * u)) + self.actor.bounds.reach.log()
        log_prob = -0.5 * noise.square() - log_std - 0.5 * math.log(2 * math.pi) - log_slope
        return self.actor.bounds(u), log_prob.sum(-1)


class SAC(ActorCritic):
    """The SAC agent: a random policy, two critics with slow copies, a temperature; ``update`` is one training step."""

    def __init__(self, policy: GaussianPolicy, critic: TwinCritic, options: SACOptions) -> None:
        super().__init__(policy.actor, options.recalibration_batches, options.batch_size)
        self.options = options
        self.gaussian, self.critic = policy, critic
        self.critic_target = frozen_copy(critic)
        self._critic_follower = Follower(self.critic_target, critic, options.tau)
        self.log_alpha = nn.ParameterDict({"value": nn.Parameter(torch.zeros(1, device=self.device))})
        self.target_entropy = -policy.actor.bounds.middle.numel()
        self.actor_optimiser = adam(policy, options.actor_learning_rate)
        self.critic_optimiser = adam(critic, options.critic_learning_rate)
        self.alpha_optimiser = adam(self.log_alpha, options.alpha_learning_rate)

    def parts(self) -> Parts:
        return {
            "gaussian": self.gaussian,
            "actor_optimiser": self.actor_optimiser,
            "critic": self.critic,
            "critic_target": self.critic_target,
            "critic_optimiser": self.critic_optimiser,
            "log_alpha": self.log_alpha,
            "alpha_optimiser": self.alpha_optimiser,
        }

    def act(self, obs: NDArray[Any], rng: np.random.Generator | None) -> NDArray[Any]:
        if rng is None:
            return self.explore(obs, None, 0.0)
        with torch.no_grad(), self.inference_mode():
            tensor = torch.as_tensor(obs, dtype=torch.float32, device=self.device)
            noise = normal(rng, tensor.new_empty(len(obs), self.action_dim))
            return self.gaussian.sample(tensor, noise)[0].cpu().numpy()

    def update(self, replay: ReplayBuffer, rng: np.random.Generator) -> dict[str, Tensor]:
        options = self.options
        obs, action, reward, next_obs, terminated = replay.sample(options.batch_size, rng, self.device)
        alpha = self.log_alpha["value"].detach().exp()
        with torch.no_grad():
            with self.inference_mode():
                next_action, next_log_prob = self.gaussian.sample(next_obs, normal(rng, action))
            next_value = self.critic_target(next_obs, next_action).amin(0) - alpha * next_log_prob
            target = reward + options.gamma * (1 - terminated) * next_value
        q, critic_loss, gradients = self.critic.squared_error(obs, action, target)
        self.critic_optimiser.update(gradients)
        with self.hearing_spikes():
            new_action, log_prob = self.gaussian.sample(obs, normal(rng, action))
        actor_loss = (alpha * log_prob - self.critic(obs, new_action).amin(0)).mean()
        descend(self.actor_optimiser, actor_loss, spike_loss=self.spike_loss())
        alpha_loss = -(self.log_alpha["value"].exp() * (log_prob.detach() + self.target_entropy)).mean()
        descend(self.alpha_optimiser, alpha_loss)
        self._critic_follower.step()
        self.updates += 1
        return {
            "losses/qf_loss": critic_loss,
            "losses/qf_values": q.mean(),
            "losses/actor_loss": actor_loss.detach(),
            "losses/alpha": alpha[0],
            "losses/alpha_loss": alpha_loss.detach(),
        } | self.spikes_told()


def build(setup: Setup) -> Agent:
    critic = TwinCritic(setup.obs_dim, setup.actions).to(setup.device)
    return SAC(GaussianPolicy(setup.policy, setup.obs_dim).to(setup.device), critic, setup.options)


def draw(actor: Actor, log_std: nn.Module, potential: Tensor, obs: Tensor, rng: np.random.Generator) -> Tensor:
    """As ``GaussianPolicy.sample`` does, from a policy that was saved."""
    std: Tensor = log_std(obs).clamp(*LOG_STD_RANGE).exp()
    action: Tensor = actor.bounds(potential + std * normal(rng, std))
    return action


RECORD = Algorithm(
    SACOptions, build, spike_penalty=True, sampling=Sampling("log_std", "gaussian.log_std", log_std_network, draw)
)

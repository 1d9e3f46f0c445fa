"""An algorithm as a user may add one: a single critic without targets, and a spread of actions that is learnt too."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from carebn.algorithm import ALGORITHMS, Agent, Algorithm, Parts, ReplayBuffer, Sampling, Setup
from carebn.algorithm.base import ActorCritic, normal
from carebn.algorithm.optimiser import adam, descend
from carebn.network import Actor, Critic


@dataclass(frozen=True)
class ToyOptions:
    actor_learning_rate: float = 1e-3
    critic_learning_rate: float = 2e-3
    batch_size: int = 16
    gamma: float = 0.9
    recalibration_batches: int = 2
    pull: float = 0.01  # of actions towards zero
    critic_hidden: tuple[int, ...] = (8,)

    def __post_init__(self) -> None:
        if self.pull < 0:
            raise ValueError(f"pull must not be negative, got {self.pull}")


class Toy(ActorCritic):
    def __init__(self, actor: Actor, critic: Critic, spread: nn.Module, options: ToyOptions) -> None:
        super().__init__(actor, options.recalibration_batches, options.batch_size)
        self.options, self.actor, self.critic, self.spread = options, actor, critic, spread
        self.slow_actor, self.slow_critic = adam(actor, options.actor_learning_rate), adam(critic, 1e-3)
        self.slow_spread = adam(spread, 1e-2)

    def parts(self) -> Parts:
        networks: Parts = {"actor": self.actor, "critic": self.critic, "width": self.spread}
        return networks | {
            "actor_adam": self.slow_actor,
            "critic_adam": self.slow_critic,
            "width_adam": self.slow_spread,
        }

    def act(self, obs: NDArray[Any], rng: np.random.Generator | None) -> NDArray[Any]:
        return self.explore(obs, rng, 0.2)

    def update(self, replay: ReplayBuffer, rng: np.random.Generator) -> dict[str, Tensor]:
        obs, action, reward, next_obs, terminated = replay.sample(self.options.batch_size, rng, self.device)
        with torch.no_grad(), self.inference_mode():
            target = reward + self.options.gamma * (1 - terminated) * self.critic(next_obs, self.actor(next_obs))
        loss = (self.critic(obs, action) - target).square().mean()
        descend(self.slow_critic, loss)
        chosen = self.actor(obs)
        descend(self.slow_actor, self.options.pull * chosen.square().mean() - self.critic(obs, chosen).mean())
        descend(self.slow_spread, (self.spread(obs) + 1).square().mean())
        self.updates += 1
        return {"losses/toy": loss.detach()}


def build(setup: Setup) -> Agent:
    critic = Critic(setup.obs_dim, setup.actions, hidden=setup.options.critic_hidden, action_layer=0).to(setup.device)
    return Toy(setup.policy, critic, make_spread(setup.obs_dim, setup.actions).to(setup.device), setup.options)


def make_spread(obs_dim: int, actions: int) -> nn.Module:
    return nn.Linear(obs_dim, actions)


def draw(actor: Actor, spread: nn.Module, potential: Tensor, obs: Tensor, rng: np.random.Generator) -> Tensor:
    drawn: Tensor = actor.bounds(potential + spread(obs).exp() * normal(rng, potential))
    return drawn


ALGORITHMS["toy"] = Algorithm(ToyOptions, build, neuron="lif", sampling=Sampling("spread", "width", make_spread, draw))

"""Proxy target (Xu et al., 2025): an ordinary network that imitates the spiking actor in place of its target copy.

Each update begins with K steps of imitation, min ‖π'(s) − π(s)‖² over the proxy π' on K fresh batches; the last of them
is the batch of the algorithm's own update, whose bootstrap takes π'(s'). Critic targets follow as they always do.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from carebn.algorithm.base import Parts
from carebn.algorithm.optimiser import adam, descend
from carebn.algorithm.replay import Batch, ReplayBuffer
from carebn.algorithm.target_actor import ActorCriticWithTargetActor
from carebn.network import Actor, ANNActor


@dataclass(frozen=True)
class ProxyOptions:
    """Its authors' setting for LIF neurons; see ``proxy_table`` for the others."""

    hidden: tuple[int, ...] = (512, 512)
    learning_rate: float = 1e-3
    updates: int = 3  # K, imitation steps per update


def proxy_table(neuron: str, env_id: str) -> ProxyOptions:
    """Sizes and learning rates as published, by neuron and, for CLIF, by task."""
    if neuron == "lif":
        return ProxyOptions()
    if neuron == "clif" and not env_id.startswith("InvertedDoublePendulum"):
        return ProxyOptions(hidden=(800, 600), learning_rate=3e-3)
    return ProxyOptions(learning_rate=3e-3)


class ProxyTarget(ActorCriticWithTargetActor):
    """What the proxy changes in an algorithm with a target actor: ``class ProxyTD3(ProxyTarget, TD3)``."""

    actor_target: Actor

    def __init__(self, actor: Any, critic: Any, options: Any, proxy: ANNActor, proxy_options: ProxyOptions) -> None:
        super().__init__(actor, critic, options)
        self.imitation_steps, self.batch_size = proxy_options.updates, options.batch_size
        self.actor_target = proxy
        self.proxy_optimiser = adam(proxy, proxy_options.learning_rate)
        self.proxy_loss = torch.zeros(())

    def parts(self) -> Parts:
        return super().parts() | {"proxy_optimiser": self.proxy_optimiser}

    def next_batch(self, replay: ReplayBuffer, rng: np.random.Generator) -> Batch:
        """K imitation steps, each on a batch of its own; the last batch is handed on."""
        losses = []
        for _ in range(self.imitation_steps):
            batch = replay.sample(self.batch_size, rng, self.device)
            with torch.no_grad(), self.inference_mode():
                action = self.policy(batch.obs)
            loss = (self.actor_target(batch.obs) - action).square().mean()
            descend(self.proxy_optimiser, loss)
            losses.append(loss.detach())
        self.proxy_loss = torch.stack(losses).mean()
        return batch

    def follow_actor(self) -> None:
        """Nothing: the proxy has learnt already."""

    def update(self, replay: ReplayBuffer, rng: np.random.Generator) -> dict[str, Tensor]:
        losses: dict[str, Tensor] = super().update(replay, rng)  # type: ignore[misc]  # of the algorithm mixed with
        return losses | {"losses/proxy_loss": self.proxy_loss}

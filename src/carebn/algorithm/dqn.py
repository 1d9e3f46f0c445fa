"""DQN: deep Q-learning (Mnih et al., 2015), with a spiking or an ordinary Q-network."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from carebn.algorithm.base import Agent, BaseAgent, Parts, frozen_copy
from carebn.algorithm.checks import check_at_least
from carebn.algorithm.optimiser import adam, descend
from carebn.algorithm.record import Algorithm, Setup
from carebn.algorithm.replay import ReplayBuffer
from carebn.network import QNetwork
from carebn.norm import polyak_


@dataclass(frozen=True)
class DQNOptions:
    """Options of DQN; the defaults are the paper's Table 6."""

    learning_rate: float = 1e-4
    batch_size: int = 128
    gamma: float = 0.99
    target_interval: int = 2000  # updates between two copies to the target network
    start_epsilon: float = 1.0
    end_epsilon: float = 0.1
    epsilon_decay_steps: int = 20_000
    recalibration_batches: int = 100

    def __post_init__(self) -> None:
        check_at_least(self, 0, "start_epsilon", "end_epsilon", most=1)


class DQN(BaseAgent):
    """The DQN agent: a Q-network and its target copy; ``update`` is one training step."""

    def __init__(self, q_network: QNetwork, actions: int, options: DQNOptions) -> None:
        super().__init__(q_network, options.recalibration_batches, options.batch_size)
        self.options = options
        self.actions = actions
        self.q_network = q_network
        self.q_target = frozen_copy(q_network)
        self.optimiser = adam(q_network, options.learning_rate)

    def parts(self) -> Parts:
        return {"q_network": self.q_network, "q_target": self.q_target, "optimiser": self.optimiser}

    @property
    def epsilon(self) -> float:
        """Share of random actions after the updates so far."""
        options = self.options
        done = min(1.0, self.updates / options.epsilon_decay_steps)
        return options.start_epsilon + done * (options.end_epsilon - options.start_epsilon)

    def act(self, obs: NDArray[Any], rng: np.random.Generator | None) -> NDArray[Any]:
        exploring = np.zeros(len(obs), np.bool_) if rng is None else rng.random(len(obs)) < self.epsilon
        drawn = rng.integers(0, self.actions, len(obs)) if rng is not None and exploring.any() else 0
        if rng is not None and exploring.all():
            return np.asarray(drawn)
        with torch.no_grad(), self.inference_mode():
            best: Tensor = self.q_network(torch.as_tensor(obs, device=self.device)).argmax(-1)
        return np.where(exploring, drawn, best.cpu().numpy())

    def update(self, replay: ReplayBuffer, rng: np.random.Generator) -> dict[str, Tensor]:
        options = self.options
        obs, action, reward, next_obs, terminated = replay.sample(options.batch_size, rng, self.device)
        with torch.no_grad():
            next_q = self.q_target(next_obs).amax(-1)
            target = reward + options.gamma * (1 - terminated) * next_q
        with self.hearing_spikes():
            q = self.q_network(obs).gather(1, action[:, None]).squeeze(1)
        loss = (q - target).square().mean()
        descend(self.optimiser, loss, spike_loss=self.spike_loss())
        self.updates += 1
        if self.updates % options.target_interval == 0:
            polyak_(self.q_target, self.q_network, 1.0)
        return {"losses/td_loss": loss.detach(), "losses/q_values": q.detach().mean()} | self.spikes_told()


def build(setup: Setup) -> Agent:
    return DQN(setup.policy, setup.actions, setup.options)


RECORD = Algorithm(
    DQNOptions, build, discrete=True, neuron="lif", spike_penalty=True, called={"learning_rate": "critic_learning_rate"}
)

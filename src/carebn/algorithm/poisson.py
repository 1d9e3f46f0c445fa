"""Agents whose encoder fires at random: every draw comes from the run's own streams, so that a run can be repeated."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from carebn.algorithm.base import Agent
from carebn.algorithm.replay import ReplayBuffer
from carebn.network.randomness import seed_of, seeded


def _draw(rng: np.random.Generator) -> int:
    return int(rng.integers(2**63))


class PoissonAgent:
    """Training and exploring draw from the generators they are given; a greedy action is drawn from its observation."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.policy: nn.Module = agent.policy

    def act(self, obs: NDArray[Any], rng: np.random.Generator | None) -> NDArray[Any]:
        if rng is not None:
            with seeded(_draw(rng)):
                return self.agent.act(obs, rng)
        actions = []
        for row in obs:
            with seeded(seed_of(row)):
                actions.append(self.agent.act(row[None], None))
        return np.concatenate(actions)

    def update(self, replay: ReplayBuffer, rng: np.random.Generator) -> dict[str, Tensor]:
        with seeded(_draw(rng)):
            return self.agent.update(replay, rng)

    def recalibrate(self, replay: ReplayBuffer, rng: np.random.Generator) -> bool:
        with seeded(_draw(rng)):
            return self.agent.recalibrate(replay, rng)

    def state_dict(self) -> dict[str, Tensor]:
        return self.agent.state_dict()

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.agent.load_state_dict(state)

"""Agents that see running z-scores in place of observations, as PopSAN, MDC-SAN and ILC-SAN do in their own papers."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from carebn.algorithm.base import Agent
from carebn.algorithm.replay import Batch, ReplayBuffer
from carebn.network import SpikingActor, ZScore

INTERVAL = 50  # observations that enter the statistics at a time


class StandardisedReplay(ReplayBuffer):
    """The same transitions; observations come out standardised by the statistics as they are now."""

    def __init__(self, replay: ReplayBuffer, zscore: ZScore) -> None:
        vars(self).update(vars(replay))
        self.zscore = zscore

    def sample(self, batch: int, rng: np.random.Generator, device: torch.device | str = "cpu") -> Batch:
        rows = super().sample(batch, rng, device)
        return rows._replace(obs=self.zscore(rows.obs), next_obs=self.zscore(rows.next_obs))

    def sample_obs(self, batch: int, rng: np.random.Generator, device: torch.device | str = "cpu") -> Tensor:
        standardised: Tensor = self.zscore(super().sample_obs(batch, rng, device))
        return standardised


class StandardisedAgent:
    """Actor, critic and their targets share one standardisation, which follows the observations of training.

    ``policy`` is an actor of the same shape as the agent's that standardises what it is given; it takes over the
    agent's own weights and is what gets deployed. The statistics take in the transitions of the replay in order,
    ``INTERVAL`` at a time, so that a resumed run goes through the same ones.
    """

    policy: nn.Module

    def __init__(self, agent: Agent, policy: SpikingActor) -> None:
        inner = agent.policy
        assert isinstance(inner, SpikingActor)
        assert inner.encoder.observation == "raw"
        assert policy.encoder.zscore is not None
        self.agent, self.policy, self.zscore = agent, policy, policy.encoder.zscore
        policy.layers, policy.decoder, policy.bounds = inner.layers, inner.decoder, inner.bounds
        policy.encoder.mean, policy.encoder.std = inner.encoder.mean, inner.encoder.std
        self.device = inner.encoder.mean.device
        self.merged = 0  # transitions that the statistics have passed

    def _catch_up(self, replay: ReplayBuffer) -> None:
        while replay.added - self.merged >= INTERVAL:
            held_from = max(self.merged, replay.added - replay.capacity)
            self.merged += INTERVAL
            if held_from < self.merged:
                self.zscore.update(torch.from_numpy(replay.rows(held_from, self.merged)["obs"]).to(self.device))

    def act(self, obs: NDArray[Any], rng: np.random.Generator | None) -> NDArray[Any]:
        with torch.no_grad():
            standardised = self.zscore(torch.as_tensor(obs, dtype=torch.float32, device=self.device))
        return self.agent.act(standardised.cpu().numpy(), rng)

    def update(self, replay: ReplayBuffer, rng: np.random.Generator) -> dict[str, Tensor]:
        self._catch_up(replay)
        return self.agent.update(StandardisedReplay(replay, self.zscore), rng)

    def recalibrate(self, replay: ReplayBuffer, rng: np.random.Generator) -> bool:
        self._catch_up(replay)
        return self.agent.recalibrate(StandardisedReplay(replay, self.zscore), rng)

    def state_dict(self) -> dict[str, Tensor]:
        own = {"merged": torch.tensor(self.merged)} | self.zscore.state_dict()
        return self.agent.state_dict() | {f"zscore.{k}": v.detach().cpu().clone() for k, v in own.items()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        own = {k.removeprefix("zscore."): v for k, v in state.items() if k.startswith("zscore.")}
        self.merged = int(own.pop("merged"))
        self.zscore.load_state_dict(own)
        self.agent.load_state_dict(state)

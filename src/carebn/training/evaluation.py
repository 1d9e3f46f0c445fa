"""Noise-free episodes with fixed, distinct seeds, played side by side as one batch."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from carebn.training.environment import Env, check_step

Act = Callable[[NDArray[Any]], NDArray[Any]]


class Evaluation(NamedTuple):
    returns: list[float]
    lengths: list[int]

    @property
    def mean(self) -> float:
        return float(np.mean(self.returns))

    @property
    def std(self) -> float:
        return float(np.std(self.returns))


def evaluate(act: Act, envs: Sequence[Env], env_seeds: Sequence[int], env_id: str) -> Evaluation:
    """One episode in each environment, the i-th started from the i-th seed."""
    observations = [env.reset(seed=seed)[0] for env, seed in zip(envs, env_seeds, strict=True)]
    for obs in observations:
        check_step(env_id, obs, 0.0)
    returns, lengths = [0.0] * len(envs), [0] * len(envs)
    running = list(range(len(envs)))
    while running:
        actions = act(np.stack([observations[i] for i in running]))
        still = []
        for i, action in zip(running, actions, strict=True):
            observations[i], reward, terminated, truncated, _ = envs[i].step(action)
            check_step(env_id, observations[i], float(reward))
            returns[i] += float(reward)
            lengths[i] += 1
            if not (terminated or truncated):
                still.append(i)
        running = still
    return Evaluation(returns, lengths)

"""Noise-free episodes with fixed, distinct seeds, played side by side as one batch."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from carebn.training.environment import Env, check_step, reset, step

Act = Callable[[NDArray[Any]], NDArray[Any]]
# (observations, state) → (actions, state): state has a row per episode, and is None at the start and if there is none
Decide = Callable[[NDArray[Any], NDArray[Any] | None], tuple[NDArray[Any], NDArray[Any] | None]]


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
    """One episode in each environment, the i-th started from the i-th seed, by what acts on the observation alone."""
    return play(lambda obs, _: (act(obs), None), envs, env_seeds, env_id)


def play(decide: Decide, envs: Sequence[Env], env_seeds: Sequence[int], env_id: str) -> Evaluation:
    """The same by what may carry something from one decision of an episode to the next."""
    observations = [reset(env, env_id, seed) for env, seed in zip(envs, env_seeds, strict=True)]
    for obs in observations:
        check_step(env_id, obs, 0.0)
    returns, lengths = [0.0] * len(envs), [0] * len(envs)
    running = list(range(len(envs)))
    state = None
    while running:
        actions, state = decide(np.stack([observations[i] for i in running]), state)
        going_on = []
        for i, action in zip(running, actions, strict=True):
            observations[i], reward, terminated, truncated = step(envs[i], env_id, action)
            check_step(env_id, observations[i], reward)
            returns[i] += reward
            lengths[i] += 1
            going_on.append(not (terminated or truncated))
        running = [i for i, on in zip(running, going_on, strict=True) if on]
        state = None if state is None else state[going_on]  # a row leaves with its episode
    return Evaluation(returns, lengths)

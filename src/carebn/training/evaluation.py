"""Noise-free episodes with fixed, distinct seeds, played side by side as one batch."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from carebn.training.environment import Env, check_step, reset, step

Act = Callable[[NDArray[Any]], NDArray[Any]]
# (observations, state) → (actions, state): state has a row per episode, and is None at the start and if there is none
Decide = Callable[[NDArray[Any], NDArray[Any] | None], tuple[NDArray[Any], NDArray[Any] | None]]


MAX_STEPS = 108_000  # of an episode without a limit of its own: half an hour of a game, as Atari's own limit


class Evaluation(NamedTuple):
    """What noise-free episodes gave: the return and the steps of each, and how many were cut."""

    returns: list[float]
    lengths: list[int]
    cut: int = 0  # episodes that were ended at the most steps allowed

    @property
    def mean(self) -> float:
        """Of the returns."""
        return float(np.mean(self.returns))

    @property
    def std(self) -> float:
        """Standard deviation of the returns."""
        return float(np.std(self.returns))


def episode_limit(env: Env, asked: int | None) -> int:
    """Steps after which an episode is cut: as asked, else what the environment itself allows, else ``MAX_STEPS``."""
    own = None if env.spec is None else env.spec.max_episode_steps
    return asked or own or MAX_STEPS


def cut_short(result: Evaluation, env_id: str, option: str, asked_by: str = "") -> str:
    """A sentence if episodes were cut; empty if all came to their own end. ``option`` chooses how long they may be,
    ``asked_by`` is what has chosen it already: who asked for a cut needs no advice."""
    if not result.cut:
        return ""
    which, steps = f"{result.cut} of {len(result.lengths)} episodes of {env_id}", f"{max(result.lengths):,} steps"
    if asked_by:
        otherwise = "" if asked_by == option else f"; {option} chooses otherwise"
        return f"{which} were cut after {steps}, as {asked_by} says{otherwise}"
    return (
        f"{which} had no end and were cut after {steps}; register it with max_episode_steps, or choose how many with "
        f"{option}"
    )


def asked_to_cut(max_steps: int | None, eval_max_steps: int | None) -> str:
    """Which option of a command that plays, or of the run that it plays, says how long episodes may be; maybe none."""
    return "--max-steps" if max_steps else "the run's --eval-max-steps" if eval_max_steps else ""


def evaluate(
    act: Act, envs: Sequence[Env], env_seeds: Sequence[int], env_id: str, max_steps: int | None = None
) -> Evaluation:
    """One episode in each environment, the i-th started from the i-th seed, by what acts on the observation alone."""
    return play(lambda obs, _: (act(obs), None), envs, env_seeds, env_id, max_steps)


def play(
    decide: Decide, envs: Sequence[Env], env_seeds: Sequence[int], env_id: str, max_steps: int | None = None
) -> Evaluation:
    """The same by what may carry something from one decision of an episode to the next."""
    most, cut = [episode_limit(env, max_steps) for env in envs], 0
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
            over = terminated or truncated
            cut += not over and lengths[i] >= most[i]
            going_on.append(not over and lengths[i] < most[i])
        running = [i for i, on in zip(running, going_on, strict=True) if on]
        state = None if state is None else state[going_on]  # a row leaves with its episode
    return Evaluation(returns, lengths, cut)

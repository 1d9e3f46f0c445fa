"""Observations of any kind as a flat row of numbers, by Gymnasium's own rules; actions numbered from zero.

A Dict or Tuple is its parts one after the other, a Discrete or MultiDiscrete number is one-hot.
"""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple
from gymnasium.wrappers import FlattenObservation
from numpy.typing import NDArray

Env = gym.Env[Any, Any]
MOST_INPUTS = 100_000
IMAGE_SIDE = 32  # a matrix of bytes with sides of at least this many is a picture


class FromZero(gym.ActionWrapper[Any, Any, Any]):
    """The actions of Discrete(n, start) as 0 … n − 1."""

    def __init__(self, env: Env, actions: Discrete) -> None:
        super().__init__(env)
        self.action_space = Discrete(int(actions.n))
        self.start = int(actions.start)

    def action(self, action: Any) -> Any:
        return action + self.start


def is_flat(space: Space[Any]) -> bool:
    return isinstance(space, Box) and len(space.shape) == 1


def flat_space(space: Space[Any], env_id: str) -> Box:
    """What a network sees of such observations, or one sentence about why it cannot."""
    for part in _parts(space):
        if isinstance(part, Box) and part.dtype == np.uint8 and _is_image(part.shape):
            raise ValueError(
                f"{env_id} has images as observations, {part}; networks here read rows of numbers: use RAM "
                f"observations (Atari: obs_type=ram), or a --wrapper module:Class of your own that returns features"
            )
        if not isinstance(part, (Box, Discrete, MultiBinary, MultiDiscrete)):
            raise ValueError(
                f"{env_id} has observations {space}; what is needed is a Box, Discrete, MultiBinary or MultiDiscrete "
                f"space, or a Dict or Tuple of them: a --wrapper module:Class of your own can make one"
            )
    size = sum(_size(part) for part in _parts(space))
    if not 0 < size <= MOST_INPUTS:
        raise ValueError(f"{env_id} has observations of {size:,} numbers when flat; 1 to {MOST_INPUTS:,} can be read")
    if isinstance(space, Box) and len(space.shape) == 1:
        return space
    flat = gym.spaces.flatten_space(space)
    assert isinstance(flat, Box)
    return flat


def with_flat_spaces(env: Env, env_id: str) -> Env:
    """The environment with flat observations and actions from zero; one that has both already is left as it is."""
    flat_space(env.observation_space, env_id)
    if not is_flat(env.observation_space):
        env = FlattenObservation(env)
    if isinstance(env.action_space, Discrete) and env.action_space.start != 0:
        env = FromZero(env, env.action_space)
    return env


def own_spaces(env: Env) -> tuple[Space[Any], Space[Any]]:
    """Observations and actions as they are without ``with_flat_spaces``."""
    actions = env.action_space
    if isinstance(env, FromZero):
        env = env.env
        actions = env.action_space
    return (env.env if isinstance(env, FlattenObservation) else env).observation_space, actions


def flattened(space: Space[Any], observation: Any) -> NDArray[Any]:
    """One observation of the space made flat; what is flat already, one or a batch, stays as it is."""
    if not is_flat(space) and (
        isinstance(observation, (dict, tuple)) or (space.shape is not None and np.shape(observation) == space.shape)
    ):
        try:
            return np.asarray(gym.spaces.flatten(space, observation))
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise ValueError(f"expected an observation of {space}, got {observation!r}") from error
    return np.asarray(observation)


def _parts(space: Space[Any]) -> list[Space[Any]]:
    if isinstance(space, Dict):
        return [part for inner in space.spaces.values() for part in _parts(inner)]
    if isinstance(space, Tuple):
        return [part for inner in space.spaces for part in _parts(inner)]
    return [space]


def _is_image(shape: tuple[int, ...]) -> bool:
    return len(shape) >= 3 or (len(shape) == 2 and min(shape) >= IMAGE_SIDE)


def _size(part: Space[Any]) -> int:
    """Counted before it is made: a Discrete space of a billion is a billion numbers."""
    if isinstance(part, Discrete):
        return int(part.n)
    if isinstance(part, MultiDiscrete):
        return int(np.sum(part.nvec, dtype=object))
    size = 1
    for length in part.shape or ():
        size *= int(length)
    return size

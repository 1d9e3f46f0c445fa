"""Environments with spaces of every kind, and wrappers, as a user may have them in a module."""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple

SPACES: dict[str, Space[Any]] = {
    "Dict": Dict(kind=Discrete(3), place=Box(-1, 1, (2, 2), np.float32)),
    "Tuple": Tuple((Discrete(2, start=-1), MultiBinary(3))),
    "Discrete": Discrete(5, start=2),
    "MultiDiscrete": MultiDiscrete([2, 3]),
    "MultiBinary": MultiBinary(4),
    "Matrix": Box(0, 9, (2, 3), np.float32),
    "Bytes": Box(0, 255, (6,), np.uint8),
}


class Draws(gym.Env[Any, Any]):
    """Draws from its observation space, eight steps long; the reward is the action minus a fine."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012  # as Gymnasium has it

    def __init__(self, kind: str = "Dict", fine: float = 0.0, render_mode: str | None = None) -> None:
        self.observation_space = SPACES[kind]
        self.action_space = Discrete(3, start=4)
        self.fine, self.render_mode = fine, render_mode

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.observation_space.seed(int(self.np_random.integers(2**31)))
        self.made = 0
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert action in (4, 5, 6), action
        self.made += 1
        return self.observation_space.sample(), float(action) - self.fine, self.made == 8, False, {}

    def render(self) -> Any:
        return np.full((64, 64, 3), 20 * self.made, np.uint8)


class Doubled(gym.RewardWrapper[Any, Any]):
    def reward(self, reward: Any) -> float:
        return 2 * float(reward)


def not_an_env(env: Any) -> int:
    return 3


def broken(env: Any) -> Any:
    raise RuntimeError("no such thing")


gym.register("Draws-v0", Draws)

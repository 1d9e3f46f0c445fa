"""A continuous task that an agent solves in a couple of thousand steps: hold a point mass at the origin."""

from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray


class PointMass(gym.Env[NDArray[np.float32], NDArray[np.float32]]):
    """Position and velocity in, a force out; the reward is minus the distance. Fifty steps, then the time limit."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gym.spaces.Box(np.array([-2.0], np.float32), np.array([1.0], np.float32))

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[NDArray[np.float32], dict[str, Any]]:
        super().reset(seed=seed)
        self.state = np.array([self.np_random.uniform(-1, 1), 0.0])
        return self.state.astype(np.float32), {}

    def step(self, action: NDArray[np.float32]) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        position, velocity = self.state
        velocity = 0.8 * velocity + 0.1 * float(action[0])
        self.state = np.array([np.clip(position + velocity, -2, 2), velocity])
        return self.state.astype(np.float32), -abs(float(self.state[0])), False, False, {}


gym.register("PointMass-v0", PointMass, max_episode_steps=50)

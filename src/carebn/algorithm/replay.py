"""Experience replay: a ring of transitions in plain arrays, filled one by one and sampled uniformly."""

from math import prod
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray
from torch import Tensor

from carebn.limits import check_memory, number

Arrays = dict[str, NDArray[Any]]


class Batch(NamedTuple):
    """Transitions that were drawn from replay: B rows each."""

    obs: Tensor  # [B, obs_dim]
    action: Tensor  # [B, action_dim], or [B] of whole numbers
    reward: Tensor  # [B]
    next_obs: Tensor  # [B, obs_dim]
    terminated: Tensor  # 1.0 where the episode truly ended; a time limit does not count


class ReplayBuffer:
    """The last ``capacity`` transitions. ``added`` counts all that ever came, so position = index modulo capacity.

    Observations keep their own dtype (bytes stay bytes); everything else is float32, actions of discrete spaces int64.
    """

    def __init__(
        self, capacity: int, obs_shape: tuple[int, ...], obs_dtype: DTypeLike, action_shape: tuple[int, ...]
    ) -> None:
        if capacity < 1:
            raise ValueError(f"a replay buffer needs room for at least one transition, got {capacity}")
        row = np.dtype(obs_dtype).itemsize * prod(obs_shape) * 2 + 8 * max(1, prod(action_shape)) + 5
        check_memory(f"a replay of {number(capacity)} transitions", capacity * row, "choose a smaller --buffer-size")
        self.capacity = capacity
        self.added = 0
        discrete = action_shape == ()
        # np.zeros takes memory only where it is written, so a large capacity costs nothing until it is used
        self.arrays: Arrays = {
            "obs": np.zeros((capacity, *obs_shape), obs_dtype),
            "action": np.zeros((capacity, *action_shape), np.int64 if discrete else np.float32),
            "reward": np.zeros(capacity, np.float32),
            "next_obs": np.zeros((capacity, *obs_shape), obs_dtype),
            "terminated": np.zeros(capacity, np.bool_),
        }
        self._tensors = {name: torch.from_numpy(array) for name, array in self.arrays.items()}

    def __len__(self) -> int:
        return min(self.added, self.capacity)

    def add(self, obs: NDArray[Any], action: Any, reward: float, next_obs: NDArray[Any], terminated: bool) -> None:
        i = self.added % self.capacity
        arrays = self.arrays
        arrays["obs"][i] = obs
        arrays["action"][i] = action
        arrays["reward"][i] = reward
        arrays["next_obs"][i] = next_obs
        arrays["terminated"][i] = terminated
        self.added += 1

    def sample(self, batch: int, rng: np.random.Generator, device: torch.device | str = "cpu") -> Batch:
        """Uniform, with replacement."""
        index = torch.from_numpy(rng.integers(0, len(self), batch))
        rows = {name: tensor.index_select(0, index).to(device) for name, tensor in self._tensors.items()}
        rows["terminated"] = rows["terminated"].float()
        return Batch(**rows)

    def sample_obs(self, batch: int, rng: np.random.Generator, device: torch.device | str = "cpu") -> Tensor:
        """Observations alone, as re-calibration needs them."""
        index = torch.from_numpy(rng.integers(0, len(self), batch))
        return self._tensors["obs"].index_select(0, index).to(device)

    def rows(self, start: int, stop: int) -> Arrays:
        """Copies of the transitions numbered start to stop (counted since the beginning), if still held."""
        if not max(0, self.added - self.capacity) <= start <= stop <= self.added:
            raise ValueError(f"transitions {start} to {stop} are not all held; have {len(self)} of {self.added}")
        index = np.arange(start, stop) % self.capacity
        return {name: array[index] for name, array in self.arrays.items()}

    def restore(self, start: int, rows: Arrays) -> None:
        """Put transitions back at the numbers they had."""
        count = len(rows["reward"])
        index = np.arange(start, start + count) % self.capacity
        for name, array in self.arrays.items():
            if rows[name].shape[1:] != array.shape[1:] or rows[name].dtype != array.dtype:
                raise ValueError(f"saved transitions do not fit this environment: {name} differs in shape or type")
            array[index] = rows[name]
        self.added = max(self.added, start + count)

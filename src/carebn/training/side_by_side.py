"""Environments side by side: one batch of actions a step, each episode from its own seed, in this process or others.

Both kinds are Gymnasium's, told to reset nothing by themselves: what a step returns is the true last observation of an
episode, and the next one begins when the run says so, from the seed that it says. Nothing of an environment is ever
fetched: wherever it runs, it is brought back to where it was by its seed and its actions.
"""

import atexit
import ctypes
import multiprocessing
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Literal

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from numpy.typing import NDArray

from carebn.training.environment import (
    BadStepError,
    Env,
    EnvironmentFailedError,
    NonFiniteError,
    Spaces,
    check_step,
    reset,
    step,
)

ACTIONS, FAILURE = "actions", "failure"
PDEATHSIG = 1  # the number of this request in Linux's prctl
KINDS = {kind.__name__: kind for kind in (BadStepError, NonFiniteError, EnvironmentFailedError)}


class ProcessDiedError(BadStepError):
    """The process of an environment is gone, which is seldom the environment's own doing."""


class _Seat(gym.Wrapper[Any, Any, Any, Any]):
    """One of the environments: what it gives is checked and has the type that the replay holds."""

    def __init__(self, env: Env, index: int, env_id: str, spaces: Spaces, in_worker: bool) -> None:
        super().__init__(env)
        self.index, self.env_id, self.spaces, self.in_worker = index, env_id, spaces, in_worker
        low, high = (0, 255) if spaces.obs_dtype == np.uint8 else (-np.inf, np.inf)
        self.observation_space = gym.spaces.Box(low, high, (spaces.obs_dim,), np.dtype(spaces.obs_dtype).type)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """With actions among the options, these are made too: the observation is the one after them."""
        assert seed is not None
        try:
            obs = self._checked(reset(self.env, self.env_id, seed), 0.0)
            for action in (options or {}).get(ACTIONS, {}).get(self.index, ()):
                obs = self._checked(self._step(action)[0], 0.0)
        except Exception as error:
            return self._nothing, self._told(error)
        return obs, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        try:
            given, reward, terminated, truncated = self._step(action)
            return self._checked(given, reward), reward, bool(terminated), bool(truncated), {}
        except Exception as error:
            return self._nothing, 0.0, False, False, self._told(error)

    def _step(self, action: Any) -> tuple[NDArray[Any], float, bool, bool]:
        """With a copy of the action: it is stored, and some environments write into what they are given."""
        return step(self.env, self.env_id, np.copy(action)[()])

    def _checked(self, obs: NDArray[Any], reward: float) -> NDArray[Any]:
        """A copy in the type that is stored, because an environment may use its array again."""
        obs = self.spaces.as_stored(obs)
        check_step(self.env_id, obs, reward)
        return obs

    @property
    def _nothing(self) -> NDArray[Any]:
        return np.zeros(self.spaces.obs_dim, self.spaces.obs_dtype)

    def _told(self, error: Exception) -> dict[str, Any]:
        """From another process an exception comes without its lines, so they are sent as text."""
        if not self.in_worker:
            raise error
        return {FAILURE: (type(error).__name__, str(error), traceback.format_exc())}


def _make_seat(make: Callable[[], Env], index: int, env_id: str, spaces: Spaces, main: int) -> _Seat:
    in_worker = os.getpid() != main  # Gymnasium also makes one here, to look at its spaces
    if in_worker:
        _be_a_worker()
    return _Seat(make(), index, env_id, spaces, in_worker)


def _be_a_worker() -> None:
    """Whoever stops the run, it is for the run to end this process; and one thread is all that it takes."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    torch.set_num_threads(1)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PDEATHSIG, signal.SIGKILL)


class _Alone:
    """One environment as a vector of one: what Gymnasium's does for several takes it a tenth of a millisecond."""

    def __init__(self, seat: _Seat) -> None:
        self._seat = seat

    def reset(self, *, seed: list[int | None], options: dict[str, Any]) -> tuple[NDArray[Any], dict[str, Any]]:
        obs, info = self._seat.reset(seed=seed[0], options=options)
        return obs[None], info

    def step(self, actions: NDArray[Any]) -> tuple[Any, ...]:
        obs, reward, terminated, truncated, info = self._seat.step(actions[0])
        return obs[None], np.array([reward], np.float64), np.array([terminated]), np.array([truncated]), info

    def close(self) -> None:
        self._seat.close()


class SideBySide:
    """All environments that a run learns in, as one."""

    def __init__(
        self,
        first: Env,
        make: Callable[[], Env],
        count: int,
        where: Literal["sync", "async"],
        env_id: str,
        spaces: Spaces,
    ) -> None:
        self.count, self.env_id = count, env_id
        self._failed = False
        self.vector: _Alone | SyncVectorEnv | AsyncVectorEnv
        if where == "sync" and count == 1:
            self.vector = _Alone(_Seat(first, 0, env_id, spaces, False))
            return
        if where == "sync":
            envs = [first, *(make() for _ in range(count - 1))]
            if len({id(env.unwrapped) for env in envs}) < count:
                raise ValueError(
                    f"--num-envs {count} needs as many environments, and the function that was given returns the same "
                    f"one again; let it make a new one each time"
                )
            seats = [partial(_Seat, env, index, env_id, spaces, False) for index, env in enumerate(envs)]
            self.vector = SyncVectorEnv(seats, autoreset_mode=AutoresetMode.DISABLED)
            return
        if multiprocessing.current_process().daemon:
            raise ValueError("--vector async needs processes of its own, which this process may not start; use sync")
        makers = [partial(_make_seat, make, index, env_id, spaces, os.getpid()) for index in range(count)]
        # A fork needs no guard in the user's script, and starts in milliseconds
        context = "fork" if sys.platform == "linux" else None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of forks with threads: workers use none of them
            try:
                self.vector = AsyncVectorEnv(makers, autoreset_mode=AutoresetMode.DISABLED, context=context)
            except (EOFError, ConnectionError) as error:
                raise ValueError(
                    f"a process for {env_id} died while it made its environment; try --vector sync"
                ) from error
        atexit.register(self.close)  # workers do not listen to what Python would end them with

    def reset(self, seeds: Sequence[int | None], actions: Mapping[int, Sequence[Any]] | None = None) -> NDArray[Any]:
        """Begin an episode wherever there is a seed, and make the actions in it that are given for that place."""
        options = {"reset_mask": np.array([seed is not None for seed in seeds]), ACTIONS: actions or {}}
        obs: NDArray[Any] = self._asked(partial(self.vector.reset, seed=list(seeds), options=options))[0]
        return obs

    def step(self, actions: NDArray[Any]) -> tuple[NDArray[Any], list[float], list[bool], list[bool]]:
        """Observations, rewards, and whether each episode was terminated or truncated."""
        obs, rewards, terminated, truncated, _ = self._asked(partial(self.vector.step, actions))
        return obs, rewards.tolist(), terminated.tolist(), truncated.tolist()

    def _asked(self, question: Callable[[], Any]) -> Any:
        try:
            answer = question()
        except (EOFError, ConnectionError) as error:
            if not isinstance(self.vector, AsyncVectorEnv):
                raise
            self._failed = True
            raise ProcessDiedError(f"a process with an environment of {self.env_id} was killed") from error
        for failure in answer[-1].get(FAILURE, ()):
            if failure:
                name, message, lines = failure
                unforeseen = f"{self.env_id} raised {name}"
                kind = KINDS.get(name)
                raise EnvironmentFailedError(unforeseen) if kind is None else kind(message) from RuntimeError(lines)
        return answer

    def close(self) -> None:
        if not isinstance(self.vector, AsyncVectorEnv):
            self.vector.close()
            return
        atexit.unregister(self.close)
        if not self._failed:
            with suppress(Exception):
                self.vector.close()
        for process in self.vector.processes:
            process.kill()
            process.join()
        self.vector.closed = True  # else Gymnasium would try again

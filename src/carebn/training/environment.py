"""Environments: made by id, checked once, and every episode started from its own seed."""

import importlib
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import DTypeLike, NDArray

from carebn.training.blame import users_line
from carebn.training.env_kwargs import why_not_made
from carebn.training.flat import flat_space

Env = gym.Env[Any, Any]
FLOAT32_MAX = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Spaces:
    """What an agent needs to know of an environment."""

    obs_dim: int
    obs_dtype: DTypeLike
    actions: int | None  # of a Discrete space
    low: NDArray[np.float32] | None  # of a Box space
    high: NDArray[np.float32] | None

    @property
    def action_shape(self) -> tuple[int, ...]:
        return () if self.low is None else self.low.shape

    def as_stored(self, obs: NDArray[Any]) -> NDArray[Any]:
        """A copy in the type that the replay holds."""
        with np.errstate(over="ignore"):  # what does not fit becomes infinite, and is refused as such
            return np.array(obs, dtype=self.obs_dtype)


def make_env(env_id: str, modules: Sequence[str] = (), **options: Any) -> Env:
    """The environment of that id, made with these options; Atari games come with RAM observations."""
    for module in modules:
        import_own(module, "--import")
    if env_id.startswith("ALE/"):
        import ale_py

        gym.register_envs(ale_py)
        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # else it says its name, also in quiet commands
        options.setdefault("obs_type", "ram")
    if env_id not in gym.registry and ":" not in env_id:
        near = get_close_matches(env_id, gym.registry, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ValueError(f"unknown environment {env_id!r}: {hint}Environments of your own need --import MODULE")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*out of date.*")  # the paper's tasks are the -v4 ones
        try:
            return gym.make(env_id, **options)
        except Exception as error:  # registered by anybody, so anything may go wrong
            reason = why_not_made(env_id, error, options, own_code=bool(modules))
            raise ValueError(f"cannot make environment {env_id!r}: {reason}") from error


def import_own(module: str, option: str) -> Any:
    """A module of the user's, also from the current directory; what is installed goes before what lies there."""
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:
        sys.path.append(here)
    try:
        return importlib.import_module(module)
    except (Exception, SystemExit) as error:  # whatever such a module does wrong
        line = "" if isinstance(error, SyntaxError) else users_line(error)  # it says itself where it is
        reason = f"{type(error).__name__}: {error}" + (f" ({line})" if line else "")
        if isinstance(error, ModuleNotFoundError) and error.name in (module, module.partition(".")[0]):
            reason = f"it is not in the current directory {here}, not on PYTHONPATH and not installed"
            if module.endswith(".py"):
                reason = f"a module goes without .py: {option} {module.removesuffix('.py')}"
        raise ValueError(f"cannot import module {module!r} ({option}): {reason}") from error


def spaces_of(env: Env, env_id: str) -> Spaces:
    """The environment's spaces, or one sentence about why they do not fit."""
    return spaces_from(env.observation_space, env.action_space, env_id)


def spaces_from(obs: gym.Space[Any], action: gym.Space[Any], env_id: str) -> Spaces:
    flat = flat_space(obs, env_id)
    dtype = np.uint8 if flat.dtype == np.uint8 else np.float32
    if isinstance(action, gym.spaces.Discrete):
        return Spaces(flat.shape[0], dtype, int(action.n), None, None)
    if isinstance(action, gym.spaces.Box) and len(action.shape) == 1:
        low, high = action.low.astype(np.float32), action.high.astype(np.float32)
        if not (np.isfinite(low).all() and np.isfinite(high).all()):
            raise ValueError(f"{env_id} has unbounded actions {action}; finite bounds are needed")
        return Spaces(flat.shape[0], dtype, None, low, high)
    raise ValueError(f"{env_id} has actions {action}; a flat Box or a Discrete space is needed")


class BadStepError(ValueError):
    """An environment gave what cannot be learnt from: names what and when."""


class NonFiniteError(BadStepError):
    """A number that should not be: names what and when."""


class EnvironmentFailedError(RuntimeError):
    """An environment raised; what it raised is the cause."""


@contextmanager
def with_step_named(where: str, step: int, kept: Callable[[], str]) -> Iterator[None]:
    """What goes wrong inside is told with the step, and with what is left of the run, which ``kept`` says."""
    try:
        yield
    except BadStepError as error:
        raise type(error)(f"{error} {where} step {step:,}; {kept()}") from None
    except EnvironmentFailedError as error:
        raise EnvironmentFailedError(f"{error} {where} step {step:,}; {kept()}") from error.__cause__


def reset(env: Env, env_id: str, seed: int) -> NDArray[Any]:
    """The first observation; a fault of the environment's own keeps its trace."""
    try:
        obs, _ = env.reset(seed=seed)
    except MemoryError:
        raise
    except Exception as error:
        raise EnvironmentFailedError(f"{env_id} raised {type(error).__name__} in reset") from error
    return _of_its_shape(env, env_id, obs)


def step(env: Env, env_id: str, action: Any) -> tuple[NDArray[Any], float, bool, bool]:
    """Observation, reward, terminated and truncated; a fault of the environment's own keeps its trace."""
    try:
        obs, given, terminated, truncated, _ = env.step(action)
        reward = float(given)
    except MemoryError:
        raise
    except Exception as error:
        old = isinstance(error, ValueError) and "expected 5, got 4" in str(error)
        hint = " (a step returns five values: observation, reward, terminated, truncated, info)" if old else ""
        raise EnvironmentFailedError(f"{env_id} raised {type(error).__name__}{hint} in step") from error
    return _of_its_shape(env, env_id, obs), reward, terminated, truncated


def _of_its_shape(env: Env, env_id: str, obs: Any) -> NDArray[Any]:
    array = np.asarray(obs)
    if array.shape != env.observation_space.shape:
        raise BadStepError(
            f"{env_id} gave an observation of shape {array.shape}, and its observation space has the shape "
            f"{env.observation_space.shape}"
        )
    return array


def check_step(env_id: str, obs: NDArray[Any], reward: float) -> None:
    if not np.isfinite(obs).all():
        raise NonFiniteError(f"{env_id} gave an observation that is NaN or infinite")
    if not abs(reward) <= FLOAT32_MAX:
        raise NonFiniteError(f"{env_id} gave a reward that is NaN, infinite or too large for float32")

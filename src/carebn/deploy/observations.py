"""Observations to compare and to calibrate on: of the run's replay, of episodes, or drawn at random."""

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import safetensors
from numpy.typing import NDArray
from safetensors import SafetensorError

from carebn.reading import regular_file
from carebn.training.environment import Env, check_step, reset, step
from carebn.training.flat import flat_space
from carebn.training.policy import Policy
from carebn.training.spaces_file import sample
from carebn.training.worlds import NeedsWord

SHARES = 5  # observations that are read for each one that is compared
SEGMENTS = 20  # files of the replay that observations are taken from, at most


class Observations(NamedTuple):
    compared: NDArray[Any]  # the two are compared on these
    others: NDArray[Any]  # thresholds are centred on these
    source: str


def observations(run_dir: Path, policy: Policy, count: int) -> Observations:
    """Of the run's replay; where there are not enough, of episodes, or drawn at random if its environment cannot be
    made without the user's word."""
    rows, source = _recorded(sorted((run_dir / "replay").glob("*.safetensors")), count * SHARES), "the run's replay"
    if rows is None or len(rows) < count:
        try:
            rows, source = _of_episodes(policy, count * SHARES), "its own and random episodes"
        except NeedsWord:  # then from what the run says of its observations
            if policy.own is None:
                raise
            space = flat_space(policy.own[0], policy.config.env_id)
            rows, source = sample(space, count * SHARES, policy.obs_dtype), "random numbers within their bounds"
    index = np.linspace(0, len(rows) - 1, count).astype(int)
    return Observations(rows[index], np.delete(rows, index, axis=0), f"{count:,} observations of {source}")


def _recorded(segments: Sequence[Path], count: int) -> NDArray[Any] | None:
    if not segments:
        return None
    chosen = [segments[i] for i in np.unique(np.linspace(0, len(segments) - 1, SEGMENTS).astype(int))]
    try:
        parts = []
        for path in chosen:
            with safetensors.safe_open(regular_file(path), framework="numpy") as file:
                parts.append(file.get_tensor("obs"))
    except (SafetensorError, OSError) as error:
        reason = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.strerror else error
        raise ValueError(f"the run's replay cannot be read: {reason}") from error
    rows = np.concatenate(parts)
    return np.ascontiguousarray(rows[np.linspace(0, len(rows) - 1, min(count, len(rows))).astype(int)])


def _of_episodes(policy: Policy, count: int) -> NDArray[Any]:
    """The one half where the policy itself leads, because there it will act, the other of random actions: a replay has
    both."""
    env = policy.make_env()
    env.action_space.seed(0)
    try:
        return np.concatenate([
            _visited(policy, env, count - count // 2, policy.act),
            _visited(policy, env, count // 2, lambda obs, state: (env.action_space.sample(), None)),
        ])  # fmt: skip
    finally:
        env.close()


def _visited(policy: Policy, env: Env, count: int, act: Callable[..., tuple[Any, Any]]) -> NDArray[Any]:
    """The first so many observations of episodes with these actions."""
    env_id = policy.config.env_id
    rows: list[NDArray[Any]] = []
    for episode in itertools.count():
        obs, over, reward, state = reset(env, env_id, seed=episode), False, 0.0, None
        while not over:
            if len(rows) == count:
                return np.stack(rows)
            check_step(env_id, obs, reward)
            rows.append(np.array(obs, dtype=policy.obs_dtype))
            action, state = act(rows[-1], state)
            obs, reward, terminated, truncated = step(env, env_id, action)
            over = terminated or truncated
    raise AssertionError  # there is always another episode

"""What a run is at a step: agent, replay, random streams, episodes and best policy; captured and restored.

The environments are not among it: each is brought back to where it was by the actions of its episode (``stepping``).
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from carebn.algorithm import ReplayBuffer
from carebn.training import seeds
from carebn.training.build import make_agent
from carebn.training.checkpoint import CheckpointStore, Loaded, Snapshot, checked_state
from carebn.training.config import TrainConfig
from carebn.training.environment import NonFiniteError, Spaces
from carebn.training.evaluation import Evaluation
from carebn.training.record import LineFile


@dataclass
class Episode:
    """That one of the environments is in."""

    number: int  # among those of all environments: the next one here is as many later as there are environments
    total: float = 0.0  # of its rewards so far
    actions: list[Any] = field(default_factory=list)


class RunState:
    """As it is before the first step, until it is restored or goes on."""

    def __init__(self, config: TrainConfig, spaces: Spaces) -> None:
        self.agent = make_agent(config, spaces)
        capacity = min(config.buffer_size, config.total_timesteps)
        self.replay = ReplayBuffer(capacity, (spaces.obs_dim,), spaces.obs_dtype, spaces.action_shape)
        self.streams = seeds.Streams(config.seed)
        self.step = 0
        self.episodes = [Episode(place) for place in range(config.num_envs)]
        self.losses: dict[str, float] = {}
        self.best: float | None = None
        self.best_policy: bytes | None = None
        self.best_evaluation: dict[str, Any] | None = None

    def begin_episode(self, place: int) -> None:
        self.episodes[place] = Episode(self.episodes[place].number + len(self.episodes))

    def keep_best(self, result: Evaluation, policy: bytes) -> None:
        self.best, self.best_policy = result.mean, policy
        self.best_evaluation = {
            "step": self.step, "mean_return": result.mean, "std_return": result.std, "returns": result.returns
        }  # fmt: skip

    def snapshot(self, metrics: LineFile) -> Snapshot:
        """For a checkpoint, which vouches for the metrics so far."""
        tensors = self.agent.state_dict()
        for name, tensor in tensors.items():
            if not torch.isfinite(tensor).all():
                raise NonFiniteError(f"{name} holds NaN or infinity")
        episodes, added = self.episodes, self.replay.added
        for name, episode in zip(self._action_names(), episodes, strict=True):
            tensors[name] = torch.from_numpy(np.array(episode.actions))
        length, digest = metrics.secure()
        state = {
            "streams": self.streams.state(),
            "best": self.best,
            "best_evaluation": self.best_evaluation,
            "losses": dict(self.losses),
            "episode": _alone([episode.number for episode in episodes]),
            # the number of its first transition: with several environments they take turns
            "episode_start": _alone(
                [added - len(episodes) * len(episode.actions) + place for place, episode in enumerate(episodes)]
            ),
            "episode_return": _alone([episode.total for episode in episodes]),
            "metrics_bytes": length,
            "metrics_sha256": digest,
        }
        return Snapshot(tensors, state, self.best_policy)

    def restore(self, loaded: Loaded, run_dir: Path) -> None:
        state = checked_state(loaded.snapshot.state, run_dir, len(self.episodes))
        tensors = dict(loaded.snapshot.tensors)
        actions = [list(tensors.pop(name).numpy()) for name in self._action_names()]
        numbers, totals = (_listed(state[name]) for name in ("episode", "episode_return"))
        self.episodes = [Episode(*values) for values in zip(numbers, totals, actions, strict=True)]
        self.agent.load_state_dict(tensors)
        for start, rows in loaded.segments:
            self.replay.restore(start, rows)
        self.streams.restore(state["streams"])
        self.step, self.best = loaded.step, state["best"]
        self.best_policy, self.best_evaluation = loaded.snapshot.best, state.get("best_evaluation")
        self.losses = state["losses"]

    def _action_names(self) -> list[str]:
        """Of the tensors; the only environment's has no number."""
        if len(self.episodes) == 1:
            return ["episode_actions"]
        return [f"episode_actions.{place}" for place in range(len(self.episodes))]

    def restore_newest(self, run_dir: Path, config: TrainConfig) -> None:
        """From the newest checkpoint of a run, to go on with beside it; the run stays as it is."""
        loaded = CheckpointStore(run_dir, config.checkpoint_interval).load_latest(lambda warning: None)
        if loaded is None:
            raise ValueError(f"{run_dir} has no checkpoint to go on from")
        self.restore(loaded, run_dir)


def _alone(values: list[Any]) -> Any:
    """As a checkpoint has them: of the only environment, not in a list."""
    return values[0] if len(values) == 1 else values


def _listed(values: Any) -> list[Any]:
    return values if isinstance(values, list) else [values]

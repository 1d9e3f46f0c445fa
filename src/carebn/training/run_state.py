"""What a run is at a step: agent, replay, random streams, episode and best policy; captured and restored.

The environment is not among it: it is brought back to where it was by the actions of its episode (``stepping``).
"""

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


class RunState:
    """As it is before the first step, until it is restored or goes on."""

    def __init__(self, config: TrainConfig, spaces: Spaces) -> None:
        self.agent = make_agent(config, spaces)
        capacity = min(config.buffer_size, config.total_timesteps)
        self.replay = ReplayBuffer(capacity, (spaces.obs_dim,), spaces.obs_dtype, spaces.action_shape)
        self.streams = seeds.Streams(config.seed)
        self.step = 0
        self.episode = 0
        self.episode_start = 0  # the number of the episode's first transition
        self.episode_return = 0.0
        self.episode_actions: list[Any] = []
        self.losses: dict[str, float] = {}
        self.best: float | None = None
        self.best_policy: bytes | None = None
        self.best_evaluation: dict[str, Any] | None = None

    def begin_episode(self) -> None:
        self.episode += 1
        self.episode_start = self.replay.added
        self.episode_return = 0.0
        self.episode_actions = []

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
        tensors["episode_actions"] = torch.from_numpy(np.array(self.episode_actions))
        length, digest = metrics.secure()
        state = {
            "streams": self.streams.state(),
            "best": self.best,
            "best_evaluation": self.best_evaluation,
            "losses": dict(self.losses),
            "episode": self.episode,
            "episode_start": self.episode_start,
            "episode_return": self.episode_return,
            "metrics_bytes": length,
            "metrics_sha256": digest,
        }
        return Snapshot(tensors, state, self.best_policy)

    def restore(self, loaded: Loaded, run_dir: Path) -> None:
        state, tensors = checked_state(loaded.snapshot.state, run_dir), dict(loaded.snapshot.tensors)
        self.episode_actions = list(tensors.pop("episode_actions").numpy())
        self.agent.load_state_dict(tensors)
        for start, rows in loaded.segments:
            self.replay.restore(start, rows)
        self.streams.restore(state["streams"])
        self.step, self.best = loaded.step, state["best"]
        self.best_policy, self.best_evaluation = loaded.snapshot.best, state.get("best_evaluation")
        self.episode, self.episode_start = state["episode"], state["episode_start"]
        self.episode_return, self.losses = state["episode_return"], state["losses"]

    def restore_newest(self, run_dir: Path, config: TrainConfig) -> None:
        """From the newest checkpoint of a run, to go on with beside it; the run stays as it is."""
        loaded = CheckpointStore(run_dir, config.checkpoint_interval).load_latest(lambda warning: None)
        if loaded is None:
            raise ValueError(f"{run_dir} has no checkpoint to go on from")
        self.restore(loaded, run_dir)

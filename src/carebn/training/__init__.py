"""Training runs: configuration, environments, the loop, evaluation, checkpoints."""

from carebn.training.config import TrainConfig
from carebn.training.loop import InterruptedRun, Run

__all__ = ["InterruptedRun", "Run", "TrainConfig"]

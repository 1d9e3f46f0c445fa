"""Runs that take a second or two, and how to compare what they leave."""

from pathlib import Path
from typing import Any

from carebn.training import TrainConfig

OUTSIDE_THE_PROMISE = {"timing.jsonl"}  # wall-clock figures


def tiny(**options: Any) -> TrainConfig:
    values: dict[str, Any] = {
        "env_id": "InvertedPendulum-v4",
        "total_timesteps": 60,
        "learning_starts": 20,
        "hidden": (8,),
        "batch_size": 8,
        "eval_interval": 30,
        "eval_episodes": 1,
        "checkpoint_interval": 20,
        "recalibration_batches": 2,
        "log_interval": 10,
        "method": "ann",
    }
    return TrainConfig(**(values | options)).checked()


def contents(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name not in OUTSIDE_THE_PROMISE
    }

"""How far the training of a run has come: what is deployed should be known to be finished."""

import json
from pathlib import Path

from carebn.training.config import TrainConfig
from carebn.training.policy import read_conversion


def unfinished(run_dir: Path, config: TrainConfig) -> str | None:
    """One sentence if the policy of this run is not that of a finished training; None if it is."""
    if read_conversion(run_dir) is not None:
        return None  # only finished runs are converted
    checkpoints = run_dir / "checkpoint"
    steps = [int(path.name) for path in checkpoints.iterdir() if path.name.isdigit()] if checkpoints.is_dir() else []
    if not steps:
        return f"{run_dir} has no checkpoints, so how far its policy was trained is not known"
    step, total = max(steps), config.total_timesteps
    if step <= (config.learning_starts or 0):
        return f"the policy of {run_dir} is untrained: at step {step:,} its random warm-up was not over"
    if step < total:
        return f"the training of {run_dir} is unfinished: step {step:,} of {total:,}"
    if _evaluation_due(checkpoints / f"{step:09d}"):
        return f"the training of {run_dir} is unfinished: its last evaluation is due"
    return None


def _evaluation_due(checkpoint: Path) -> bool:
    """Whether the run was stopped between its last step and the re-calibration and evaluation that follow it."""
    try:
        return bool(json.loads((checkpoint / "state.json").read_bytes()).get("evaluation_due"))
    except (OSError, ValueError, AttributeError):
        return False  # whoever needs the checkpoint itself will say what is wrong

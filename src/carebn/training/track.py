"""Optional copy of a run's figures to Weights & Biases, for people who follow their runs there."""

from importlib import import_module
from typing import Any

from carebn.training.record import Row


def require_wandb() -> Any:
    """The package, or one sentence about how to get it."""
    try:
        return import_module("wandb")
    except ImportError as error:
        raise ValueError("--track needs the package wandb, which is not installed; run: pip install wandb") from error


class Tracker:
    """What the run writes down is also sent; the run itself does not depend on it."""

    def __init__(self, name: str, configuration: dict[str, Any]) -> None:
        wandb = require_wandb()
        # The same name after an interruption continues the same page there.
        try:
            self._run = wandb.init(project="carebn", id=name, name=name, config=configuration, resume="allow")
        except wandb.Error as error:
            reason = " ".join(str(error).split())
            raise ValueError(
                f"--track could not reach Weights & Biases ({reason}); log in with `wandb login`, or set "
                f"WANDB_MODE=offline to send the figures later"
            ) from error

    def log(self, row: Row) -> None:
        values = {key: value for key, value in row.items() if "/" in key}
        self._run.log(values, step=int(row["step"]))

    def close(self) -> None:
        self._run.finish()

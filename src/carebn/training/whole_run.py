"""A run from its first step to its last file: trained, drawn, and converted where its method says so."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from carebn.training.callbacks import Callback
from carebn.training.config import TrainConfig
from carebn.training.conversion import finish_conversion
from carebn.training.curve import plot_curve
from carebn.training.loop import Run
from carebn.training.observers import Observer
from carebn.training.worlds import MakeEnv


@dataclass(frozen=True)
class WholeRun:
    run: Run
    was_complete: bool  # already, so that nothing was left to train
    curve: Path | None  # None: there is nothing to show yet
    converted: Path | None  # the spiking policy, of a method that ends with one


def carry_out(
    config: TrainConfig,
    observers: Sequence[Observer] = (),
    make: MakeEnv | None = None,
    callback: Callback | None = None,
) -> WholeRun:
    """Train until the end, or until the callback says that it is enough; raises ``InterruptedRun`` after a signal."""
    run = Run(config, make, callback, observers)
    trained = run.train()
    curve = plot_curve(run.directory, run.config.title())
    converted = finish_conversion(run.directory, run.make) if run.is_complete else None
    return WholeRun(run, not trained, curve, converted)

"""What an executor is, and what a user says of it: where runs are carried out. Scheduling is not ours.

An executor takes orders and says what became of them. All run the same ``train_cell``, so the results are the same.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from carebn.study.worker import Order, Outcome

UNLIMITED = 100_000


@dataclass(frozen=True)
class Place:
    """Where to run, as the user says it."""

    on: str = "local"
    workers: int | None = None
    address: str | None = None
    options: tuple[str, ...] = ()  # Slurm's, as NAME=VALUE
    runs: Path = Path("runs")


class Executor(Protocol):
    slots: int  # how many orders it wants at a time

    def submit(self, order: Order) -> Any: ...

    def outcome(self, handle: Any) -> Outcome | None:
        """None while it is waiting or running."""
        ...

    def stop(self) -> None:
        """Ask all runs to save themselves and end; they then have outcomes."""
        ...

    def close(self) -> None: ...

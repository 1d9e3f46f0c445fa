"""Who watches a run from above and writes down what it sees; the run itself knows none of them by name.

An observer looks at the agent around each evaluation, and its answer becomes a line of ``measure-<name>.jsonl``. It
draws from a random stream of its own (``Watched.random``) and leaves the run as it is: all other files are the same
with and without it (command.txt excepted, which asks for it, and checksums.json, which vouches for both). The file is
the run's to keep: it is vouched for with each checkpoint, and cut back to where a resumed run goes on.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from torch import nn

from carebn.algorithm import ReplayBuffer
from carebn.reading import parse_object, read_file
from carebn.training import seeds
from carebn.training.record import LineFile, Row

PREFIX = "measure-"


def file_name(measurement: str) -> str:
    return f"{PREFIX}{measurement}.jsonl"


@dataclass(frozen=True)
class Watched:
    """A run at an evaluation, to be looked at and not to be changed."""

    step: int
    seed: int
    policy: nn.Module
    replay: ReplayBuffer

    def random(self) -> np.random.Generator:
        """The same numbers each time that it is asked for at this step; the run draws none of them."""
        return np.random.default_rng(seeds.number(self.seed, seeds.MEASUREMENT, self.step))


class Observer(Protocol):
    """Keeps nothing between two calls: an evaluation may be given up in the middle, and is then made again."""

    @property
    def name(self) -> str:
        """What ``--measure`` calls it."""

    def before_recalibration(self, run: Watched) -> Any:
        """About the statistics that the agent explored with; what it returns is handed to ``after_evaluation``."""

    def after_evaluation(self, run: Watched, before: Any, recalibrated: bool) -> Row:
        """About those that it was evaluated with: the line to write, in which the step comes first."""


class ObserverLog:
    """The file of one observer."""

    def __init__(self, observer: Observer, run_dir: Path) -> None:
        self.observer = observer
        self.file = LineFile(run_dir / file_name(observer.name))

    def length_until(self, step: int) -> int:
        """In bytes; what the file holds beyond it is of a step after that, or is not from this run: its steps rise."""
        length, last = 0, -1
        for line in read_file(self.file.path).splitlines(keepends=True):
            try:
                if not line.endswith(b"\n") or not last < (here := parse_object(line)["step"]) <= step:
                    break
                last = here
            except (ValueError, KeyError, TypeError) as error:
                raise ValueError(f"{self.file.path} is damaged; move it away and run the same command again") from error
            length += len(line)
        return length


def check_observers(observers: Sequence[Observer], asked: Sequence[str]) -> None:
    """Refuse a run of which something is to be measured that nobody measures, or the other way round."""
    given = [observer.name for observer in observers]
    if sorted(given) != sorted(asked):
        raise ValueError(
            f"measure is {', '.join(asked) or 'empty'} and the observers of the run are {', '.join(given) or 'none'}; "
            f"give it those of its configuration: carebn.measure.observers.observers_for(config)"
        )

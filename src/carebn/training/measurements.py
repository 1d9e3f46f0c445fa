"""Measurements taken while a run goes on. They draw from random streams of their own and leave the run as it is:
all other files of the run are the same with and without them (command.txt excepted, which asks for them, and
checksums.json, which vouches for both)."""

from pathlib import Path

import numpy as np
from torch import nn

from carebn.algorithm import ReplayBuffer
from carebn.measure.wasserstein import layer_distances
from carebn.reading import parse_object, read_file
from carebn.training import seeds
from carebn.training.record import LineFile

NAME = "measure-wasserstein.jsonl"
OBSERVATIONS = 2048  # per measurement: bounds its cost to about a second


class WassersteinLog:
    """``measure-wasserstein.jsonl``: at every evaluation the distance per layer, before and after re-calibration.

    ``before`` is about the statistics that the agent explored with; ``after`` about those that it is evaluated with.
    They are the same for a method that does not re-calibrate.
    """

    def __init__(self, run_dir: Path, seed: int) -> None:
        self.seed = seed
        self.file = LineFile(run_dir / NAME)

    def length_until(self, step: int) -> int:
        """In bytes; what the file holds beyond it is of a step after that."""
        length = 0
        for line in read_file(self.file.path).splitlines(keepends=True):
            try:
                if not line.endswith(b"\n") or parse_object(line)["step"] > step:
                    break
            except (ValueError, KeyError, TypeError) as error:
                raise ValueError(f"{self.file.path} is damaged; move it away and run the same command again") from error
            length += len(line)
        return length

    def distances(self, policy: nn.Module, replay: ReplayBuffer, step: int) -> list[float]:
        rng = np.random.default_rng(seeds.number(self.seed, seeds.MEASUREMENT, step))
        device = next(policy.parameters()).device
        return layer_distances(policy, replay.sample_obs(OBSERVATIONS, rng, device))

    def write(self, step: int, before: list[float], after: list[float]) -> None:
        self.file.write({"step": step, "before": before, "after": after})

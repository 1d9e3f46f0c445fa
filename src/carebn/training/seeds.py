"""All randomness of a run, from one seed: a tree of named streams. Nothing uses a global generator."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

NETWORKS, WARM_UP, EXPLORE, UPDATE, RECALIBRATE, EPISODES, EVALUATION, MEASUREMENT = range(8)
STREAMS = {"warm_up": WARM_UP, "explore": EXPLORE, "update": UPDATE, "recalibrate": RECALIBRATE}


class Streams:
    """The generators that advance as a run goes on, and can be saved."""

    def __init__(self, seed: int) -> None:
        self.generators = {
            name: np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(key,))))
            for name, key in STREAMS.items()
        }

    def __getitem__(self, name: str) -> np.random.Generator:
        return self.generators[name]

    def state(self) -> dict[str, Any]:
        # PCG64's numbers have 128 bits; JSON keeps integers of any size
        return {name: generator.bit_generator.state for name, generator in self.generators.items()}

    def restore(self, state: dict[str, Any]) -> None:
        try:
            for name, generator in self.generators.items():
                generator.bit_generator.state = json.loads(json.dumps(state[name]))
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise ValueError("a checkpoint does not hold the state of this run's random streams") from error


def number(seed: int, *path: int) -> int:
    """One number for a place in the tree, the same whenever it is asked for."""
    return int(np.random.SeedSequence(seed, spawn_key=path).generate_state(1)[0] >> 1)


@contextmanager
def torch_seeded(seed: int) -> Iterator[None]:
    """Inside, torch's global generator starts from ``seed``; outside it is as if nothing had happened."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield

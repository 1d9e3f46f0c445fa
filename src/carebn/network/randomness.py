"""Random spikes that can be repeated: torch's own generators, started from a known number for a while."""

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from carebn.network.encoder import PopulationEncoder


def is_random(network: nn.Module) -> bool:
    """Whether what it answers depends on a generator: only Poisson coding does."""
    return any(isinstance(m, PopulationEncoder) and m.coding == "poisson" for m in network.modules())


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Inside, random spikes start from ``seed``; outside it is as if nothing had happened."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield


def seed_of(observation: NDArray[Any]) -> int:
    """A number for an observation, so that a policy with random spikes is a function of what it sees."""
    return zlib.crc32(np.ascontiguousarray(observation).tobytes())

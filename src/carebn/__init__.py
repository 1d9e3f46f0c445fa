"""Spiking reinforcement learning with CaRe-BN."""

from pathlib import Path
from typing import TYPE_CHECKING

from carebn.network import SpikingActor, SpikingLayer, SpikingQNetwork
from carebn.neuron import CLIF, DN, LIF, make_neuron
from carebn.norm import CaReBN, CaReBN2d, make_norm, polyak_, recalibrate

if TYPE_CHECKING:
    from carebn.training.policy import Policy

__version__ = "0.1.0"


def load(run_dir: Path | str) -> "Policy":
    """The policy of a training run: ``load(run_dir).predict(observation)``. Nothing in the directory is executed."""
    from carebn.training.policy import load as load_policy  # gymnasium only when it is needed

    return load_policy(run_dir)


__all__ = [
    "CLIF",
    "DN",
    "LIF",
    "CaReBN",
    "CaReBN2d",
    "SpikingActor",
    "SpikingLayer",
    "SpikingQNetwork",
    "__version__",
    "load",
    "make_neuron",
    "make_norm",
    "polyak_",
    "recalibrate",
]

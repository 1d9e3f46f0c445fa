"""Spiking reinforcement learning with CaRe-BN."""

from carebn.network import SpikingActor, SpikingLayer, SpikingQNetwork
from carebn.neuron import CLIF, DN, LIF, make_neuron
from carebn.norm import CaReBN, CaReBN2d, make_norm, polyak_, recalibrate

__version__ = "0.1.0"

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
    "make_neuron",
    "make_norm",
    "polyak_",
    "recalibrate",
]

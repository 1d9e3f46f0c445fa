"""From a trained ANN to a spiking network without training: thresholds, simulation, residual potentials."""

from carebn.conversion.convert import Conversion, convert
from carebn.conversion.converted import Converted, ConvertedActor, ConvertedQNetwork, Simulation, shaped_like

__all__ = [
    "Conversion",
    "Converted",
    "ConvertedActor",
    "ConvertedQNetwork",
    "Simulation",
    "convert",
    "shaped_like",
]

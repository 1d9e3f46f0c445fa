"""When the output of a converted network has settled, and from which step on it is read."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

FEWEST_READ = 4  # steps that are read out at least, where there are so many


def delay(layers: Sequence[nn.Linear], thresholds: Sequence[Tensor], x: Tensor) -> float:
    """Steps until spikes have come through all layers: Σ over layers of max θ/2 ÷ max over neurons of mean ReLU(z).

    θ/2 is the charge that is missing to the first spike, since potentials start at θ/2.
    """
    steps = 0.0
    for layer, threshold in zip(layers, thresholds, strict=True):
        z = layer(x).clamp(min=0)
        strongest = float(z.mean(0).max())
        steps += float(threshold.max()) / 2 / strongest if strongest > 0 else 0.0
        x = torch.minimum(z, threshold)
    return steps


def delayed_start(delay: float, time_steps: int) -> int:
    """The first step that is read out: after the delay, or the fourth from the end where that would be later."""
    start = math.ceil(min(delay, time_steps))
    return start if time_steps >= start + FEWEST_READ else max(0, time_steps - FEWEST_READ)

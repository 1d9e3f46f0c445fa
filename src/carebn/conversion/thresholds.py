"""Thresholds of a converted network, per neuron, from observations.

A layer is a Linear followed by ReLU. A neuron with threshold θ can stand for activations up to θ and no more, in steps
of θ/T: a high threshold is coarse, a low one clips.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

SMALLEST = 1e-6  # for neurons that no observation makes active: their spikes then carry next to nothing


def balance(layers: Sequence[nn.Linear], batches: Iterable[Tensor]) -> list[Tensor]:
    """Local threshold balancing (Bu, Li, Yu: CVPR 2025), layer by layer and batch by batch, from θ = 0:

    θ ← θ + 2·mean over the batch of max(0, x − θ), and the next layer sees clip(x, 0, θ) with the new θ.

    θ grows while anything exceeds it, so in the end it reaches the largest activation (or 2·mean of the first batch,
    if that is larger); the fewer the batches, the more of the rare large activations stay above it.
    """
    thresholds = [layer.weight.new_zeros(layer.out_features) for layer in layers]
    for x in batches:
        for layer, threshold in zip(layers, thresholds, strict=True):
            z = layer(x)
            threshold += 2 * (z - threshold).clamp(min=0).mean(0)
            threshold.clamp_(min=SMALLEST)
            x = torch.minimum(z.clamp(min=0), threshold)
    return thresholds


def maxima(layers: Sequence[nn.Linear], batches: Iterable[Tensor]) -> list[Tensor]:
    """The largest activation that was seen."""
    thresholds = [layer.weight.new_full((layer.out_features,), SMALLEST) for layer in layers]
    for x in batches:
        for layer, threshold in zip(layers, thresholds, strict=True):
            x = layer(x).clamp(min=0)
            torch.maximum(threshold, x.amax(0), out=threshold)
    return thresholds


def draws(observations: Tensor, iterations: int, batch_size: int, seed: int) -> Iterator[Tensor]:
    """So many batches, drawn uniformly with replacement."""
    rng = np.random.default_rng(seed)
    for _ in range(iterations):
        yield observations[torch.from_numpy(rng.integers(0, len(observations), batch_size))]


def one_pass(observations: Tensor, iterations: int, batch_size: int, seed: int) -> Iterator[Tensor]:
    """All of them, once."""
    for first in range(0, len(observations), batch_size):
        yield observations[first : first + batch_size]


class Rule(NamedTuple):
    thresholds: Callable[[Sequence[nn.Linear], Iterable[Tensor]], list[Tensor]]
    batches: Callable[[Tensor, int, int, int], Iterator[Tensor]]


RULES = {"ltb": Rule(balance, draws), "max": Rule(maxima, one_pass)}

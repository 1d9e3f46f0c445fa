"""Spikes of an encoder with a gradient: every spike has derivative one with respect to the stimulation behind it."""

from typing import Any

import torch
from torch import Tensor

from carebn.gradients import apply


class _StraightThrough(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(spikes: Tensor, stimulation: Tensor) -> Tensor:
        return spikes.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        return grads[0], grads[0].sum(0)


def straight_through(spikes: Tensor, stimulation: Tensor) -> Tensor:
    """The spikes [T, B, N], whose gradient goes to the stimulation [B, N] too, summed over time.

    Adding ``stimulation − stimulation.detach()`` would do the same, but for a stimulation that is not finite.
    """
    return apply(_StraightThrough, spikes, stimulation)

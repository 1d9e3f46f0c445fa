"""The integrate-and-fire neuron of converted networks: no leak, and a spike subtracts the threshold."""

import torch
from torch import Tensor


def integrate_and_fire(current: Tensor, v: Tensor, threshold: Tensor) -> tuple[Tensor, Tensor]:
    """H = V + I;  S = 1 if H > θ;  V = H − θ·S. Returns (S, V). θ is per neuron; it is not trained, so no surrogate."""
    h = v + current
    spike = (h > threshold).to(h.dtype)
    return spike, torch.addcmul(h, spike, threshold, value=-1)

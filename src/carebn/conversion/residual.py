"""What a neuron of a converted network keeps of its potential from one decision to the next."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor


class Residue(NamedTuple):
    """A decision's potentials and spikes, each [B, neurons]."""

    start: Tensor
    end: Tensor
    counts: Tensor


def crpi(residue: Residue, threshold: Tensor, alpha: float) -> Tensor:
    """Cross-step residual potential initialisation (Xu et al., 2026): what the next decision starts from, beyond θ/2.

    r = max(V(T) − V(0), −θ·n), then α·r held within ±θ/2.

    The potential left over at the end is output that was owed and not given; it is paid at the next decision. A neuron
    cannot have given more than its n spikes of this decision, so one that was silent and far below zero owes nothing.
    """
    owed = torch.maximum(residue.end - residue.start, -threshold * residue.counts)
    return torch.clamp(alpha * owed, -threshold / 2, threshold / 2)


RESIDUALS: dict[str, Callable[[Residue, Tensor, float], Tensor] | None] = {"none": None, "crpi": crpi}

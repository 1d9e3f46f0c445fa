"""Residual potentials (CRPI): every case of the clamp by hand."""

import pytest
import torch

from carebn.conversion.residual import Residue, crpi


@pytest.mark.parametrize(
    ("start", "end", "spikes", "alpha", "kept", "why"),
    [
        (1.0, 1.5, 3, 1.0, 0.5, "what is left over is carried"),
        (1.0, 1.5, 3, 0.3, 0.15, "in part"),
        (1.0, 1.5, 0, 0.3, 0.15, "also by a neuron that was silent"),
        (1.0, 0.5, 3, 1.0, -0.5, "what was given too early is owed"),
        (1.0, -3.0, 3, 1.0, -1.0, "but no more than half a threshold"),
        (1.0, 9.0, 3, 1.0, 1.0, "on either side"),
        (1.0, 9.0, 3, 0.05, 0.4, "the limit is on what is carried, after α"),
        (1.0, -3.0, 0, 1.0, 0.0, "silence owes nothing, however far below"),
        (1.0, -7.0, 1, 0.3, -0.6, "one spike owes one threshold: 0.3·(−2)"),
        (1.0, -7.0, 3, 0.1, -0.6, "three spikes owe three thresholds: 0.1·(−6)"),
        (1.0, 1.5, 3, 0.0, 0.0, "α = 0 is plain conversion"),
    ],
)
def test_the_clamp(start: float, end: float, spikes: int, alpha: float, kept: float, why: str) -> None:
    """With threshold 2."""
    residue = Residue(*(torch.tensor([[value]], dtype=torch.float64) for value in (start, end, spikes)))
    assert crpi(residue, torch.tensor([2.0], dtype=torch.float64), alpha).item() == pytest.approx(kept), why

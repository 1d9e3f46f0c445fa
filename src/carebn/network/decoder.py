"""From spikes to numbers: populations read out by non-spiking neurons."""

import math

import torch
from torch import Tensor, nn

from carebn.errors import unknown_name

READOUTS = ("membrane", "rate")


class PopulationDecoder(nn.Module):
    """``decoder(spikes: [T, B, outputs·population]) → [B, outputs]``; each output reads its own population only.

    membrane   a non-spiking neuron sums Σ_t (w·S_t + b); weights and bias start at 1/T of the usual scale, so that the
               first output equals that of the other read-out
    rate       w·(mean over t of S_t) + b: PopSAN and the authors' code
    """

    belongs: Tensor

    def __init__(self, outputs: int, population: int = 10, time_steps: int = 5, *, readout: str = "membrane") -> None:
        super().__init__()
        if readout not in READOUTS:
            raise ValueError(unknown_name("readout", readout, READOUTS))
        self.outputs = outputs
        self.population = population
        self.readout = readout
        bound = 1 / math.sqrt(population)
        self.weight = nn.Parameter(torch.empty(outputs, population).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(outputs).uniform_(-bound, bound))
        # One small product with a block-diagonal matrix is several times faster than sums over ten numbers each.
        belongs = torch.eye(outputs).repeat_interleave(population, 0)
        self.register_buffer("belongs", belongs, persistent=False)
        if readout == "membrane":
            with torch.no_grad():
                self.weight.div_(time_steps)
                self.bias.div_(time_steps)

    def forward(self, spikes: Tensor) -> Tensor:
        steps = spikes.shape[0]
        matrix = self.weight.view(-1, 1) * self.belongs
        counts = spikes.sum(0)
        if self.readout == "rate":
            return torch.addmm(self.bias, counts, matrix, alpha=1 / steps)
        return torch.addmm(self.bias, counts, matrix, beta=steps)


class MembraneReadout(nn.Linear):
    """``readout(spikes: [T, B, in]) → [B, out]``: fully connected non-leaky, non-spiking neurons, Σ_t (W·S_t + b)."""

    def forward(self, spikes: Tensor) -> Tensor:
        return spikes.sum(0) @ self.weight.t() + spikes.shape[0] * self.bias

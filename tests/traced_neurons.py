"""Neurons as somebody might add them: constants, where their states start, one step."""

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from carebn.neuron import Neuron, Surrogate


class ToyState(NamedTuple):
    v: Tensor  # membrane potential after the reset
    a: Tensor  # how far the threshold was raised


class Toy(Neuron):
    """H = tanh(λ·V + x);  S = 1 if H > V_th + a;  V = H·(1 − S);  a = e^(−1/τ)·a + β·S·e^(−a)."""

    def __init__(
        self, v_threshold: float = 0.3, decay: float = 0.8, tau: float = 4.0, beta: float = 0.2,
        surrogate: Surrogate | None = None,
    ) -> None:  # fmt: skip
        super().__init__(v_threshold, surrogate)
        self.decay = decay
        self.tau = tau
        self.beta = beta

    def initial_state(self, current: Tensor) -> ToyState:
        return ToyState(torch.zeros_like(current), torch.full_like(current, 0.05))

    def step(self, current: Tensor, state: ToyState) -> tuple[Tensor, ToyState]:
        fading = math.exp(-1 / self.tau)
        h = torch.tanh(self.decay * state.v + current)
        spike = self.surrogate(h - (self.v_threshold + state.a))
        return spike, ToyState(h * (1 - spike), fading * state.a + self.beta * spike * torch.exp(-state.a))


class Everything(Neuron):
    """One state, which is a tensor; a learnt number, a class's and a whole one; whatever a step may use."""

    GAIN = 1.5

    def __init__(self) -> None:
        super().__init__(1)  # a whole number
        self.leak = nn.Parameter(torch.tensor(0.3, dtype=torch.float64))
        self.rounds = 2

    def initial_state(self, current: Tensor) -> Tensor:
        return torch.ones_like(current)

    def step(self, current: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        v = torch.sigmoid(self.leak) * state + np.float32(0.5) * current / self.GAIN
        v = v - 0.3 * torch.sigmoid(torch.tanh(v))
        for _ in range(self.rounds):
            v = v - (v.detach().clamp(-1, max=0.7) ** 2).abs() + torch.square(v) * 0.1
        big, small = v > 0.4, (v >= -0.2) & ~(v < -0.1) | (v <= -1)
        v = torch.where(big, torch.sqrt(torch.relu(v)), torch.maximum(v, -(v**3)))
        v = v + small.to(v.dtype) + torch.minimum(v, torch.log(v.abs() + 1)) * (current > 0)
        spike = self.surrogate(v - self.v_threshold)
        return spike, v - self.v_threshold * spike + 0.1 * (1 - spike) * spike

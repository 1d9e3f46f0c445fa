"""A neuron as somebody might add it: constants, where its states start, one step."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

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

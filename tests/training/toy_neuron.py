"""A neuron as a user may add one: its threshold rises with every spike."""

from typing import NamedTuple

import torch
from torch import Tensor

from carebn.neuron import NEURONS, Neuron


class ToyState(NamedTuple):
    v: Tensor
    tired: Tensor


class ToyNeuron(Neuron):
    def initial_state(self, current: Tensor) -> ToyState:
        return ToyState(torch.zeros_like(current), torch.zeros_like(current))

    def step(self, current: Tensor, state: ToyState) -> tuple[Tensor, ToyState]:
        v = 0.5 * state.v + current
        spike = self.surrogate(v - self.v_threshold - state.tired)
        return spike, ToyState(v - spike * self.v_threshold, 0.9 * state.tired + 0.1 * spike)


NEURONS["toy-neuron"] = ToyNeuron

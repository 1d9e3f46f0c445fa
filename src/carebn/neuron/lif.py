"""Leaky integrate-and-fire, with the input as the current (LIF) or through a decaying current (CLIF)."""

from typing import NamedTuple

import torch
from torch import Tensor

from carebn.introspection import stands_for
from carebn.kernels import scan
from carebn.kernels.plans import NeuronSpec
from carebn.neuron.base import Neuron
from carebn.neuron.surrogate import Surrogate


class LIFState(NamedTuple):
    """What a LIF neuron remembers from one step to the next, each of the shape of its input, ``[B, F]``."""

    v: Tensor  # membrane potential after the reset


class CLIFState(NamedTuple):
    """What a CLIF neuron remembers from one step to the next, each of the shape of its input, ``[B, F]``."""

    c: Tensor  # synaptic current
    v: Tensor  # membrane potential after the reset


@stands_for("neuron", "step initial_state scan forward kernel_spec", "v_threshold surrogate")
class LIF(Neuron):
    """Leaky integrate-and-fire: ``neuron(x: [T, B, F]) → spikes [T, B, F]``, zeros and ones.

    H = λ·V + x;  S = 1 if H > V_th;  V = H·(1 − S): the potential V leaks by λ (``decay``), and a spike resets it to 0.
    """

    def __init__(self, v_threshold: float = 0.5, decay: float = 0.75, surrogate: Surrogate | None = None) -> None:
        super().__init__(v_threshold, surrogate)
        self.decay = decay

    def initial_state(self, current: Tensor) -> LIFState:
        return LIFState(torch.zeros_like(current))

    def step(self, current: Tensor, state: LIFState) -> tuple[Tensor, LIFState]:
        h = self.decay * state.v + current
        spike = self.surrogate(h - self.v_threshold)
        return spike, LIFState(h * (1 - spike))

    def kernel_spec(self) -> NeuronSpec:
        return self._spec(scan.LIF, 0.0, self.decay)

    def extra_repr(self) -> str:
        return f"v_threshold={self.v_threshold}, decay={self.decay}, surrogate={self.surrogate}"


@stands_for("neuron", "step initial_state scan forward kernel_spec", "v_threshold surrogate")
class CLIF(Neuron):
    """LIF whose input goes through a decaying current: ``neuron(x: [T, B, F]) → spikes [T, B, F]``, zeros and ones.

    C = λ_c·C + x;  H = λ·V + C;  S = 1 if H > V_th;  V = H·(1 − S). A spike resets the potential V to 0 and leaves the
    current C alone.
    """

    def __init__(
        self,
        v_threshold: float = 0.5,
        decay: float = 0.75,
        current_decay: float = 0.5,
        surrogate: Surrogate | None = None,
    ) -> None:
        super().__init__(v_threshold, surrogate)
        self.decay = decay
        self.current_decay = current_decay

    def initial_state(self, current: Tensor) -> CLIFState:
        return CLIFState(torch.zeros_like(current), torch.zeros_like(current))

    def step(self, current: Tensor, state: CLIFState) -> tuple[Tensor, CLIFState]:
        c = self.current_decay * state.c + current
        h = self.decay * state.v + c
        spike = self.surrogate(h - self.v_threshold)
        return spike, CLIFState(c, h * (1 - spike))

    def kernel_spec(self) -> NeuronSpec:
        return self._spec(scan.LIF, self.current_decay, self.decay)

    def extra_repr(self) -> str:
        return (
            f"v_threshold={self.v_threshold}, decay={self.decay}, current_decay={self.current_decay}, "
            f"surrogate={self.surrogate}"
        )

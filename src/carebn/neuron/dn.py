"""The dynamic neuron of MDC-SAN: a second-order neuron with a resistance U beside the potential V."""

from typing import NamedTuple

import torch
from torch import Tensor

from carebn.introspection import stands_for
from carebn.kernels import scan
from carebn.kernels.plans import NeuronSpec
from carebn.neuron.base import Neuron
from carebn.neuron.surrogate import Surrogate

AUTHORS_MAX_STEPS = 8


class DNState(NamedTuple):
    """What a dynamic neuron remembers from one step to the next, each of the shape of its input, ``[B, F]``."""

    c: Tensor  # synaptic current
    v: Tensor  # membrane potential, not yet reset
    u: Tensor  # resistance
    s: Tensor  # last spike


@stands_for("neuron", "step initial_state scan forward kernel_spec", "v_threshold surrogate")
class DN(Neuron):
    """The dynamic neuron of MDC-SAN: ``neuron(x: [T, B, F]) → spikes [T, B, F]``, zeros and ones.

    C = λ_c·C + x;  V = V·(1 − S) + θ_r·S;  U = U + θ_s·S;
    V ← V + (V² − V − U + C);  U ← U + (θ_v·V − θ_u·U), both from the values before;  S = 1 if V > V_th.
    """

    def __init__(
        self,
        v_threshold: float = 0.5,
        current_decay: float = 0.5,
        theta_v: float = -0.172,
        theta_u: float = 0.529,
        theta_r: float = 0.021,
        theta_s: float = 0.132,
        surrogate: Surrogate | None = None,
    ) -> None:
        super().__init__(v_threshold, surrogate)
        self.current_decay = current_decay
        self.theta_v = theta_v
        self.theta_u = theta_u
        self.theta_r = theta_r
        self.theta_s = theta_s

    def initial_state(self, current: Tensor) -> DNState:
        zero = torch.zeros_like(current)
        return DNState(zero, zero, zero, zero)

    def step(self, current: Tensor, state: DNState) -> tuple[Tensor, DNState]:
        c = self.current_decay * state.c + current
        v = state.v * (1 - state.s) + self.theta_r * state.s
        u = state.u + self.theta_s * state.s
        v_new = v + (v * v - v - u + c)
        u_new = u + (self.theta_v * v - self.theta_u * u)
        spike = self.surrogate(v_new - self.v_threshold)
        return spike, DNState(c, v_new, u_new, spike)

    def kernel_spec(self) -> NeuronSpec:
        return self._spec(scan.DN, self.current_decay, self.theta_v, self.theta_u, self.theta_r, self.theta_s)

    def extra_repr(self) -> str:
        return (
            f"v_threshold={self.v_threshold}, current_decay={self.current_decay}, theta_v={self.theta_v}, "
            f"theta_u={self.theta_u}, theta_r={self.theta_r}, theta_s={self.theta_s}, surrogate={self.surrogate}"
        )


class DNAuthors(DN):
    """The authors' code: +θ_u·U, which multiplies U by 1.529 at every step. Kept to reproduce their runs."""

    def __init__(self, v_threshold: float = 0.5, surrogate: Surrogate | None = None) -> None:
        super().__init__(v_threshold, theta_u=-0.529, surrogate=surrogate)

    def check_steps(self, steps: int) -> None:
        super().check_steps(steps)
        if steps > AUTHORS_MAX_STEPS:
            raise ValueError(
                f"dn-authors is unstable (its resistance grows 1.529-fold each step) and is refused for more than "
                f"{AUTHORS_MAX_STEPS} time steps, got {steps}; use 'dn'"
            )

"""What every neuron shares: a pure step, run over time from a state of zeros."""

from typing import Any

import torch
from torch import Tensor, nn

from carebn.kernels import fused
from carebn.kernels.plans import NeuronSpec
from carebn.neuron.surrogate import Rectangle, Surrogate
from carebn.router import plan_neuron


class Neuron(nn.Module):
    """A neuron with its parameters and no hidden state: ``neuron(x: [T, B, F]) → spikes [T, B, F]``.

    ``step(current, state) → (spike, state)`` is the neuron's equations and the definition of what it does;
    ``initial_state(current)`` is where every decision starts. ``forward`` runs the step over the first axis; on the
    CPU a compiled scan with the same result does it. Exports and the energy bill follow the step too: see tracing.py.
    """

    def __init__(self, v_threshold: float = 0.5, surrogate: Surrogate | None = None) -> None:
        super().__init__()
        self.v_threshold = v_threshold
        self.surrogate = surrogate if surrogate is not None else Rectangle()

    def initial_state(self, current: Tensor) -> Any:
        raise NotImplementedError

    def step(self, current: Tensor, state: Any) -> tuple[Tensor, Any]:
        raise NotImplementedError

    def _spec(self, family: int, *constants: float) -> NeuronSpec:
        """For the compiled scans of this family: constants in their order. Whether one may run, the router decides."""
        return NeuronSpec(family, (self.v_threshold, *constants), self.surrogate.kernel_number, self.surrogate.size)

    def check_steps(self, steps: int) -> None:
        """Refuse a number of steps that this neuron cannot run."""
        if steps < 1:
            raise ValueError(f"{type(self).__name__} needs at least one time step, got {steps}")

    def scan(self, x: Tensor) -> Tensor:
        """The pure step over the first axis of x; the twin of the compiled scan."""
        self.check_steps(x.shape[0])
        state = self.initial_state(x[0])
        spikes = []
        for current in x.unbind(0):
            spike, state = self.step(current, state)
            spikes.append(spike)
        return torch.stack(spikes)

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim < 2:
            raise ValueError(f"{type(self).__name__} expects time first, [T, ..., F], got shape {tuple(x.shape)}")
        if not x.is_floating_point():
            raise ValueError(f"{type(self).__name__} expects floating-point input, got {x.dtype}; use x.float()")
        spec = plan_neuron(self, x)
        if isinstance(spec, str):
            return self.scan(x)
        self.check_steps(x.shape[0])
        return fused.fire(x, spec)

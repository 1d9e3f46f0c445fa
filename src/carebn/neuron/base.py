"""What every neuron shares: a pure step, run over time from a state of zeros."""

from typing import Any

import torch
from torch import Tensor, nn

from carebn.kernels import fused
from carebn.neuron.surrogate import Rectangle, Surrogate, kernel_number


class Neuron(nn.Module):
    """A neuron with its parameters and no hidden state: ``neuron(x: [T, B, F]) → spikes [T, B, F]``.

    ``step(current, state) → (spike, state)`` is the neuron's equations and the definition of what it does;
    ``initial_state(current)`` is where every decision starts. ``forward`` runs the step over the first axis; on the
    CPU a compiled scan with the same result does it.
    """

    def __init__(self, v_threshold: float = 0.5, surrogate: Surrogate | None = None) -> None:
        super().__init__()
        self.v_threshold = v_threshold
        self.surrogate = surrogate if surrogate is not None else Rectangle()

    def initial_state(self, current: Tensor) -> Any:
        raise NotImplementedError

    def step(self, current: Tensor, state: Any) -> tuple[Tensor, Any]:
        raise NotImplementedError

    def kernel_spec(self) -> fused.NeuronSpec | None:
        """The compiled scan with this neuron's step and surrogate; None: there is none, the pure step runs."""
        return None

    def _spec(self, model: type["Neuron"], family: int, constants: tuple[float, ...]) -> fused.NeuronSpec | None:
        """The scan that was written for ``model``, unless a subclass or a user changed what it does."""
        surrogate = kernel_number(self.surrogate)
        mine, theirs = type(self), (model.step, model.initial_state, Neuron.scan)
        if (mine.step, mine.initial_state, mine.scan) != theirs or "step" in vars(self) or surrogate is None:
            return None
        return fused.NeuronSpec(family, constants, surrogate, self.surrogate.size)

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
        spec = self.kernel_spec() if fused.usable(x) else None
        if spec is not None:
            self.check_steps(x.shape[0])
            return fused.fire(x, x.shape[0], spec)
        return self.scan(x)

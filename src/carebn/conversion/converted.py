"""Converted networks: an ANN's weights, run by integrate-and-fire neurons for T steps a decision."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from carebn.conversion.integrate_fire import Activity, IntegrateFireBody
from carebn.conversion.residual import RESIDUALS, Residue
from carebn.errors import unknown_name
from carebn.network.ann import ANNActor, relu_layers
from carebn.network.bounds import ActionBounds, Bound
from carebn.network.qnetwork import ANNQNetwork, as_input


@dataclass(frozen=True)
class Simulation:
    """How a converted network is run. It may be changed at any time; weights and thresholds do not depend on it."""

    time_steps: int = 100
    read_out_from: int = 0  # steps that are left out of the output
    residual: str = "none"
    alpha: float = 0.0

    def __post_init__(self) -> None:
        if self.time_steps < 1:
            raise ValueError(f"a converted network needs at least one time step, got {self.time_steps}")
        if not 0 <= self.read_out_from < self.time_steps:
            raise ValueError(
                f"the read-out must begin at a step from 0 to {self.time_steps - 1}, one of the {self.time_steps} time "
                f"steps, got {self.read_out_from}"
            )
        if self.residual not in RESIDUALS:
            raise ValueError(unknown_name("residual", self.residual, RESIDUALS))
        if not 0 <= self.alpha <= 1:
            raise ValueError(f"alpha must lie in [0, 1], got {self.alpha}")


class Converted(nn.Module):
    """``decide(obs, carried) → (output, carried)``: one decision of T steps.

    Every potential starts at θ/2, plus what the neuron carried over from the decision before: ``carried``
    [B, neurons], or None at the start of an episode. The network itself remembers nothing. With residual "none"
    nothing is carried, and None is returned.
    """

    delay: Tensor

    def __init__(self, inputs: int, hidden: Sequence[int], outputs: int, simulation: Simulation) -> None:
        super().__init__()
        self.inputs = inputs
        self.body = IntegrateFireBody((inputs, *hidden))
        self.head = nn.Linear(hidden[-1], outputs)
        self.register_buffer("delay", torch.zeros(()))  # steps until the output has settled; see delay.py
        self.simulation = simulation

    def prepared(self, obs: Tensor) -> Tensor:
        if obs.ndim != 2 or obs.shape[1] != self.inputs:
            raise ValueError(f"expected observations of shape [B, {self.inputs}], got {tuple(obs.shape)}")
        return obs.to(self.head.weight.dtype)

    def output(self, potential: Tensor) -> Tensor:
        return potential

    def _start(self, batch: int, carried: Tensor | None) -> Tensor:
        half = (self.body.thresholds / 2).expand(batch, -1)
        if carried is None:
            return half
        if carried.shape != half.shape:
            raise ValueError(
                f"expected carried potentials of shape {tuple(half.shape)}, one row per observation, got "
                f"{tuple(carried.shape)}"
            )
        return half + carried

    def decide(self, obs: Tensor, carried: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        return self.observed(obs, carried)[:2]

    @torch.no_grad()
    def observed(self, obs: Tensor, carried: Tensor | None = None) -> tuple[Tensor, Tensor | None, Activity]:
        """``decide``, and the spikes and potentials of that decision."""
        run, start = self.simulation, self._start(len(obs), carried)
        activity = self.body.run(self.prepared(obs), start, run.time_steps, run.read_out_from)
        rule = RESIDUALS[run.residual]
        residue = Residue(start, activity.end, activity.counts)
        kept = None if rule is None else rule(residue, self.body.thresholds, run.alpha)
        return self.output(self.head(activity.rate)), kept, activity

    def forward(self, obs: Tensor) -> Tensor:
        """The output at the start of an episode."""
        return self.decide(obs)[0]

    def extra_repr(self) -> str:
        return str(self.simulation)


class ConvertedActor(Converted):
    """Decides actions within their bounds."""

    def __init__(
        self,
        inputs: int,
        hidden: Sequence[int],
        action_dim: int,
        simulation: Simulation,
        *,
        low: Bound = -1.0,
        high: Bound = 1.0,
    ) -> None:
        super().__init__(inputs, hidden, action_dim, simulation)
        self.bounds = ActionBounds(action_dim, low, high)

    def output(self, potential: Tensor) -> Tensor:
        action: Tensor = self.bounds(potential)
        return action


class ConvertedQNetwork(Converted):
    """Decides values of actions."""

    def __init__(
        self, inputs: int, hidden: Sequence[int], actions: int, simulation: Simulation, *, raw_bytes: bool = False
    ) -> None:
        super().__init__(inputs, hidden, actions, simulation)
        self.raw_bytes = raw_bytes

    def prepared(self, obs: Tensor) -> Tensor:
        return as_input(obs, self.inputs, self.raw_bytes, self.head.weight.dtype)


def shaped_like(network: nn.Module, simulation: Simulation) -> ConvertedActor | ConvertedQNetwork:
    """The converted counterpart of an ordinary network, its weights and thresholds yet to be filled in."""
    if not isinstance(network, (ANNActor, ANNQNetwork)):
        raise ValueError(
            f"only an ordinary network (ANNActor, ANNQNetwork) can be converted to a spiking one, and this is a "
            f"{type(network).__name__}"
        )
    linears = [*(linear for linear, _ in relu_layers(network.body)), network.head]
    inputs, *hidden = [linear.in_features for linear in linears]
    outputs, like = network.head.out_features, network.head.weight
    converted: ConvertedActor | ConvertedQNetwork
    if isinstance(network, ANNActor):
        bounds = network.bounds
        converted = ConvertedActor(inputs, hidden, outputs, simulation, low=bounds.low.cpu(), high=bounds.high.cpu())
    else:
        converted = ConvertedQNetwork(inputs, hidden, outputs, simulation, raw_bytes=network.raw_bytes)
    return converted.to(device=like.device, dtype=like.dtype).eval().requires_grad_(False)

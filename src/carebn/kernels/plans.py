"""What ``carebn.router`` hands to the kernels: plans. And the two questions of a user: leave the kernels alone, and
which path runs.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from copy import deepcopy
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from carebn.kernels.rates import firing_rates, listener_of

enabled: ContextVar[bool] = ContextVar("carebn_kernelsenabled", default=True)
_listener: ContextVar[list["Decision"] | None] = ContextVar("carebn_kernels_listener", default=None)


@contextmanager
def pure() -> Iterator[None]:
    """Inside this context, in this thread, everything runs on the pure-torch path."""
    token = enabled.set(False)
    try:
        yield
    finally:
        enabled.reset(token)


class NeuronSpec(NamedTuple):
    """Which compiled scan runs a neuron, and its constants in the scan's order."""

    family: int
    constants: tuple[float, ...]  # the threshold first
    surrogate: int  # its number in the scan
    surrogate_size: float


class MovingRule(NamedTuple):
    """How moving statistics follow, in the terms of ``norm_statistics.update_moving``."""

    rule: int
    momentum: float
    errors: tuple[Tensor, ...] = ()


class LayerPlan(NamedTuple):
    """One layer: Linear → map → neuron. Without a norm the map is the identity."""

    weight: Tensor
    bias: Tensor | None
    norm: Any  # a Norm, or None
    learning: bool  # batch statistics, which also move the moving ones
    spec: NeuronSpec
    bias_cancels: bool = False  # a norm that subtracts the batch's mean subtracts the bias with it
    own_rules: bool = False  # learning by rules of somebody's own, who calls them functions
    given: tuple[Tensor, Tensor] | None = None  # scale and shift in inference, [Ts, F]


class StackLayer(NamedTuple):
    """A layer of the stack. Its map is that of a plain norm's batch statistics, these vectors, or none."""

    weight: Tensor
    bias: Tensor | None
    spec: NeuronSpec
    norm: Any = None  # in training
    rule: MovingRule | None = None  # of the moving statistics, in training; None: the norm's own ``observe``
    given: tuple[Tensor, Tensor] | None = None


class Decision(NamedTuple):
    module: nn.Module
    path: str
    reason: str  # why not a faster one; empty if there is none


class NotForKernelsError(Exception):
    """Noticed on the way, before anything has changed: the pure path has to do it."""


Plan = TypeVar("Plan")


def told(module: nn.Module, path: str, answer: Plan | str, otherwise: str = "pure") -> Plan | str:
    """Pass the answer on, and tell it to whoever listens."""
    heard = None if torch.compiler.is_compiling() else _listener.get()
    if heard is not None:
        heard.append(Decision(module, otherwise, answer) if isinstance(answer, str) else Decision(module, path, ""))
    return answer


# --- telling ---------------------------------------------------------------------------------------------------------


class Explanation(list[tuple[str, str, str]]):
    """Rows of (part of the network, path, why not a faster one)."""

    def __str__(self) -> str:
        wide = max((len(name) for name, _, _ in self), default=0)
        return "\n".join(f"{name:{wide}}  {path:5}  {reason}".rstrip() for name, path, reason in self)


def explain(network: nn.Module, obs: Tensor) -> Explanation:
    """Which path each part of the network takes for these observations, and why it is not a faster one.

    - ``stack``: all layers at once on packed spikes; ``layer``: one layer, product to spikes
    - ``scan``: a neuron over time; ``act``: acting, a whole actor in one call; ``module``: acting by the module itself
    - ``pure``: plain torch operations; ``parts``: layer by layer, see the rows of its layers

    A copy of the network is run, in the mode that it is in, so that no statistics move. Inside
    ``firing_rates(network)`` a row more tells what counts the spikes: the stack its bits, or torch, by means.
    """
    counts = listener_of(network) is not None
    network = deepcopy(network)
    names = {module: name or "(network)" for name, module in network.named_modules()}
    heard: list[Decision] = []
    token = _listener.set(heard)
    try:
        with firing_rates(network) if counts else nullcontext() as rates:
            network(obs)
        if hasattr(network, "acting_path"):
            network.acting_path()  # type: ignore[operator]
    finally:
        _listener.reset(token)
    rows = [(names.get(d.module, type(d.module).__name__), d.path, d.reason) for d in heard]
    return Explanation(rows if rates is None else [*rows, ("(firing rates)", rates.path, rates.reason)])

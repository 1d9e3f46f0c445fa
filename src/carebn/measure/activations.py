"""What reaches each normaliser of a network while it acts."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from carebn.norm import TAB, Norm


def normalisers(network: nn.Module) -> list[Norm]:
    """In the order in which an observation passes them."""
    return [module for module in network.modules() if isinstance(module, Norm)]


@torch.no_grad()
def norm_inputs(network: nn.Module, obs: Tensor) -> list[Tensor]:
    """The input of every normaliser, ``[T, B, F]``, as ``obs`` pass through with the moving statistics in use.

    Neither parameters nor statistics nor modes are changed.
    """
    norms = normalisers(network)
    seen: dict[int, Tensor] = {}

    def listen(module: nn.Module, args: tuple[Any, ...]) -> None:
        seen[id(module)] = args[0].detach()

    hooks = [norm.register_forward_pre_hook(listen) for norm in norms]
    try:
        with _evaluating(network):
            network(obs)
    finally:
        for hook in hooks:
            hook.remove()
    return [seen[id(norm)] for norm in norms]


def estimated(norm: Norm, inputs: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Pairs of what a normaliser believes and what is true: samples ``[n, F]``, its mean and its variance ``[F]``.

    One pair where statistics are pooled over time; one for each step where every step has its own (for TAB, they are
    about all steps so far).
    """
    if norm.running_mean.ndim == 1:
        yield inputs.reshape(-1, inputs.shape[-1]), norm.running_mean, norm.running_var
        return
    for t in range(inputs.shape[0]):
        steps = inputs[: t + 1] if isinstance(norm, TAB) else inputs[t : t + 1]
        yield steps.reshape(-1, inputs.shape[-1]), norm.running_mean[t], norm.running_var[t]


@contextmanager
def _evaluating(network: nn.Module) -> Iterator[None]:
    modes = [(module, module.training) for module in network.modules()]
    for module, _ in modes:
        module.training = False
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode

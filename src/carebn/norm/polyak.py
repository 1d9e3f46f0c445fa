"""Target networks: let the target follow the online network, moving statistics included."""

import torch
from torch import Tensor, nn


def _followers(model: nn.Module) -> dict[str, Tensor]:
    """Parameters, and buffers that hold moving statistics."""
    followed: dict[str, Tensor] = dict(model.named_parameters())
    for name, buffer in model.named_buffers():
        if name.rpartition(".")[2].startswith("running_") and buffer.is_floating_point():
            followed[name] = buffer
    return followed


class Follower:
    """``polyak_`` for one pair of networks, with the pairs of tensors looked up once: it runs at every update."""

    def __init__(self, target: nn.Module, online: nn.Module, tau: float) -> None:
        if not 0 <= tau <= 1:
            raise ValueError(f"tau must lie in [0, 1], got {tau}")
        ours, theirs = _followers(target), _followers(online)
        if ours.keys() != theirs.keys():
            odd = sorted(ours.keys() ^ theirs.keys())
            raise ValueError(
                f"target and online network differ in {odd[0]!r}; make the target a deepcopy of the network"
            )
        for name, tensor in ours.items():
            if tensor.shape != theirs[name].shape:
                raise ValueError(
                    f"target and online network differ in the shape of {name!r}: "
                    f"{tuple(tensor.shape)} and {tuple(theirs[name].shape)}"
                )
        self._ours, self._theirs, self._tau = list(ours.values()), [theirs[name] for name in ours], tau

    @torch.no_grad()
    def step(self) -> None:
        for ours, theirs in zip(self._ours, self._theirs, strict=True):
            ours.lerp_(theirs, self._tau)


def polyak_(target: nn.Module, online: nn.Module, tau: float) -> None:
    """target ← (1 − τ)·target + τ·online, in place, for parameters and moving statistics.

    The confidence terms of CaRe-BN are left alone: they describe how the online network's own estimates err. A loop
    over ``parameters()`` would leave the target's statistics at mean 0 and variance 1 for ever.
    """
    Follower(target, online, tau).step()

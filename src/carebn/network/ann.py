"""Ordinary networks, with and without a normaliser: what the spiking ones are compared with."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from torch import Tensor, nn

from carebn.network.bounds import ActionBounds, Bound
from carebn.norm import TDBN, NoNorm, Norm, make_norm
from carebn.norm.folding import plain


def relu_body(inputs: int, hidden: Sequence[int], norm: str, norm_options: dict[str, Any] | None) -> nn.Sequential:
    """Linear → [norm] → ReLU for each hidden size, on [T = 1, B, inputs]. A norm starts at γ = 1, β = 0."""
    layers: list[nn.Module] = []
    for a, b in pairwise((inputs, *hidden)):
        layers.append(nn.Linear(a, b))
        if norm != "none":
            # A ReLU has no threshold; tdBN has its constant from that of the spiking networks beside it.
            options = {"v_threshold": 0.5, **(norm_options or {})}
            layers.append(_start_at_identity(make_norm(norm, b, time_steps=1, **options)))
        layers.append(nn.ReLU())
    return nn.Sequential(*layers)


def _start_at_identity(norm: nn.Module) -> nn.Module:
    factor = norm.factor if isinstance(norm, TDBN) else 1.0
    for name, start in (("weight", 1 / factor), ("bias", 0.0)):
        parameter = getattr(norm, name, None)
        if parameter is not None:
            nn.init.constant_(parameter, start)
    return norm


def relu_layers(body: nn.Module) -> list[tuple[nn.Linear, nn.Module | None]]:
    """What ``relu_body`` makes, taken apart: every Linear with the norm behind it. Anything else is refused by name."""
    layers = []
    modules = list(plain(body, nn.Sequential))
    while modules:
        linear = plain(modules.pop(0), nn.Linear)
        norm = modules.pop(0) if modules and isinstance(modules[0], Norm | NoNorm) else None
        plain(modules.pop(0) if modules else None, nn.ReLU)
        layers.append((linear, norm))
    return layers


class ANNActor(nn.Module):
    """The ordinary policy: ``actor(obs: [B, obs_dim]) → actions [B, action_dim]`` within ``low`` and ``high``.

    Linear → [norm] → ReLU for each hidden size, then Linear → tanh → [low, high], on the raw observation.
    A norm starts at γ = 1, β = 0; there is none on the output.
    """

    def __init__(
        self,
        obs_dim: int,
        action_dim: int,
        *,
        norm: str = "none",
        hidden: Sequence[int] = (256, 256),
        low: Bound = -1.0,
        high: Bound = 1.0,
        norm_options: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.body = relu_body(obs_dim, hidden, norm, norm_options)
        self.head = nn.Linear(hidden[-1], action_dim)
        self.bounds = ActionBounds(action_dim, low, high)

    def potential(self, obs: Tensor) -> Tensor:
        decoded: Tensor = self.head(self.body(obs[None])[0])  # one time step, for the norms that expect one
        return decoded

    def forward(self, obs: Tensor) -> Tensor:
        action: Tensor = self.bounds(self.potential(obs))
        return action

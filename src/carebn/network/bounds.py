"""Actions within their bounds, each dimension its own."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from carebn.introspection import stands_for

Bound = float | Sequence[float] | Tensor


@stands_for("bounds", "forward clip", "middle reach low high")
class ActionBounds(nn.Module):
    """Maps the real line to [low, high] by tanh, per action dimension."""

    middle: Tensor
    reach: Tensor
    low: Tensor
    high: Tensor

    def __init__(self, action_dim: int, low: Bound, high: Bound) -> None:
        super().__init__()
        lowest = torch.as_tensor(low, dtype=torch.float32).expand(action_dim)
        highest = torch.as_tensor(high, dtype=torch.float32).expand(action_dim)
        if not (torch.isfinite(lowest).all() and torch.isfinite(highest).all() and (lowest < highest).all()):
            raise ValueError(f"action bounds must be finite with low < high, got low={low} and high={high}")
        # in float64, where bounds as wide as float32 do not overflow
        self.register_buffer("middle", ((highest.double() + lowest.double()) / 2).float())
        self.register_buffer("reach", ((highest.double() - lowest.double()) / 2).float())
        self.register_buffer("low", lowest.clone())
        self.register_buffer("high", highest.clone())

    def clip(self, action: Tensor) -> Tensor:
        return torch.clamp(action, self.low, self.high)

    def forward(self, x: Tensor) -> Tensor:
        return self.clip(self.middle + self.reach * torch.tanh(x))  # rounding may step over a bound

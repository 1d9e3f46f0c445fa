"""Actions within their bounds, each dimension its own."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

Bound = float | Sequence[float] | Tensor


class ActionBounds(nn.Module):
    """Maps the real line to [low, high] by tanh, per action dimension."""

    middle: Tensor
    reach: Tensor

    def __init__(self, action_dim: int, low: Bound, high: Bound) -> None:
        super().__init__()
        lowest = torch.as_tensor(low, dtype=torch.float32).expand(action_dim)
        highest = torch.as_tensor(high, dtype=torch.float32).expand(action_dim)
        if not (torch.isfinite(lowest).all() and torch.isfinite(highest).all() and (lowest < highest).all()):
            raise ValueError(f"action bounds must be finite with low < high, got low={low} and high={high}")
        self.register_buffer("middle", (highest + lowest) / 2)
        self.register_buffer("reach", (highest - lowest) / 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.middle + self.reach * torch.tanh(x)

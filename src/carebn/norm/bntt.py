"""BNTT, batch norm through time (Kim & Panda, 2021)."""

from typing import ClassVar

import torch
from torch import Tensor, nn

from carebn.introspection import stands_for
from carebn.norm.base import StepNorm


@stands_for("known map", "combine scale_offset affine_parameters")
class BNTT(StepNorm):
    """y_t = γ_t·(x_t − mean_t)/√(var_t + ε): every step has statistics and a weight of its own, γ_t starts at 1.

    There is no β, as published; a number for ``bias`` adds β_t that starts there.
    """

    per_step: ClassVar[bool] = True

    def __init__(
        self,
        num_features: int,
        time_steps: int = 5,
        momentum: float | None = 0.1,
        eps: float = 1e-5,
        weight: float = 1.0,
        bias: float | None = None,
    ) -> None:
        super().__init__(num_features, time_steps, momentum, eps)
        self.weight = nn.Parameter(torch.full((time_steps, num_features), float(weight)))
        self.register_parameter("bias", None)
        if bias is not None:
            self.bias = nn.Parameter(torch.full((time_steps, num_features), float(bias)))

    def scale_offset(self, var: Tensor) -> tuple[Tensor, Tensor]:
        scale = self.weight * torch.rsqrt(var + self.eps)
        return scale, torch.zeros_like(self.weight) if self.bias is None else self.bias

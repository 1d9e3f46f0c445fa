"""TEBN, temporal effective batch norm (Duan et al., NeurIPS 2022)."""

import torch
from torch import Tensor, nn

from carebn.introspection import stands_for
from carebn.norm.base import StepNorm


@stands_for("known map", "combine scale_offset affine_parameters")
class TEBN(StepNorm):
    """y_t = p_t·(γ·(x_t − mean)/√(var + ε) + β): pooled statistics, one learned factor per step, starting at 1."""

    def __init__(
        self,
        num_features: int,
        time_steps: int = 5,
        momentum: float | None = 0.1,
        eps: float = 1e-5,
        weight: float = 1.0,
        bias: float = 0.0,
    ) -> None:
        super().__init__(num_features, time_steps, momentum, eps)
        self.weight = nn.Parameter(torch.full((num_features,), float(weight)))
        self.bias = nn.Parameter(torch.full((num_features,), float(bias)))
        self.step_scale = nn.Parameter(torch.ones(time_steps))

    def scale_offset(self, var: Tensor) -> tuple[Tensor, Tensor]:
        p = self.step_scale[:, None]
        return p * (self.weight * torch.rsqrt(var + self.eps)), p * self.bias

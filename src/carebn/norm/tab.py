"""TAB, temporal accumulated batch norm (Jiang et al., ICLR 2024)."""

from typing import ClassVar

import torch
from torch import Tensor, nn

from carebn.introspection import stands_for
from carebn.norm.base import StepNorm


@stands_for("shift-equivariant norm", "combine")
@stands_for("moving update", "update samples_per_statistic")
@stands_for("known map", "combine scale_offset affine_parameters")
class TAB(StepNorm):
    """y_t = p_t²·(γ_t·(x_t − mean_{1:t})/√(var_{1:t} + ε) + β_t): at step t the statistics of all steps up to t.

    γ_t and p_t start at 1, β_t at 0; every step has moving statistics of its own.
    """

    per_step: ClassVar[bool] = True

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
        self.weight = nn.Parameter(torch.full((time_steps, num_features), float(weight)))
        self.bias = nn.Parameter(torch.full((time_steps, num_features), float(bias)))
        self.step_scale = nn.Parameter(torch.ones(time_steps))

    def _steps(self, like: Tensor) -> Tensor:
        return torch.arange(1, self.time_steps + 1, device=like.device, dtype=like.dtype)[:, None]

    def combine(self, mean: Tensor, var: Tensor) -> tuple[Tensor, Tensor]:
        """Pooled over the steps so far; deviations are taken from the first step's mean, so that nothing cancels."""
        t = self._steps(mean)
        offset = mean - mean[0]
        pooled_offset = offset.cumsum(0) / t
        pooled_var = (var + offset * offset).cumsum(0) / t - pooled_offset * pooled_offset
        return mean[0] + pooled_offset, pooled_var.clamp(min=0)

    def samples_per_statistic(self, mean: Tensor, batch: int, samples: int) -> Tensor:
        return samples / self.time_steps * self._steps(mean)

    def scale_offset(self, var: Tensor) -> tuple[Tensor, Tensor]:
        p = (self.step_scale * self.step_scale)[:, None]
        return p * self.weight * torch.rsqrt(var + self.eps), p * self.bias

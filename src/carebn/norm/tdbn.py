"""tdBN, threshold-dependent batch norm (Zheng et al., AAAI 2021)."""

import torch
from torch import Tensor, nn

from carebn.introspection import stands_for
from carebn.norm.base import Norm


@stands_for("known map", "combine scale_offset affine_parameters")
class TDBN(Norm):
    """y = γ·(α·V_th·(x − mean)/√(var + ε)) + β, statistics pooled over time and batch; γ starts at 1, β at 0.

    α·V_th is a constant outside the weight, as in its authors' code. Libraries that put it into the starting weight
    compute the same function, but an optimiser with a fixed step size moves it relatively faster there.
    ``threshold_in_weight=True`` does the same here. Give it the threshold of the neurons behind it.
    """

    def __init__(
        self,
        num_features: int,
        momentum: float | None = 0.1,
        eps: float = 1e-5,
        v_threshold: float = 1.0,
        alpha: float = 1.0,
        threshold_in_weight: bool = False,
        weight: float | None = None,
        bias: float = 0.0,
    ) -> None:
        super().__init__(num_features, momentum, eps, (num_features,))
        factor = alpha * v_threshold
        self.factor = 1.0 if threshold_in_weight else factor
        start = (factor if threshold_in_weight else 1.0) if weight is None else weight / self.factor
        self.weight = nn.Parameter(torch.full((num_features,), float(start)))
        self.bias = nn.Parameter(torch.full((num_features,), float(bias)))

    def scale_offset(self, var: Tensor) -> tuple[Tensor, Tensor]:
        return self.weight * self.factor * torch.rsqrt(var + self.eps), self.bias

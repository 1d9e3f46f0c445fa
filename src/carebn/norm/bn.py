"""Plain batch norm over time and batch, with an exponential moving average."""

from typing import ClassVar

from carebn.kernels.plans import MovingRule
from carebn.kernels.vectors import AVERAGE
from carebn.norm.base import TorchNorm
from carebn.router import stands_for


@stands_for("plain norm", "combine scale_offset per_step", "weight bias eps")
@stands_for(
    "moving statistics",
    "observe update samples_per_statistic kernel_rule",
    "running_mean running_var num_batches_tracked momentum",
)
class BN(TorchNorm):
    """γ·(x − mean)/√(var + ε) + β with statistics pooled over time and batch; the moving ones follow by ``momentum``.

    γ and β start at half the threshold, as in CaRe-BN, so that the two differ in their moving statistics alone;
    ``weight=1, bias=0`` is torch's start.
    """

    def __init__(
        self,
        num_features: int,
        momentum: float | None = 0.1,
        eps: float = 1e-5,
        v_threshold: float = 0.5,
        weight: float | None = None,
        bias: float | None = None,
    ) -> None:
        half = v_threshold / 2
        super().__init__(
            num_features, momentum, eps, half if weight is None else weight, half if bias is None else bias
        )

    def kernel_rule(self) -> MovingRule | None:
        return None if self.momentum is None else MovingRule(AVERAGE, self.momentum)


class ReBN(BN):
    """Plain batch norm that is re-calibrated periodically."""

    recalibrates: ClassVar[bool] = True

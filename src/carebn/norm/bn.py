"""Plain batch norm over time and batch, with an exponential moving average."""

from typing import ClassVar

from carebn.introspection import stands_for
from carebn.kernels.norm_statistics import AVERAGE
from carebn.kernels.plans import MovingRule
from carebn.norm.torch_norm import TorchNorm


@stands_for("plain norm", "combine scale_offset per_step", "weight bias eps")
@stands_for(
    "moving statistics",
    "observe update samples_per_statistic kernel_rule",
    "running_mean running_var num_batches_tracked momentum track_running_stats",
)
class BN(TorchNorm):
    """γ·(x − mean)/√(var + ε) + β with statistics pooled over time and batch; the moving ones follow by ``momentum``.

    Bare it is ``nn.BatchNorm1d`` with features last. With ``v_threshold`` it starts as CaRe-BN does, so that the two
    differ in their moving statistics alone.
    """

    def kernel_rule(self) -> MovingRule | None:
        return None if self.momentum is None else MovingRule(AVERAGE, self.momentum)


class ReBN(BN):
    """Plain batch norm that is re-calibrated periodically."""

    recalibrates: ClassVar[bool] = True

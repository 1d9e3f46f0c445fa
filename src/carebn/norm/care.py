"""CaRe-BN: moving statistics that weigh each batch by its confidence (Algorithm 1 of the paper)."""

from typing import Any, ClassVar

import torch
from torch import Tensor

from carebn.introspection import stands_for
from carebn.kernels.norm_statistics import CONFIDENCE
from carebn.kernels.plans import MovingRule
from carebn.norm.base import store_
from carebn.norm.torch_norm import Device, TorchNorm


def follow(moving: Tensor, error: Tensor, value: Tensor, noise: Tensor, momentum: float) -> tuple[Tensor, Tensor]:
    """One confidence-weighted step: the new moving value and the new error estimate D.

    D ← (1 − α)·D + α·(value − moving)²;  K = D/(D + R);  moving ← moving + K·(value − moving)

    R (``noise``) is the variance of the batch's own estimate, D that of the moving one. Where both are zero the two
    agree already and K is taken as zero.
    """
    gap = value - moving
    error = error + momentum * (gap * gap - error)
    total = error + noise
    gain = torch.where(total > 0, error / total, 0.0)
    return moving + gain * gap, error


@stands_for("moving update", "update samples_per_statistic")
@stands_for("plain norm", "combine scale_offset per_step", "weight bias eps")
@stands_for(
    "moving statistics",
    "observe update samples_per_statistic kernel_rule",
    "running_mean running_var num_batches_tracked momentum track_running_stats",
)
class CaReBN(TorchNorm):
    """Batch normalisation whose moving statistics stay precise while an agent learns online.

    Features last, every other axis is samples: ``[B, F]`` or ``[T, B, F]``. Statistics are pooled over time and batch;
    the confidence counts the batch axis only, because the steps of one sample are not independent. ``momentum`` weighs
    the new term in the error estimates ``error_mean`` and ``error_var``: 0.8 as in the paper's table, 0.2 is what the
    authors' code does. ``momentum=None`` makes a plain cumulative average, as in torch. The other arguments are
    those of ``nn.BatchNorm1d``. γ and β start at 1 and 0 as there; ``v_threshold`` gives the paper's start, half of it.

    Called once per sequence it makes one update. Called step by step inside a time loop it still works, but makes T
    updates from T times smaller samples: prefer the whole sequence.
    """

    recalibrates: ClassVar[bool] = True
    error_mean: Tensor
    error_var: Tensor

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.8,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Device = None,
        dtype: torch.dtype | None = None,
        *,
        v_threshold: float | None = None,
        weight: float | None = None,
        bias: float | bool | None = None,
    ) -> None:
        super().__init__(
            num_features, eps, momentum, affine, track_running_stats, device, dtype,
            v_threshold=v_threshold, weight=weight, bias=bias,
        )  # fmt: skip
        for name in ("error_mean", "error_var"):
            zeros = torch.zeros(num_features, device=device, dtype=dtype) if track_running_stats else None
            self.register_buffer(name, zeros)

    def update(self, mean: Tensor, var: Tensor, batch: int, samples: int) -> None:
        if self.momentum is None:
            super().update(mean, var, batch, samples)
            return
        # float64: the fourth power of an activation leaves float32's range early
        wide = torch.float32 if mean.device.type == "mps" else torch.float64
        mean, var = mean.to(wide), var.to(wide)
        noise_mean, noise_var = var / batch, 2 * var * var / (batch - 1)
        moving_mean, error_mean = follow(self.running_mean, self.error_mean, mean, noise_mean, self.momentum)
        moving_var, error_var = follow(self.running_var, self.error_var, var, noise_var, self.momentum)
        store_(self.running_mean, moving_mean)
        store_(self.running_var, moving_var)
        store_(self.error_mean, error_mean)
        store_(self.error_var, error_var)

    def kernel_rule(self) -> MovingRule | None:
        if self.momentum is None:
            return None
        return MovingRule(CONFIDENCE, self.momentum, (self.error_mean, self.error_var))

    def reset_running_stats(self) -> None:
        super().reset_running_stats()
        for name in ("error_mean", "error_var"):
            error = self._buffers.get(name)  # absent while the base class is still being built
            if error is not None:
                error.zero_()

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        # A plain nn.BatchNorm has statistics and no error estimates: start those afresh.
        statistics = state_dict.get(prefix + "running_mean")
        errors = [prefix + name for name in ("error_mean", "error_var")]
        if self.keeps_statistics() and statistics is not None and not any(name in state_dict for name in errors):
            for name in errors:
                state_dict[name] = torch.zeros_like(statistics)
        super()._load_from_state_dict(state_dict, prefix, *args)


class CaReBN2d(CaReBN):
    """CaRe-BN for images: ``[B, C, H, W]`` or ``[T, B, C, H, W]``, one statistic per channel."""

    feature_axis: ClassVar[int] = -3
    layout: ClassVar[str] = "[B, C, H, W] or [T, B, C, H, W]"


class CaBN(CaReBN):
    """The confidence-weighted update alone, without periodic re-calibration."""

    recalibrates: ClassVar[bool] = False

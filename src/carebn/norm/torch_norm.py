"""Normalisers that are torch batch norms, by their map, their arguments and their names."""

import sys
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from carebn.introspection import stands_for
from carebn.norm.base import Norm

Device = torch.device | str | int | None


@stands_for("known map", "combine scale_offset affine_parameters")
class TorchNorm(Norm, _BatchNorm):  # type: ignore[misc]  # torch types its running statistics as optional
    """A normaliser whose affine map is exactly torch's ``_BatchNorm``: γ·(x − mean)/√(var + ε) + β.

    Arguments, parameters and buffers have torch's names, order and meaning, so it goes where an ``nn.BatchNorm1d``
    goes, loads from and into its state dicts, folds with ``torch.nn.utils.fusion.fuse_linear_bn_eval`` and is found by
    every tool that looks for batch norms. Beyond torch's:

    γ and β start at 1 and 0, with ``v_threshold`` at half of it, as the paper starts them before neurons of that
    threshold; ``weight`` and ``bias`` are starts of one's own. ``bias=False`` is torch's: no β at all.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Device = None,
        dtype: torch.dtype | None = None,
        *,
        v_threshold: float | None = None,
        weight: float | None = None,
        bias: float | bool | None = None,
    ) -> None:
        own_bias = None if isinstance(bias, bool) else bias
        if isinstance(weight, bool):
            raise ValueError(f"weight is the number that γ starts at, got {weight}; for no γ and no β: affine=False")
        if not affine and (weight, own_bias) != (None, None):
            raise ValueError(
                "affine=False means no γ and no β, so weight and bias have nothing to start: leave them out"
            )
        usual = (1.0, 0.0) if v_threshold is None else (v_threshold / 2, v_threshold / 2)
        # before the base class, whose constructor resets the parameters
        self.initial = usual[0] if weight is None else weight, usual[1] if own_bias is None else own_bias
        _BatchNorm.__init__(self, num_features, eps, momentum, affine, track_running_stats, device, dtype)
        if bias is False:
            self.register_parameter("bias", None)

    def reset_running_stats(self) -> None:
        if self.keeps_statistics():
            super().reset_running_stats()

    def reset_parameters(self) -> None:
        self.reset_running_stats()
        for parameter, start in zip((self.weight, self.bias), self.initial, strict=True):
            if parameter is not None:
                nn.init.constant_(parameter, start)

    def extra_repr(self) -> str:
        unusual = {
            "affine": self.weight is not None,
            "bias": self.weight is None or self.bias is not None,
            "track_running_stats": self.track_running_stats,
        }
        return super().extra_repr() + "".join(f", {name}=False" for name, usual in unusual.items() if not usual)

    def scale_offset(self, var: Tensor) -> tuple[Tensor, Tensor]:
        scale = torch.rsqrt(var + self.eps)
        if self.weight is not None:
            scale = self.weight * scale
        return scale, torch.zeros_like(scale) if self.bias is None else self.bias

    def to_batch_norm(self) -> _BatchNorm:
        """The same map as a plain torch batch norm (inference is identical)."""
        cls = nn.BatchNorm1d if self.feature_axis == -1 else nn.BatchNorm2d
        state = self.state_dict()
        like = next((t for t in state.values() if t.is_floating_point()), torch.empty(0))
        plain = cls(
            self.num_features,
            self.eps,
            affine=self.weight is not None,
            track_running_stats=self.keeps_statistics(),
            device=like.device,
            dtype=like.dtype,
        )
        if self.bias is None:
            plain.register_parameter("bias", None)
        plain.track_running_stats = self.track_running_stats
        plain.load_state_dict({k: v for k, v in state.items() if k in plain.state_dict()})
        return plain.train(self.training)

    def named_children(self) -> Iterator[tuple[str, nn.Module]]:
        """Also the one question at which ``convert_sync_batchnorm`` can be refused: it has just made a SyncBatchNorm of
        this one, which would average its moving statistics and take axis 1 for the features."""
        if sys._getframe(1).f_code.co_name == "convert_sync_batchnorm":
            raise ValueError(
                f"a SyncBatchNorm has neither the moving statistics nor the layout of {type(self).__name__}: before "
                f"convert_sync_batchnorm, in a copy of the model, put what to_batch_norm() makes of it in its place"
            )
        return super().named_children()

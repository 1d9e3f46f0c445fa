"""The contract of every normaliser: a rule for the batch statistics, one for the moving ones, and an affine map.

Training: batch statistics, through which gradients flow, and one update of the moving statistics.
Inference: moving statistics. Either way the result is ``(x − mean)·scale + offset``, and multiplied out, as
``x·scale + shift``, it is all that the fused kernels, folding and export ever see.

A new normaliser overrides up to three short methods:

    combine(mean, var)            what to make of the raw moments (most: nothing)
    scale_offset(var)             → (scale, offset), [F] or [T, F]
    update(mean, var, batch, samples)   how the moving statistics follow; default: exponential moving average
"""

from typing import ClassVar

import torch
from torch import Tensor, nn

from carebn.introspection import stands_for
from carebn.kernels.fused import update_moving_
from carebn.kernels.plans import MovingRule
from carebn.router import moving_rule


class MomentRecorder:
    """Pools batch statistics exactly, by merging means and sums of squared deviations (Chan's formula)."""

    def __init__(self) -> None:
        self.samples = 0
        self.mean = torch.zeros(())
        self.deviations = torch.zeros(())

    def add(self, mean: Tensor, var: Tensor, samples: int) -> None:
        mean, var = mean.double(), var.double()
        if self.samples == 0:
            self.mean, self.deviations, self.samples = mean.clone(), var * samples, samples
            return
        total = self.samples + samples
        gap = mean - self.mean
        self.mean = self.mean + gap * (samples / total)
        self.deviations = self.deviations + var * samples + gap * gap * (self.samples * samples / total)
        self.samples = total

    def pooled(self) -> tuple[Tensor, Tensor]:
        return self.mean, self.deviations / self.samples


def store_(buffer: Tensor, value: Tensor) -> None:
    """Write in place, held within what the buffer's precision can express, so that 1e30 does not become infinity."""
    limit = torch.finfo(buffer.dtype).max
    buffer.copy_(value.clamp(-limit, limit))


def at_least_single(x: Tensor) -> Tensor:
    """Half precision is for storing: as in torch, statistics and maps are computed in float32."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


# The compiled layer asks the norm itself for ``combine``, ``scale_offset`` and ``observe``, as ``forward`` does.
@stands_for(
    "norm",
    "forward statistics _spread feature_axis check_input check_batch batch_size uses_batch keeps_statistics observe "
    "refuse_non_finite",
)
@stands_for("shift-equivariant norm", "combine")
@stands_for("moving update", "update samples_per_statistic")
class Norm(nn.Module):
    """A normaliser of ``[B, F]`` or ``[T, B, F]`` (time first, features last).

    Not by itself a torch ``_BatchNorm``: tools that take ``weight`` and ``bias`` for the whole map would get most
    normalisers wrong. ``TorchNorm`` is, for those whose map it is.
    """

    per_step: ClassVar[bool] = False  # raw moments per time step, [T, F], instead of pooled over time, [F]
    feature_axis: ClassVar[int] = -1
    layout: ClassVar[str] = "[B, F] or [T, B, F]"
    # Whether what the three rules give depends on their arguments and the parameters here alone, in any precision, and
    # they change nothing but the moving statistics: then the compiled layer may ask them at a time of its own. Who
    # writes other rules may say so; if not, torch runs the normaliser in training, which is slower.
    rules_are_functions: ClassVar[bool] = False
    recalibrates: ClassVar[bool] = False  # whether an agent re-calibrates it from replay every few thousand steps

    num_features: int
    eps: float
    momentum: float | None
    track_running_stats: bool  # if not, moving statistics, where there are any, stay as they are
    running_mean: Tensor  # None, like the next two, in a TorchNorm that was built with track_running_stats=False
    running_var: Tensor
    num_batches_tracked: Tensor
    _recorder: MomentRecorder | None = None

    def __init__(self, num_features: int, momentum: float | None, eps: float, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.num_features = num_features
        self.momentum = momentum
        self.eps = eps
        self.track_running_stats = True
        self.register_buffer("running_mean", torch.zeros(shape))
        self.register_buffer("running_var", torch.ones(shape))
        self.register_buffer("num_batches_tracked", torch.tensor(0))

    def reset_running_stats(self) -> None:
        self.running_mean.zero_()
        self.running_var.fill_(1)
        self.num_batches_tracked.zero_()

    def extra_repr(self) -> str:
        return f"{self.num_features}, momentum={self.momentum}, eps={self.eps}"

    # --- the three rules ---------------------------------------------------------------------------------------------

    def combine(self, mean: Tensor, var: Tensor) -> tuple[Tensor, Tensor]:
        """The statistics this normaliser works with, from the raw moments."""
        return mean, var

    def scale_offset(self, var: Tensor) -> tuple[Tensor, Tensor]:
        """(scale, offset) of the map ``(x − mean)·scale + offset``."""
        raise NotImplementedError

    def update(self, mean: Tensor, var: Tensor, batch: int, samples: int) -> None:
        """Move the moving statistics towards those of a batch of ``batch`` elements, ``samples`` values a feature.

        Default: an exponential average in which ``momentum`` weighs the new value, as in torch; the variance enters it
        unbiased. ``momentum=None`` is a cumulative average.
        """
        new = 1 / int(self.num_batches_tracked) if self.momentum is None else self.momentum
        count = self.samples_per_statistic(mean, batch, samples)
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), new)
        store_(self.running_var, self.running_var + new * (var * (count / (count - 1)) - self.running_var))

    def samples_per_statistic(self, mean: Tensor, batch: int, samples: int) -> Tensor | float:
        """How many values each statistic was taken over."""
        return samples / mean.shape[0] if self.per_step else samples

    # --- the machinery they plug into --------------------------------------------------------------------------------

    def affine_parameters(self) -> tuple[Tensor, ...]:
        """What ``scale_offset`` depends on besides its argument."""
        return tuple(self.parameters(recurse=False))

    def statistics(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Batch mean and biased variance, with gradients: [F], or [T, F] for a per-step normaliser."""
        axis = x.ndim + self.feature_axis
        kept = {axis, 0} if self.per_step else {axis}
        axes = [a for a in range(x.ndim) if a not in kept]
        var, mean = torch.var_mean(x, axes, correction=0)
        mean, var = self.combine(mean, var)
        if not torch.compiler.is_compiling() and not torch.isfinite(var).all() and torch.isfinite(x).all():
            var, mean = torch.var_mean(x.double(), axes, correction=0)  # squares of 1e30 need the wider range
            mean, var = self.combine(mean, var)
        return mean, var

    @torch.no_grad()
    def observe(self, mean: Tensor, var: Tensor, batch: int, samples: int) -> None:
        """Take in the statistics of one training batch. Non-finite ones are refused and change nothing."""
        if not torch.compiler.is_compiling() and not torch.isfinite(mean + var).all():
            self.refuse_non_finite()
        if self._recorder is not None:
            self._recorder.add(mean, var, samples)
            return
        if not self.keeps_statistics() or not self.track_running_stats:
            return
        rule = moving_rule(self)
        is_usual = mean.shape == var.shape == self.running_mean.shape and type(batch) is type(samples) is int
        if rule is not None and is_usual and samples > 1:
            update_moving_(self, rule, torch.stack([mean.double(), var.double()]), batch, samples)
            return
        self.num_batches_tracked.add_(1)
        self.update(mean, var, batch, samples)

    def keeps_statistics(self) -> bool:
        return self.running_mean is not None and self.running_var is not None

    def uses_batch(self) -> bool:
        """Whether a pass takes the batch's own statistics: in training, and always if there are no moving ones."""
        return self.training or not self.keeps_statistics()

    def refuse_non_finite(self) -> None:
        raise ValueError(
            f"{type(self).__name__} got NaN or infinity in a training batch; its moving statistics are unchanged. "
            f"Look for a diverged loss or a non-finite observation"
        )

    def kernel_rule(self) -> MovingRule | None:
        """What ``update`` does, in the terms of the compiled kernels; None: they do not know it."""
        return None

    def check_input(self, x: Tensor) -> None:
        """One clear sentence for input that cannot be normalised."""
        name = type(self).__name__
        if not x.is_floating_point():
            raise ValueError(f"{name} expects floating-point input, got {x.dtype}; convert it, e.g. with x.float()")
        if x.ndim < 1 - self.feature_axis:
            raise ValueError(f"{name} expects input of shape {self.layout}, got {tuple(x.shape)}")
        if x.shape[self.feature_axis] != self.num_features:
            raise ValueError(
                f"{name} was built for {self.num_features} features, got {x.shape[self.feature_axis]} "
                f"in input of shape {tuple(x.shape)}"
            )
        self.check_batch(x)

    def check_batch(self, x: Tensor) -> None:
        name = type(self).__name__
        if x.numel() == 0 and (self.uses_batch() or self.batch_size(x) > 0):  # nothing to do is done, in inference
            raise ValueError(f"{name} got an empty input of shape {tuple(x.shape)}")
        if self.uses_batch() and self.batch_size(x) == 1:
            shape = tuple(x.shape)
            raise ValueError(
                f"{name} needs a batch of at least two in training, got input of shape {shape}; "
                f"call eval() to use the moving statistics"
                if self.keeps_statistics()
                else f"{name} without moving statistics (track_running_stats=False) needs a batch of at least two, in "
                f"eval() too, got input of shape {shape}"
            )

    def batch_size(self, x: Tensor) -> int:
        """The batch axis: the first, or the second where time comes first."""
        unbatched_by_time = 1 - self.feature_axis
        return x.shape[0] if x.ndim == unbatched_by_time else x.shape[1]

    def scale_shift(self, mean: Tensor, var: Tensor) -> tuple[Tensor, Tensor]:
        """The same map as ``x·scale + shift``."""
        scale, offset = self.scale_offset(var)
        return scale, offset - mean * scale

    def moving_scale_shift(self) -> tuple[Tensor, Tensor]:
        """The affine map of inference, from the moving statistics."""
        if not self.keeps_statistics():
            raise ValueError(
                f"a {type(self).__name__} without moving statistics (track_running_stats=False) is another map for "
                f"every batch: it cannot be folded or exported"
            )
        return self.scale_shift(self.running_mean, self.running_var)

    def forward(self, x: Tensor) -> Tensor:
        self.check_input(x)
        given, x = x, at_least_single(x)
        if self.uses_batch():
            mean, var = self.statistics(x)
            if self.training:
                self.observe(mean.detach(), var.detach(), self.batch_size(x), x.numel() // self.num_features)
        else:
            mean, var = at_least_single(self.running_mean), at_least_single(self.running_var)
        scale, offset = self.scale_offset(var)
        # Centred first: with a mean of 1e30, x·scale and mean·scale would differ by their rounding only.
        y = (x - self._spread(mean, x)) * self._spread(scale, x) + self._spread(offset, x)
        return y.to(given.dtype)

    def _spread(self, vector: Tensor, x: Tensor) -> Tensor:
        """[F] or [T, F] against the shape of x."""
        if vector.ndim == 2:
            vector = vector.view(vector.shape[0], *[1] * (x.ndim - 2 - (-1 - self.feature_axis)), vector.shape[1])
        return vector.view(*vector.shape, *[1] * (-1 - self.feature_axis))


@stands_for(
    "norm",
    "forward statistics _spread feature_axis check_input check_batch batch_size uses_batch keeps_statistics observe "
    "refuse_non_finite",
)
class StepNorm(Norm):
    """A normaliser built for a fixed number of time steps, because something in it differs from step to step."""

    layout: ClassVar[str] = "[T, B, F]"

    def __init__(self, num_features: int, time_steps: int, momentum: float | None, eps: float) -> None:
        if time_steps < 1:
            raise ValueError(f"{type(self).__name__} needs at least one time step, got {time_steps}")
        shape = (time_steps, num_features) if self.per_step else (num_features,)
        super().__init__(num_features, momentum, eps, shape)
        self.time_steps = time_steps

    def check_input(self, x: Tensor) -> None:
        super().check_input(x)
        if x.ndim < 3 or x.shape[0] != self.time_steps:
            raise ValueError(
                f"{type(self).__name__} was built for {self.time_steps} time steps, got input of shape "
                f"{tuple(x.shape)}; expected [{self.time_steps}, B, {self.num_features}]"
            )

    def extra_repr(self) -> str:
        return f"{self.num_features}, time_steps={self.time_steps}, momentum={self.momentum}, eps={self.eps}"

"""The compiled kernels as differentiable torch functions, and the rule for when they are used.

    fire                neuron(x)
    scale_and_fire      neuron(z·scale + shift)
    normalise_and_fire  the same with scale and shift taken from the batch, gradients through its statistics included
    normalised_layer    the product in front of that as well, for plain batch-norm maps

``stack`` does all layers of an actor at once, where it can. Each has a pure-torch twin with the same result, which
serves every other device, dtype and transformation.
Scan tables are written out in the order in which ``scan`` and ``vectors`` read them.
"""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from carebn.kernels.entries import KERNELS
from carebn.kernels.pool import BLOCKS, run, run_serially
from carebn.kernels.products import spike_product, weight_gradient
from carebn.kernels.vectors import NO_UPDATE


class NeuronSpec(NamedTuple):
    """Which compiled scan runs a neuron, and its constants in the scan's order."""

    family: int
    constants: tuple[float, ...]
    surrogate: int  # its number in the scan
    surrogate_size: float


class MovingRule(NamedTuple):
    """How moving statistics follow, in the terms of ``vectors.update_moving``."""

    rule: int
    momentum: float
    errors: tuple[Tensor, ...] = ()


class BatchNormaliser(Protocol):
    """What the fused functions ask of a normaliser in training."""

    per_step: ClassVar[bool]
    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor

    def combine(self, mean: Tensor, var: Tensor) -> tuple[Tensor, Tensor]: ...
    def scale_shift(self, mean: Tensor, var: Tensor) -> tuple[Tensor, Tensor]: ...
    def affine_parameters(self) -> tuple[Tensor, ...]: ...
    def kernel_rule(self) -> MovingRule | None: ...
    def observe(self, mean: Tensor, var: Tensor, batch: int, samples: int) -> None: ...
    def refuse_non_finite(self) -> None: ...


class PlainNormaliser(BatchNormaliser, Protocol):
    """One whose map is weight·(x − mean)/√(var + eps) + bias with pooled statistics, no more."""

    eps: float
    weight: nn.Parameter
    bias: nn.Parameter


_enabled: ContextVar[bool] = ContextVar("carebn_kernels_enabled", default=True)


@contextmanager
def pure() -> Iterator[None]:
    """Inside this context, in this thread, everything runs on the pure-torch path."""
    token = _enabled.set(False)
    try:
        yield
    finally:
        _enabled.reset(token)


def usable(x: Tensor) -> bool:
    """Whether the compiled kernels can take this tensor here and now."""
    return (
        not torch.compiler.is_compiling()  # first: the compiler then need not look at the rest
        and _enabled.get()
        and x.is_cpu
        and x.dtype in KERNELS
        and x.numel() > 0
        and not torch.is_autocast_enabled("cpu")
        and not torch._C._functorch.maybe_current_level()
    )


def apply(function: type[torch.autograd.Function], *arguments: Any) -> Tensor:
    """``function.apply``, which torch leaves without types."""
    result: Tensor = function.apply(*arguments)  # type: ignore[no-untyped-call]
    return result


def first_derivative_only() -> None:
    """Called by every backward pass: grad mode is on there only if somebody wants to differentiate it again."""
    if torch.is_grad_enabled():
        raise RuntimeError(
            "the compiled kernels give first derivatives only; for create_graph=True run the model inside "
            "carebn.kernels.pure()"
        )


def addresses(*tensors: Tensor) -> list[int]:
    return [t.data_ptr() for t in tensors]


@lru_cache
def constants(values: tuple[float, ...], dtype: torch.dtype) -> Tensor:
    """Numbers for a kernel; kept alive, because a kernel gets their address only."""
    return torch.tensor(values, dtype=dtype)


def neuron_constants(spec: NeuronSpec, dtype: torch.dtype) -> int:
    return constants((*spec.constants, spec.surrogate_size), dtype).data_ptr()


def _as_rows(x: Tensor) -> Tensor:
    """[Ts, F] of a per-feature or per-step vector, ready for a kernel."""
    return (x if x.ndim == 2 else x[None]).contiguous()


def _once_if_constant(grad: Tensor) -> Tensor:
    """A gradient that is the same at every step, as from a sum over time, is read once."""
    return (grad[:1] if grad.stride(0) == 0 else grad).contiguous()


def _like_input(grad: Tensor, z_steps: int) -> Tensor:
    """Summed over time where the input was constant in time."""
    return grad.sum(0, keepdim=True) if z_steps == 1 and grad.shape[0] > 1 else grad


# --- given scale and shift -------------------------------------------------------------------------------------------


def _scan_forward(z: Tensor, scale: Tensor, shift: Tensor, steps: int, spec: NeuronSpec) -> Tensor:
    z_steps, batch, features = z.shape
    spikes = z.new_empty(steps, batch, features)
    run(
        KERNELS[z.dtype]["fire"], spec.family,
        steps, batch, features, z_steps, scale.shape[0],
        *addresses(z, scale, shift, spikes), neuron_constants(spec, z.dtype),
    )  # fmt: skip
    return spikes


def _scan_backward(
    z: Tensor, scale: Tensor, shift: Tensor, center: Tensor, grad: Tensor, spec: NeuronSpec
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradient of the current y = z·scale + shift, and in float64 those of shift and scale.

    The products are summed as grad_y·(z − center), because a large mean of z would drown them.
    """
    steps, batch, features = grad.shape
    grad = _once_if_constant(grad)
    grad_y = z.new_empty(steps, batch, features)
    sums = z.new_empty(2, BLOCKS, scale.shape[0], features)
    run(
        KERNELS[z.dtype]["fire_backward"], spec.family,
        steps, batch, features, z.shape[0], scale.shape[0], grad.shape[0],
        *addresses(z, scale, shift, center, grad, grad_y, sums[0], sums[1]), neuron_constants(spec, z.dtype),
        spec.surrogate,
    )  # fmt: skip
    grad_shift, products = sums.sum(1, dtype=torch.float64)
    return grad_y, grad_shift, products + center * grad_shift


class _ScaleAndFire(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor, scale: Tensor, shift: Tensor, steps: int, spec: NeuronSpec) -> Tensor:
        z, scale, shift = z.contiguous(), _as_rows(scale.to(z.dtype)), _as_rows(shift.to(z.dtype))
        ctx.save_for_backward(z, scale, shift)
        ctx.spec = spec
        return _scan_forward(z, scale, shift, steps, spec)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        first_derivative_only()
        z, scale, shift = ctx.saved_tensors
        grad_y, grad_shift, grad_scale = _scan_backward(z, scale, shift, torch.zeros_like(scale), grad, ctx.spec)
        grad_z = _like_input(grad_y.mul_(scale[:, None]), z.shape[0])
        return grad_z, grad_scale.to(z.dtype), grad_shift.to(z.dtype), None, None


def scale_and_fire(z: Tensor, scale: Tensor, shift: Tensor, steps: int, spec: NeuronSpec) -> Tensor:
    """Spikes [T, B, F] of the currents ``z·scale + shift``; z is [T, B, F], or [1, B, F] if constant in time."""
    return apply(_ScaleAndFire, z, _as_rows(scale), _as_rows(shift), steps, spec)


class _Fire(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor, steps: int, spec: NeuronSpec) -> Tensor:
        z = z.contiguous()
        one = z.new_ones(1, z.shape[-1])
        ctx.save_for_backward(z, one)
        ctx.spec = spec
        return _scan_forward(z, one, torch.zeros_like(one), steps, spec)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        first_derivative_only()
        z, one = ctx.saved_tensors
        zero = torch.zeros_like(one)
        grad_y, _, _ = _scan_backward(z, one, zero, zero, grad, ctx.spec)
        return _like_input(grad_y, z.shape[0]), None, None


def fire(x: Tensor, steps: int, spec: NeuronSpec) -> Tensor:
    """Spikes [T, ..., F] of the currents x [T, ..., F], or [1, ..., F] if constant in time."""
    spikes = apply(_Fire, x.reshape(x.shape[0], -1, x.shape[-1]), steps, spec)
    return spikes.view(steps, *x.shape[1:])


# --- scale and shift from the batch, for any normaliser --------------------------------------------------------------


class _NormaliseAndFire(torch.autograd.Function):
    """A small graph over the statistics says how they shape scale and shift; the backward pass asks it."""

    @staticmethod
    def forward(
        ctx: Any,
        z: Tensor,
        bias: Tensor | None,
        norm: BatchNormaliser,
        steps: int,
        spec: NeuronSpec,
        *parameters: Tensor,
    ) -> Tensor:
        z = z.contiguous()
        z_steps, batch, features = z.shape
        groups = z_steps if norm.per_step else 1
        sums = torch.empty(2, BLOCKS, groups, features, dtype=torch.float64)
        run(
            KERNELS[z.dtype]["moments"], 0,
            z_steps, batch, features, int(norm.per_step), *addresses(z, sums[0], sums[1]),
        )  # fmt: skip
        offset, square = sums.sum(1) / (z_steps * batch // groups)
        var = (square - offset * offset).clamp_(min=0)
        mean = offset + z[:groups, 0]
        if norm.per_step:
            mean, var = mean.expand(steps, -1), var.expand(steps, -1)
        else:
            mean, var = mean[0], var[0]
        with torch.enable_grad():
            mean, var = mean.requires_grad_(), var.requires_grad_()
            combined = norm.combine(mean, var)
            scale, shift = norm.scale_shift(*combined)
        moving_mean = combined[0].detach() if bias is None else combined[0].detach() + bias.detach()
        norm.observe(moving_mean, combined[1].detach(), batch, steps * batch)
        rows = _as_rows(scale.detach().to(z.dtype)), _as_rows(shift.detach().to(z.dtype))
        ctx.save_for_backward(z, *rows)
        ctx.spec, ctx.graph, ctx.parameters = spec, (mean, var, scale, shift), parameters
        ctx.has_bias = bias is not None
        ctx.count = batch if norm.per_step else steps * batch
        return _scan_forward(z, *rows, steps, spec)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        first_derivative_only()
        z, scale, shift = ctx.saved_tensors
        mean, var, scale_out, shift_out = ctx.graph
        center = _as_rows(mean.detach().to(z.dtype))
        grad_y, grad_shift, grad_scale = _scan_backward(
            z, scale, shift, center.expand_as(scale).contiguous(), grad, ctx.spec
        )
        grad_mean, grad_var, *rest = torch.autograd.grad(
            (scale_out, shift_out),
            (mean, var, *(p for p in ctx.parameters if p.requires_grad)),
            (grad_scale.view_as(scale_out), grad_shift.view_as(shift_out)),
            retain_graph=True,
            allow_unused=True,
        )
        grad_parameters = [rest.pop(0) if p.requires_grad else None for p in ctx.parameters]
        constant = _as_rows((grad_mean / ctx.count).to(z.dtype))
        slope = _as_rows((grad_var * (2 / ctx.count)).to(z.dtype))
        steps, batch, features = grad_y.shape
        run(
            KERNELS[z.dtype]["finish"], 0,
            steps, batch, features, z.shape[0], scale.shape[0], constant.shape[0],
            *addresses(z, scale, center, constant, slope, grad_y),
        )  # fmt: skip
        grad_bias = z.new_zeros(features) if ctx.has_bias else None
        return _like_input(grad_y, z.shape[0]), grad_bias, None, None, None, *grad_parameters


def normalise_and_fire(z: Tensor, bias: Tensor | None, norm: BatchNormaliser, steps: int, spec: NeuronSpec) -> Tensor:
    """Spikes [T, B, F] of the batch-normalised products z; updates the normaliser.

    z does not contain the layer's bias: a norm that subtracts the mean subtracts the bias with it. It only enters the
    moving mean, and its gradient is exactly zero, not rounding noise that Adam would blow up to full steps.
    """
    return apply(_NormaliseAndFire, z, bias, norm, steps, spec, *norm.affine_parameters())


# --- a whole layer with a plain batch-norm map -----------------------------------------------------------------------


class _NormalisedLayer(torch.autograd.Function):
    """Product, statistics, moving statistics and scan, with the gradients of the map in closed form.

    Vectors live as rows of one tensor and are addressed by number: making a view costs more than the row's arithmetic.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        stimulation: Tensor | None,
        weight: Tensor,
        bias: Tensor | None,
        norm_weight: Tensor,
        norm_bias: Tensor,
        norm: PlainNormaliser,
        steps: int,
        spec: NeuronSpec,
    ) -> Tensor:
        z_steps, batch = x.shape[:2]
        features = weight.shape[0]
        x = x.reshape(z_steps * batch, -1)
        z, ctx.spikes = spike_product(x, weight, None)
        spikes = torch.empty(steps, batch, features, dtype=z.dtype)
        sums = torch.empty(2, BLOCKS, features, dtype=torch.float64)
        statistics = torch.empty(2, features, dtype=torch.float64)  # mean with the layer's bias, variance
        vectors = torch.empty(3, features, dtype=z.dtype)  # scale, shift, center
        finite = ctypes.c_int64(1)
        rule = norm.kernel_rule()
        kind, momentum, errors = (NO_UPDATE, 0.0, ()) if rule is None else rule
        wide, narrow = 8 * features, z.element_size() * features
        z_, sums_, mean_, scale_ = addresses(z, sums, statistics, vectors)
        eps = constants((norm.eps,), torch.float64)
        options = constants((momentum, torch.finfo(z.dtype).max), torch.float64)
        run(
            KERNELS[z.dtype]["normalise_and_fire"], spec.family,
            z_steps, batch, features, 0, z_, sums_, sums_ + BLOCKS * wide,
            features, z_steps * batch, sums_, z_, *addresses(norm_weight, norm_bias, eps),
            0 if bias is None else bias.data_ptr(),
            mean_, mean_ + wide, scale_, scale_ + narrow, scale_ + 2 * narrow, ctypes.addressof(finite),
            kind, features, batch, steps * batch, mean_, mean_ + wide,
            *addresses(norm.running_mean, norm.running_var), *(addresses(*errors) or (0, 0)),
            *addresses(options, norm.num_batches_tracked),
            steps, batch, features, z_steps, 1, z_, scale_, scale_ + narrow, spikes.data_ptr(),
            neuron_constants(spec, z.dtype),
        )  # fmt: skip
        if not finite.value:
            norm.refuse_non_finite()
        if rule is None:
            mean, var = statistics.unbind()
            norm.observe(mean, var, batch, steps * batch)
        ctx.save_for_backward(x, z, vectors, statistics, weight, norm_weight)
        ctx.spec, ctx.eps, ctx.shape = spec, eps, (z_steps, batch, features)
        return spikes

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        first_derivative_only()
        x, z, vectors, statistics, weight, norm_weight = ctx.saved_tensors
        spec, (z_steps, batch, features) = ctx.spec, ctx.shape
        steps = grad.shape[0]
        grad = _once_if_constant(grad)
        grad_y = torch.empty(steps, batch, features, dtype=z.dtype)
        sums = torch.empty(2, BLOCKS, features, dtype=z.dtype)
        path = torch.empty(2, features, dtype=z.dtype)  # constant, slope
        grad_norm_weight, grad_norm_bias = torch.empty_like(norm_weight), torch.empty_like(norm_weight)
        narrow = z.element_size() * features
        z_, scale_, sums_, path_, grad_y_ = addresses(z, vectors, sums, path, grad_y)
        run(
            KERNELS[z.dtype]["normalise_and_fire_backward"], spec.family,
            steps, batch, features, z_steps, 1, grad.shape[0],
            z_, scale_, scale_ + narrow, scale_ + 2 * narrow, grad.data_ptr(), grad_y_,
            sums_, sums_ + BLOCKS * narrow, neuron_constants(spec, z.dtype), spec.surrogate,
            features, steps * batch, sums_, *addresses(norm_weight, ctx.eps), statistics.data_ptr() + 8 * features,
            *addresses(grad_norm_weight, grad_norm_bias), path_, path_ + narrow,
            steps, batch, features, z_steps, 1, 1,
            z_, scale_, scale_ + 2 * narrow, path_, path_ + narrow, grad_y_,
        )  # fmt: skip
        wants_x, wants_stimulation, wants_weight, wants_bias = ctx.needs_input_grad[:4]
        grad_z = _like_input(grad_y, z_steps).view(-1, features)
        grad_x = (grad_z @ weight).view(z_steps, batch, -1) if wants_x else None
        # Every spike has derivative one with respect to the stimulation: sum over time first, multiply once.
        grad_stimulation = grad_y.sum(0) @ weight if wants_stimulation else None
        grad_weight = weight_gradient(grad_z, x, ctx.spikes) if wants_weight else None
        grad_bias = z.new_zeros(features) if wants_bias else None  # it cancels in training: see normalise_and_fire
        return (
            grad_x, grad_stimulation, grad_weight, grad_bias, grad_norm_weight, grad_norm_bias, None, None, None
        )  # fmt: skip


def normalised_layer(
    x: Tensor,
    stimulation: Tensor | None,
    weight: Tensor,
    bias: Tensor | None,
    norm: PlainNormaliser,
    steps: int,
    spec: NeuronSpec,
) -> Tensor:
    """neuron(norm(x·Wᵀ + b)) in training, for a plain normaliser; updates it.

    ``stimulation`` [B, in] gets the gradient in place of the spikes x that an encoder made from it.
    """
    return apply(_NormalisedLayer, x, stimulation, weight, bias, norm.weight, norm.bias, norm, steps, spec)


def update_moving_(norm: BatchNormaliser, rule: MovingRule, mean: Tensor, var: Tensor, batch: int, count: int) -> None:
    """One update of a normaliser's moving statistics and error estimates, in place."""
    like = norm.running_mean
    options = constants((rule.momentum, torch.finfo(like.dtype).max), torch.float64)
    mean, var = mean.double().contiguous(), var.double().contiguous()
    run_serially(
        KERNELS[like.dtype]["update_moving"], 0,
        rule.rule, like.numel(), batch, count,
        *addresses(mean, var, norm.running_mean, norm.running_var), *(addresses(*rule.errors) or (0, 0)),
        *addresses(options, norm.num_batches_tracked),
    )  # fmt: skip


# --- the population encoder ------------------------------------------------------------------------------------------


def encode(stimulation: Tensor, steps: int, threshold: float, subtract: float) -> Tensor:
    """Spikes [T, B, F] of soft-reset integrate-and-fire neurons under a constant stimulation [B, F]; no gradient."""
    a = stimulation.detach().contiguous()
    spikes = a.new_empty(steps, *a.shape)
    numbers = constants((threshold, subtract), a.dtype)
    run(KERNELS[a.dtype]["encode"], 0, steps, *a.shape, *addresses(a, spikes, numbers))
    return spikes


class _ReceptiveFields(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, s: Tensor, mean: Tensor, std: Tensor) -> Tensor:
        s = s.contiguous()
        a = s.new_empty(s.shape[0], mean.numel())
        run(KERNELS[s.dtype]["distances"], 0, *s.shape, mean.shape[1], *addresses(s, mean, std, a))
        a.exp_()
        ctx.save_for_backward(s, mean, std, a)
        return a

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
        first_derivative_only()
        s, mean, std, a = ctx.saved_tensors
        grad = grad.contiguous()
        sums = s.new_empty(2, BLOCKS, mean.numel())
        kernel = KERNELS[s.dtype]["field_gradients"]
        run(kernel, 0, *s.shape, mean.shape[1], *addresses(s, mean, std, a, grad, sums))
        grad_mean, grad_std = sums.sum(1).view(2, *mean.shape)
        grad_s = None
        if ctx.needs_input_grad[0]:
            pull = (grad * a).view(s.shape[0], *mean.shape) * (mean - s[..., None]) / (std * std)
            grad_s = pull.sum(-1)
        return grad_s, grad_mean, grad_std


def receptive_fields(s: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """exp(−((s − mean)/std)²/2) as [B, obs·population], for s [B, obs] and fields [obs, population]."""
    return apply(_ReceptiveFields, s, mean, std)

"""The compiled kernels as differentiable torch functions, for whatever ``carebn.router`` has found that they stand for.

    fire             neuron(x)
    spiking_layer    neuron(norm(x·Wᵀ + b)), for every norm: its own methods say how statistics become scale and shift
    receptive_fields the population encoder's

``stack`` does all layers of an actor at once, where it can. Each has a pure-torch twin with the same result.
"""

import math
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from carebn.gradients import apply, plain_gradient, without_autocast
from carebn.introspection import depends_on_others, keeps_precision
from carebn.kernels.catalogue import KERNELS
from carebn.kernels.plans import LayerPlan, MovingRule, NeuronSpec, NotForKernelsError
from carebn.kernels.pool import BLOCKS
from carebn.kernels.products import input_gradient, new, spike_product, weight_gradient


@lru_cache
def constants(values: tuple[float, ...], dtype: torch.dtype) -> Tensor:
    """Numbers for a kernel."""
    return torch.tensor(values, dtype=dtype, device="cpu")


def neuron_fields(spec: NeuronSpec, dtype: torch.dtype) -> dict[str, Any]:
    values = constants((*spec.constants, spec.surrogate_size), dtype)
    return {"family": spec.family, "constants": len(values), "neuron": values}


def _as_rows(x: Tensor) -> Tensor:
    """[Ts, F] of a per-feature or per-step vector, ready for a kernel."""
    return (x if x.ndim == 2 else x[None]).contiguous()


# --- scans over time -------------------------------------------------------------------------------------------------


def _scan_fields(z: Tensor, scale: Tensor, steps: int) -> dict[str, Any]:
    z_steps, batch, features = z.shape
    return {
        "steps": steps, "batch": batch, "features": features, "z_steps": z_steps, "s_steps": scale.shape[0],
        "z": z, "scale": scale,
    }  # fmt: skip


def _scan_forward(z: Tensor, scale: Tensor, shift: Tensor, steps: int, spec: NeuronSpec) -> Tensor:
    spikes = new(steps, *z.shape[1:], dtype=z.dtype)
    KERNELS["fire"](
        z.dtype, **neuron_fields(spec, z.dtype), **_scan_fields(z, scale, steps), shift=shift, spikes=spikes
    )
    return spikes


def _scan_backward(
    z: Tensor, scale: Tensor, shift: Tensor, center: Tensor, grad: Tensor, spec: NeuronSpec
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradient of the current y = z·scale + shift, and in float64 those of shift and scale.

    The products are summed as grad_y·(z − center), because a large mean of z would drown them. A gradient that is the
    same at every step, as from a sum over time, is read once.
    """
    steps = grad.shape[0]
    grad = (grad[:1] if grad.stride(0) == 0 else grad).contiguous()
    grad_y = new(*(steps, *z.shape[1:]), dtype=z.dtype)
    sums = new(2, BLOCKS, *scale.shape, dtype=z.dtype)
    KERNELS["fire_backward"](
        z.dtype, **neuron_fields(spec, z.dtype), **_scan_fields(z, scale, steps), surrogate=spec.surrogate,
        g_steps=grad.shape[0], shift=shift, center=center, grad_spikes=grad, grad_y=grad_y, sums=sums,
    )  # fmt: skip
    grad_shift, products = sums.sum(1, dtype=torch.float64)
    return grad_y, grad_shift, products + center * grad_shift


class _Fire(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor, steps: int, spec: NeuronSpec) -> Tensor:
        z = z.contiguous()
        one = torch.ones_like(z[:1, 0])
        ctx.save_for_backward(z, one)
        ctx.spec = spec
        return _scan_forward(z, one, torch.zeros_like(one), steps, spec)

    @staticmethod
    @without_autocast
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        grad = plain_gradient(grad)
        z, one = ctx.saved_tensors
        zero = torch.zeros_like(one)
        grad_y, _, _ = _scan_backward(z, one, zero, zero, grad, ctx.spec)
        return grad_y, None, None


def fire(x: Tensor, spec: NeuronSpec) -> Tensor:
    """Spikes [T, ..., F] of the currents x [T, ..., F]."""
    steps = x.shape[0]
    return apply(_Fire, x.reshape(steps, -1, x.shape[-1]), steps, spec).view(x.shape)


# --- a layer ---------------------------------------------------------------------------------------------------------


def update_moving_(norm: Any, rule: MovingRule, statistics: Tensor, batch: int, count: int) -> None:
    """One update of a normaliser's moving statistics and error estimates, in place, with the batch's mean and variance
    [2, features or more]."""
    like = norm.running_mean
    error_mean, error_var = rule.errors or (None, None)
    KERNELS["update_moving"](
        like.dtype, serially=True,
        rule=rule.rule, features=like.numel(), columns=statistics.shape[1], batch=batch, count=count,
        momentum=rule.momentum, limit=torch.finfo(like.dtype).max, statistics=statistics,
        running_mean=norm.running_mean, running_var=norm.running_var, error_mean=error_mean, error_var=error_var,
        updates=norm.num_batches_tracked,
    )  # fmt: skip
    # Autograd has to notice a change that a kernel made in place as it notices torch's own.
    for changed in (norm.running_mean, norm.running_var, *rule.errors, norm.num_batches_tracked):
        if not changed.is_inference():
            torch.autograd.graph.increment_version(changed)


class _BatchMap:
    """Scale and shift of a norm in training, from the batch's statistics by the norm's own methods; a small graph over
    the statistics says how they shape the map, and the backward pass asks it."""

    def __init__(self, z: Tensor, plan: LayerPlan, steps: int, parameters: tuple[Tensor, ...]) -> None:
        norm, (z_steps, batch, features) = plan.norm, z.shape
        groups = z_steps if norm.per_step else 1
        sums = new(2, BLOCKS, groups, features, dtype=torch.float64)
        KERNELS["moments"](z.dtype, steps=z_steps, batch=batch, features=features, groups=groups, z=z, sums=sums)
        offset, square = sums.sum(1) / (z_steps * batch // groups)
        var = (square - offset * offset).clamp_(min=0)
        mean = offset + z[:groups, 0]
        # Beyond that the gradient of a variance, about its square's inverse, would vanish, and NaN is not below. Less
        # the mean a feature that does not vary is exactly zero; multiplied out first, it is only nearly so.
        if not var.max() <= torch.finfo(z.dtype).max ** 0.75 or ((var == 0) & (mean != 0)).any():
            raise NotForKernelsError
        if norm.per_step:
            mean, var = mean.expand(steps, -1), var.expand(steps, -1)
        else:
            mean, var = mean[0], var[0]
        with torch.enable_grad():
            self.mean, self.var = mean.requires_grad_(), var.requires_grad_()
            used_mean, used_var = norm.combine(self.mean, self.var)
            self.scale, offset = norm.scale_offset(used_var)
            self.shift = offset - used_mean * self.scale
        known = self.mean, self.var, *parameters
        fits = self.scale.shape == self.shift.shape and self.scale.shape in ((features,), (steps, features))
        if not fits or not keeps_precision(self.shift, z.dtype):
            raise NotForKernelsError
        if plan.own_rules and depends_on_others((self.scale, self.shift), known):
            raise NotForKernelsError  # who would wait for their gradient in vain
        moving_mean = used_mean.detach() + (0 if plan.bias is None or not plan.bias_cancels else plan.bias)
        norm.observe(moving_mean, used_var.detach(), batch, steps * batch)
        self.count = batch if norm.per_step else steps * batch
        self.parameters = parameters

    def gradients(self, to_scale: Tensor, to_shift: Tensor) -> tuple[Tensor, Tensor, list[Tensor | None]]:
        """Of mean, variance and the norm's parameters."""
        wanted = [p for p in self.parameters if p.requires_grad]
        # a map need not depend on the statistics
        maps = (self.scale, to_scale.view_as(self.scale)), (self.shift, to_shift.view_as(self.shift))
        given = [(of, gradient.to(of.dtype)) for of, gradient in maps if of.requires_grad]
        to_mean, to_var, *rest = torch.autograd.grad(
            [of for of, _ in given], (self.mean, self.var, *wanted), [gradient for _, gradient in given],
            retain_graph=True, allow_unused=True,
        ) if given else [None] * (2 + len(wanted))  # fmt: skip
        nothing = torch.zeros_like(self.mean)
        to_parameters = [rest.pop(0) if p.requires_grad else None for p in self.parameters]
        return nothing if to_mean is None else to_mean, nothing if to_var is None else to_var, to_parameters


class _Layer(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, stimulation: Tensor | None, weight: Tensor, bias: Tensor | None, scale: Tensor | None,
        shift: Tensor | None, plan: LayerPlan, steps: int, counted: bool, *parameters: Tensor,
    ) -> Tensor | tuple[Tensor, Tensor]:  # fmt: skip
        """``counted``: with the mean of x, the firing rate of whoever sent it."""
        z_steps, batch, inputs = x.shape
        x = x.reshape(z_steps * batch, inputs)
        # A bias that cancels enters the moving mean only, and its gradient is exactly zero, not rounding noise that
        # Adam would blow up to full steps.
        z, ctx.spikes = spike_product(x, weight, None if plan.bias_cancels else bias)
        z = z.view(z_steps, batch, -1)
        ctx.map = _BatchMap(z, plan, steps, parameters) if plan.learning else None
        if ctx.map is not None:
            scale, shift = ctx.map.scale.detach(), ctx.map.shift.detach()
        elif scale is None or shift is None:
            scale, shift = torch.ones_like(z[:1, 0]), torch.zeros_like(z[:1, 0])
        scale, shift = _as_rows(scale.to(z.dtype)), _as_rows(shift.to(z.dtype))
        ctx.save_for_backward(x, z, weight, scale, shift)
        ctx.spec, ctx.bias_cancels = plan.spec, plan.bias_cancels
        spikes = _scan_forward(z, scale, shift, steps, plan.spec)
        return (spikes, x.mean()) if counted else spikes

    @staticmethod
    @without_autocast
    def backward(ctx: Any, grad: Tensor, grad_rate: Tensor | None = None) -> tuple[Any, ...]:
        grad = plain_gradient(grad)
        x, z, weight, scale, shift = ctx.saved_tensors
        per_spike = 0.0 if grad_rate is None else plain_gradient(grad_rate).item() / x.numel()
        steps, (z_steps, batch, features) = grad.shape[0], z.shape
        wants_x, wants_stimulation, wants_weight, wants_bias, wants_scale, wants_shift = ctx.needs_input_grad[:6]
        to_bias: Tensor | None
        to_parameters: list[Tensor | None] = []
        if ctx.map is None:
            grad_y, to_shift, to_scale = _scan_backward(z, scale, shift, torch.zeros_like(scale), grad, ctx.spec)
            grad_z = grad_y.mul_(scale[:, None])
            to_bias = (to_shift * scale).sum(0).to(z.dtype) if wants_bias else None
        else:
            center = _as_rows(ctx.map.mean.detach().to(z.dtype))
            grad_z, to_shift, to_scale = _scan_backward(
                z, scale, shift, center.expand_as(scale).contiguous(), grad, ctx.spec
            )
            to_mean, to_var, to_parameters = ctx.map.gradients(to_scale, to_shift)
            constant = _as_rows((to_mean / ctx.map.count).to(z.dtype))
            slope = _as_rows((to_var * (2 / ctx.map.count)).to(z.dtype))
            KERNELS["norm_backward"](
                z.dtype, **_scan_fields(z, scale, steps), k_steps=len(constant), center=center, constant=constant,
                slope=slope, grad_y=grad_z,
            )  # fmt: skip
            to_bias = (torch.zeros_like(shift[0]) if ctx.bias_cancels else grad_z.sum((0, 1))) if wants_bias else None
        over_time = grad_z.sum(0) if wants_stimulation or z_steps < steps else grad_z
        rows = (over_time if z_steps < steps else grad_z).view(-1, features)
        grad_x = input_gradient(rows, weight, per_spike).view(z_steps, batch, -1) if wants_x else None
        # Every spike has derivative one with respect to the stimulation: summed over time first, multiplied once.
        grad_stimulation = over_time @ weight if wants_stimulation else None
        if grad_stimulation is not None and per_spike:
            grad_stimulation.add_(z_steps * per_spike)
        spikes = ctx.spikes and math.isfinite(to_shift.sum())  # else silent inputs get 0·NaN, which no table has
        grad_weight = weight_gradient(rows, x, spikes) if wants_weight else None
        maps = to_scale.to(z.dtype) if wants_scale else None, to_shift.to(z.dtype) if wants_shift else None
        return grad_x, grad_stimulation, grad_weight, to_bias, *maps, None, None, None, *to_parameters


def spiking_layer(
    plan: LayerPlan, x: Tensor, stimulation: Tensor | None, steps: int, counted: bool
) -> tuple[Tensor, Tensor | None]:
    """Spikes [T, B, out] of one layer for its input x [T, B, in], or [1, B, in] if constant in time; in training it
    updates the norm. If ``counted``, also the mean of x: the firing rate of whoever sent it.

    ``stimulation`` [B, in] gets the gradient in place of the spikes x that an encoder made from it.
    """
    scale, shift = plan.given or (None, None)
    parameters = plan.norm.affine_parameters() if plan.learning else ()
    given = x, stimulation, plan.weight, plan.bias, scale, shift, plan, steps, counted, *parameters
    result: Any = apply(_Layer, *given)
    return result if counted else (result, None)


# --- the population encoder ------------------------------------------------------------------------------------------


class _ReceptiveFields(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, s: Tensor, mean: Tensor, std: Tensor) -> Tensor:
        s = s.contiguous()
        a = new(s.shape[0], mean.numel(), dtype=s.dtype)
        KERNELS["distances"](s.dtype, **_field_sizes(s, mean, std), out=a)
        a.exp_()
        ctx.save_for_backward(s, mean, std, a)
        return a

    @staticmethod
    @without_autocast
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
        grad = plain_gradient(grad)
        s, mean, std, a = ctx.saved_tensors
        sums = new(2, BLOCKS, mean.numel(), dtype=s.dtype)
        KERNELS["field_gradients"](s.dtype, **_field_sizes(s, mean, std), a=a, grad=grad.contiguous(), sums=sums)
        grad_mean, grad_std = sums.sum(1).view(2, *mean.shape)
        grad_s = None
        if ctx.needs_input_grad[0]:
            pull = (grad * a).view(s.shape[0], *mean.shape) * (mean - s[..., None]) / (std * std)
            grad_s = pull.sum(-1)
        return grad_s, grad_mean, grad_std


def _field_sizes(s: Tensor, mean: Tensor, std: Tensor) -> dict[str, Any]:
    batch, obs = s.shape
    return {"batch": batch, "obs": obs, "population": mean.shape[1], "s": s, "mean": mean, "std": std}


def receptive_fields(s: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """exp(−((s − mean)/std)²/2) as [B, obs·population], for s [B, obs] and fields [obs, population]."""
    return apply(_ReceptiveFields, s, mean, std)

"""A spiking layer: Linear → norm → neuron, all T steps at once."""

from typing import Any, TypeGuard

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from carebn.kernels import fused
from carebn.kernels.products import spike_product
from carebn.kernels.stack import StackLayer, suits
from carebn.neuron import Neuron, make_neuron
from carebn.norm import NoNorm, Norm, TorchNorm, make_norm


class _EncodedProduct(torch.autograd.Function):
    """spikes @ Wᵀ, where every spike has derivative one with respect to a stimulation that is constant in time.

    The gradient to the stimulation is a sum over time, so it is summed first and multiplied once.
    """

    @staticmethod
    def forward(ctx: Any, stimulation: Tensor, spikes: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(spikes, weight)
        return F.linear(spikes, weight)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, None, Tensor | None]:
        spikes, weight = ctx.saved_tensors
        to_stimulation = grad.sum(0) @ weight if ctx.needs_input_grad[0] else None
        to_weight = grad.flatten(0, 1).t() @ spikes.flatten(0, 1) if ctx.needs_input_grad[2] else None
        return to_stimulation, None, to_weight


def watched(module: nn.Module) -> bool:
    """Whether somebody listens to the calls of this module, which the fused path does not make."""
    hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
    return any(hooks)


def is_plain(norm: nn.Module) -> TypeGuard[TorchNorm]:
    """Whether the norm's map is torch's own, so that its gradients are known in closed form."""
    return isinstance(norm, TorchNorm) and type(norm).scale_offset is TorchNorm.scale_offset


class SpikingLayer(nn.Module):
    """``layer(x: [T, B, in]) → spikes [T, B, out]``; an input of shape [1, B, in] is constant over ``time_steps``."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        norm: str = "care",
        neuron: str | Neuron = "clif",
        time_steps: int = 5,
        norm_options: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.time_steps = time_steps
        self.linear = nn.Linear(in_features, out_features)
        self.neuron = make_neuron(neuron)
        self.neuron.check_steps(time_steps)
        self.norm = make_norm(
            norm, out_features, time_steps, **{"v_threshold": self.neuron.v_threshold, **(norm_options or {})}
        )

    def forward(self, x: Tensor, stimulation: Tensor | None = None) -> Tensor:
        """``stimulation`` [B, in]: what an encoder made the spikes x from; the gradient goes there."""
        if x.ndim != 3:
            raise ValueError(f"a spiking layer expects input of shape [T, B, features], got {tuple(x.shape)}")
        steps = self.time_steps if x.shape[0] == 1 else x.shape[0]
        norm, neuron = self.norm, self.neuron
        if fused.usable(x) and isinstance(norm, (Norm, NoNorm)):
            spec = neuron.kernel_spec()
            if spec is not None and not (watched(self.linear) or watched(norm) or watched(neuron)):
                return self._fused(x, stimulation, steps, spec)
        if stimulation is not None:
            x = x + (stimulation - stimulation.detach())
        z = self.linear(x)
        spikes: Tensor = neuron(norm(z.expand(steps, -1, -1)))
        return spikes

    def as_stack_layer(self, x: Tensor) -> StackLayer | None:
        """This layer as part of a compiled stack in front of which x [B, features] enters, if it can be one."""
        linear, norm, neuron = self.linear, self.norm, self.neuron
        spec = neuron.kernel_spec()
        if spec is None or not suits(spec, linear) or any(map(watched, (self, linear, norm, neuron))):
            return None
        neuron.check_steps(self.time_steps)
        if isinstance(norm, NoNorm):
            return StackLayer(linear, spec)
        if not isinstance(norm, Norm):
            return None
        if norm.training:
            norm.check_batch(x)
            return StackLayer(linear, spec, batch=norm) if is_plain(norm) else None
        if torch.is_grad_enabled():
            return None
        if is_plain(norm):
            return StackLayer(linear, spec, moving=norm)
        scale, shift = norm.moving_scale_shift()
        return StackLayer(linear, spec, given=(scale, shift)) if scale.ndim == shift.ndim == 1 else None

    def _fused(self, x: Tensor, stimulation: Tensor | None, steps: int, spec: fused.NeuronSpec) -> Tensor:
        norm = self.norm
        weight, bias = self.linear.weight, self.linear.bias
        self.neuron.check_steps(steps)
        learning = isinstance(norm, Norm) and norm.training
        if learning and is_plain(norm) and norm.weight.dtype == x.dtype:
            norm.check_batch(x)
            return fused.normalised_layer(x, stimulation, weight, bias, norm, steps, spec)
        if stimulation is not None and torch.is_grad_enabled():
            z = fused.apply(_EncodedProduct, stimulation, x, weight)
            z = z if learning or bias is None else z + bias
        elif torch.is_grad_enabled():
            z = F.linear(x, weight, None if learning else bias)
        else:
            z = spike_product(x.flatten(0, 1), weight, None if learning else bias)[0].view(*x.shape[:2], -1)
        if not isinstance(norm, Norm):
            return fused.fire(z, steps, spec)
        norm.check_input(z if z.shape[0] == steps else z.expand(steps, -1, -1))
        if learning:
            return fused.normalise_and_fire(z, bias, norm, steps, spec)
        return fused.scale_and_fire(z, *norm.moving_scale_shift(), steps, spec)

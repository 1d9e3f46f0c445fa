"""Critics: the value of an observation and an action, by ordinary ReLU networks."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from carebn.gradients import apply


class Critic(nn.Module):
    """``critic(obs, action) → q [B]``; the action enters at layer ``action_layer`` (0: with the observation)."""

    def __init__(
        self, obs_dim: int, action_dim: int, *, hidden: Sequence[int] = (256, 256), action_layer: int = 0
    ) -> None:
        super().__init__()
        if not 0 <= action_layer <= len(hidden):
            raise ValueError(f"action_layer must lie in 0..{len(hidden)}, got {action_layer}")
        self.action_layer = action_layer
        sizes = (obs_dim, *hidden, 1)
        self.layers = nn.ModuleList(
            nn.Linear(a + (action_dim if i == action_layer else 0), b) for i, (a, b) in enumerate(pairwise(sizes))
        )

    def forward(self, obs: Tensor, action: Tensor) -> Tensor:
        x = obs
        for i, layer in enumerate(self.layers):
            if i == self.action_layer:
                x = torch.cat([x, action], -1)
            x = layer(x)
            if i + 1 < len(self.layers):
                x = torch.relu(x)
        return x.squeeze(-1)


# The twin critics and their gradients, written out: each is one product in the layout of its parameter. Torch's own
# would be as many products but transposed ones, which the optimiser could not use without a copy, and twice as many
# small operations around them.


def _values(x: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """Both critics' values [2, B] of x [B, in], and the hidden layers' outputs [2, B, size]."""
    both = torch.addmm(biases[0].flatten(), x, weights[0].flatten(0, 1).t())
    h = both.view(x.shape[0], 2, -1).transpose(0, 1)
    hidden = []
    for weight, bias in zip(weights[1:], biases[1:], strict=True):
        h = h.relu_()
        hidden.append(h)
        h = torch.baddbmm(bias, h, weight.transpose(1, 2))
    return h.squeeze(-1), hidden


def _gradients(
    grad: Tensor, x: Tensor, hidden: Sequence[Tensor], weights: Sequence[Tensor]
) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """From the gradient of the values to those of the first layer's outputs, of the weights and of the biases."""
    g = grad.unsqueeze(-1)
    to_weights: list[Tensor] = []
    to_biases: list[Tensor] = []
    for h, weight in zip(reversed(hidden), reversed(weights[1:]), strict=True):
        to_weights.insert(0, torch.bmm(g.transpose(1, 2), h))
        to_biases.insert(0, g.sum(1, keepdim=True))
        g = torch.ops.aten.threshold_backward(g * weight if g.shape[-1] == 1 else torch.bmm(g, weight), h, 0)
    to_weights.insert(0, torch.bmm(g.transpose(1, 2), x.expand(2, -1, -1)))
    to_biases.insert(0, g.sum(1, keepdim=True))
    return g, to_weights, to_biases


class _TwinValues(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, *parameters: Tensor) -> Tensor:
        layers = len(parameters) // 2
        values, hidden = _values(x, parameters[:layers], parameters[layers:])
        ctx.save_for_backward(x, *hidden, *parameters[:layers])
        return values

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, *saved = ctx.saved_tensors
        layers = (len(saved) + 1) // 2
        hidden, weights = saved[: layers - 1], saved[layers - 1 :]
        g, to_weights, to_biases = _gradients(grad, x, hidden, weights)
        to_x = torch.bmm(g, weights[0]).sum(0) if ctx.needs_input_grad[0] else None
        return to_x, *to_weights, *to_biases


class TwinCritic(nn.Module):
    """Two independent critics computed together: ``twin(obs, action) → q [2, B]``.

    The first layer is one product with both critics' weights side by side, the others one batched product each; the
    gradients are first derivatives only.
    Weights start as those of two of ``Critic`` would.
    """

    def __init__(self, obs_dim: int, action_dim: int, *, hidden: Sequence[int] = (256, 256)) -> None:
        super().__init__()
        sizes = (obs_dim + action_dim, *hidden, 1)
        self.weights = nn.ParameterList()
        self.biases = nn.ParameterList()
        for a, b in pairwise(sizes):
            bound = 1 / math.sqrt(a)
            self.weights.append(nn.Parameter(torch.empty(2, b, a).uniform_(-bound, bound)))
            self.biases.append(nn.Parameter(torch.empty(2, 1, b).uniform_(-bound, bound)))

    def forward(self, obs: Tensor, action: Tensor) -> Tensor:
        x = torch.cat([obs, action], -1)
        if not torch.is_grad_enabled():
            return _values(x, list(self.weights), list(self.biases))[0]
        return apply(_TwinValues, x, *self.weights, *self.biases)

    @torch.no_grad()
    def squared_error(self, obs: Tensor, action: Tensor, target: Tensor) -> tuple[Tensor, Tensor, list[Tensor]]:
        """The values [2, B], the sum of both critics' mean squared errors from a target [B], and its gradients in the
        order of the parameters: what autograd would give, without its graph."""
        x, weights = torch.cat([obs, action], -1), list(self.weights)
        values, hidden = _values(x, weights, list(self.biases))
        error = values - target
        loss = error.square().sum() / len(target)
        _, to_weights, to_biases = _gradients(error * (2 / len(target)), x, hidden, weights)
        return values, loss, [*to_weights, *to_biases]

    @torch.no_grad()
    def first_and_slope(self, obs: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """The first critic's values [B], and the gradient of their sum with respect to the action."""
        x = torch.cat([obs, action], -1)
        hidden = []
        for i, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            if i > 0:
                x = x.relu_()
                hidden.append(x)
            x = nn.functional.linear(x, weight[0], bias[0, 0])
        g: Tensor | None = None
        for h, weight in zip(reversed(hidden), reversed(self.weights), strict=False):
            g = weight[0].expand_as(h) if g is None else g @ weight[0]
            g = torch.ops.aten.threshold_backward(g, h, 0)
        to_action = self.weights[0][0, :, obs.shape[-1] :]
        slope = to_action.expand(len(obs), -1) if g is None else g @ to_action
        return x.squeeze(-1), slope

    def single(self, index: int) -> Critic:
        """One of the two as a plain critic, copied."""
        critic = Critic(1, 1, hidden=())
        critic.layers = nn.ModuleList()
        for weight, bias in zip(self.weights, self.biases, strict=True):
            linear = nn.Linear(weight.shape[2], weight.shape[1], device=weight.device, dtype=weight.dtype)
            with torch.no_grad():
                linear.weight.copy_(weight[index])
                linear.bias.copy_(bias[index, 0])
            critic.layers.append(linear)
        return critic

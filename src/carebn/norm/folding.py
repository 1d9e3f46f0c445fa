"""Folding: a normaliser into the linear layer before it, or where it differs from step to step, into per-step scales.

    norm:    y_t = scale_t·(W·x_t + b) + shift_t
    folded:  y_t = W'·x_t + b',        W' = scale·W,  b' = scale·b + shift          one scale for all steps
             y_t = scale_t·(W·x_t) + b'_t,            b'_t = scale_t·b + shift_t    a scale for each

It is done in float64, from the parameters as they were trained and the moving statistics, so that it costs no
precision. What is not known to be such a pair is refused by name.
"""

from copy import deepcopy
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from carebn.norm.base import Norm
from carebn.norm.none import NoNorm

Kind = TypeVar("Kind", bound=nn.Module)


class FoldedLinear(NamedTuple):
    """In float64."""

    weight: Tensor  # [outputs, inputs]
    bias: Tensor  # [1, outputs], or with a scale for each step [T, outputs]
    scale: Tensor | None = None  # [T, outputs], of what the weight gives; None: it is in the weight


def plain(module: Any, kind: type[Kind]) -> Kind:
    """The module, if it is exactly of this kind; a subclass may do anything."""
    if type(module) is not kind:
        raise ValueError(f"do not know how to fold a {type(module).__name__} where a {kind.__name__} is expected")
    return module


@torch.no_grad()
def fold_norm(linear: nn.Module, norm: nn.Module | None = None, steps: int = 1) -> FoldedLinear:
    """A Linear and the normaliser behind it, if there is one, in a network of so many time steps."""
    linear = plain(linear, nn.Linear)
    weight = linear.weight.double()
    bias = (weight.new_zeros(len(weight)) if linear.bias is None else linear.bias.double())[None]
    if norm is None or type(norm) is NoNorm:
        return FoldedLinear(weight, bias)
    # A subclass may have its own statistics and its own scale and offset, but must apply them as Norm does.
    applied = (
        "forward",
        "scale_shift",
        "moving_scale_shift",
        "_spread",
        "uses_batch",
        "keeps_statistics",
        "feature_axis",
    )
    if not isinstance(norm, Norm) or any(getattr(type(norm), name) is not getattr(Norm, name) for name in applied):
        raise ValueError(f"do not know how to fold a {type(norm).__name__} into the weights before it")
    if norm.num_features != len(weight) or bias.shape[1] != len(weight):
        raise ValueError(
            f"do not know how to fold a {type(norm).__name__} of {norm.num_features} features into a Linear with "
            f"{len(weight)} rows of weights and {bias.shape[1]} biases"
        )
    moving = deepcopy(norm).double().moving_scale_shift()
    scale, shift = (each.reshape(-1, len(weight)) for each in moving)
    bias = bias * scale + shift
    if len(scale) == 1:
        return FoldedLinear(weight * scale.t(), bias)
    if len(scale) != steps:
        raise ValueError(f"{type(norm).__name__} has {len(scale)} steps in a network of {steps}")
    return FoldedLinear(weight, bias, scale)

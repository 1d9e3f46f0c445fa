"""What every differentiable function of ours begins with: torch calls it, and its backward pass gets a gradient."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor, nn

from carebn.introspection import address_of, in_autocast


def apply(function: Any, *arguments: Any) -> Tensor:
    """``apply`` of an autograd function, which some versions of torch leave without types."""
    result: Tensor = function.apply(*arguments)
    return result


def plain_gradient(grad: Tensor) -> Tensor:
    """What every backward pass begins with: the gradient as numbers in memory."""
    if type(grad) is not Tensor and type(grad) is not nn.Parameter:
        raise RuntimeError(
            f"the compiled kernels need a plain tensor as a gradient, got {type(grad).__name__}; run the model inside "
            f"carebn.kernels.pure()"
        )
    address = address_of(grad)
    if torch.is_grad_enabled() or address is None:  # somebody wants to differentiate it again, or many at once
        raise RuntimeError(
            "the compiled kernels give first derivatives only, one at a time; for create_graph=True and "
            "is_grads_batched=True run the model inside carebn.kernels.pure()"
        )
    return grad.resolve_neg() if address else torch.zeros_like(grad)  # that of torch.sgn is zeros without memory


def without_autocast(backward: Callable[..., Any]) -> Callable[..., Any]:
    """A backward pass in the precision of its forward pass, which ran outside of torch.autocast."""

    @wraps(backward)
    def run(*arguments: Any) -> Any:
        if not in_autocast():
            return backward(*arguments)
        with torch.autocast("cpu", enabled=False):
            return backward(*arguments)

    return run

"""Spikes that can be trained: a step forwards, a smooth slope backwards.

A spike is ``1 if x > 0 else 0`` with x the distance of the membrane potential from the threshold. Its true derivative
is zero almost everywhere, so each surrogate puts a slope of area 1 around the threshold in its place.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from carebn.gradients import apply
from carebn.introspection import stands_for
from carebn.kernels import scan


class _Spike(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, surrogate: "Surrogate") -> Tensor:
        return (x > 0).to(x.dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, ctx.surrogate = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        return grads[0] * ctx.surrogate.slope(x), None


@dataclass(frozen=True)
class Surrogate:
    """A spike, 1 where x > 0 else 0, with a slope in place of its derivative: ``surrogate(x) → spikes``, same shape.

    ``size`` is a half-width for rectangle and triangle, a steepness for sigmoid and tanh.
    """

    size: float
    kernel_number: ClassVar[int] = -1  # in the compiled scans, for those that these know

    def __post_init__(self) -> None:
        if not (math.isfinite(self.size) and self.size > 0):
            raise ValueError(f"{type(self).__name__} needs a size above zero, got {self.size}")

    def slope(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def __call__(self, x: Tensor) -> Tensor:
        return apply(_Spike, x, self)


@stands_for("surrogate", "slope kernel_number")
@dataclass(frozen=True)
class Rectangle(Surrogate):
    """``1/(2ω) where |x| ≤ ω``, with ω the size; the paper's."""

    size: float = 0.5
    kernel_number: ClassVar[int] = scan.RECTANGLE

    def slope(self, x: Tensor) -> Tensor:
        return (x.abs() <= self.size).to(x.dtype) * (1 / (2 * self.size))


@stands_for("surrogate", "slope kernel_number")
@dataclass(frozen=True)
class Triangle(Surrogate):
    """``(1 − |x|/ω)/ω where |x| ≤ ω``, with ω the size."""

    size: float = 1.0
    kernel_number: ClassVar[int] = scan.TRIANGLE

    def slope(self, x: Tensor) -> Tensor:
        return (1 - x.abs() / self.size).clamp(min=0) / self.size


@stands_for("surrogate", "slope kernel_number")
@dataclass(frozen=True)
class Sigmoid(Surrogate):
    """The derivative of σ(k·x): k·σ·(1 − σ)."""

    size: float = 4.0
    kernel_number: ClassVar[int] = scan.SIGMOID

    def slope(self, x: Tensor) -> Tensor:
        y = torch.sigmoid(self.size * x)
        return self.size * y * (1 - y)


@stands_for("surrogate", "slope kernel_number")
@dataclass(frozen=True)
class Tanh(Surrogate):
    """The derivative of (1 + tanh(k·x))/2: k/2·(1 − tanh²)."""

    size: float = 2.0
    kernel_number: ClassVar[int] = scan.TANH

    def slope(self, x: Tensor) -> Tensor:
        y = torch.tanh(self.size * x)
        return self.size / 2 * (1 - y * y)

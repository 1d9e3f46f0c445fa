"""The neurons once more, as plain loops over Python floats: nothing here knows torch.

A ``Dual`` is a number with its derivative along one direction, so one run of a loop gives a spike train and one column
of its surrogate gradient. Expressions have the order of the specification, so that float64 results agree to the last
bit, at the threshold too.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Dual:
    value: float
    tangent: float = 0.0

    def __add__(self, other: "Dual | float") -> "Dual":
        other = dual(other)
        return Dual(self.value + other.value, self.tangent + other.tangent)

    def __sub__(self, other: "Dual | float") -> "Dual":
        other = dual(other)
        return Dual(self.value - other.value, self.tangent - other.tangent)

    def __mul__(self, other: "Dual | float") -> "Dual":
        other = dual(other)
        return Dual(self.value * other.value, self.value * other.tangent + self.tangent * other.value)

    def __rsub__(self, other: float) -> "Dual":
        return dual(other) - self

    __radd__ = __add__
    __rmul__ = __mul__


def dual(x: Dual | float) -> Dual:
    return x if isinstance(x, Dual) else Dual(float(x))


Slope = Callable[[float], float]


def rectangle(x: float, width: float = 0.5) -> float:
    return 1 / (2 * width) if abs(x) <= width else 0.0


def triangle(x: float, width: float = 1.0) -> float:
    return (1 - abs(x) / width) / width if abs(x) <= width else 0.0


def sigmoid(x: float, k: float = 4.0) -> float:
    y = 1 / (1 + math.exp(-k * x))
    return k * y * (1 - y)


def tanh(x: float, k: float = 2.0) -> float:
    return k / 2 / math.cosh(k * x) ** 2


SLOPES: dict[str, Slope] = {"rectangle": rectangle, "triangle": triangle, "sigmoid": sigmoid, "tanh": tanh}


def fire(x: Dual, slope: Slope) -> Dual:
    return Dual(1.0 if x.value > 0 else 0.0, slope(x.value) * x.tangent)


def lif(currents: list[Dual], slope: Slope) -> list[Dual]:
    v = dual(0)
    spikes = []
    for c in currents:
        h = 0.75 * v + c
        s = fire(h - 0.5, slope)
        v = h * (1 - s)
        spikes.append(s)
    return spikes


def clif(inputs: list[Dual], slope: Slope) -> list[Dual]:
    c = v = dual(0)
    spikes = []
    for x in inputs:
        c = 0.5 * c + x
        h = 0.75 * v + c
        s = fire(h - 0.5, slope)
        v = h * (1 - s)
        spikes.append(s)
    return spikes


def dn(inputs: list[Dual], slope: Slope, theta_u: float = 0.529) -> list[Dual]:
    theta_v, theta_r, theta_s = -0.172, 0.021, 0.132
    c = v = u = s = dual(0)
    spikes = []
    for x in inputs:
        c = 0.5 * c + x
        v = v * (1 - s) + theta_r * s
        u = u + theta_s * s
        v, u = v + (v * v - v - u + c), u + (theta_v * v - theta_u * u)
        s = fire(v - 0.5, slope)
        spikes.append(s)
    return spikes


def dn_authors(inputs: list[Dual], slope: Slope) -> list[Dual]:
    return dn(inputs, slope, theta_u=-0.529)


NEURONS = {"lif": lif, "clif": clif, "dn": dn, "dn-authors": dn_authors}


def spikes_and_gradient(
    neuron: str, surrogate: str, inputs: list[float], weights: list[float]
) -> tuple[list[float], list[float]]:
    """The spikes, and d(Σ_t weights_t·S_t)/d(inputs_k) for every k."""
    run, slope = NEURONS[neuron], SLOPES[surrogate]
    spikes = [s.value for s in run([Dual(x) for x in inputs], slope)]
    gradient = []
    for k in range(len(inputs)):
        train = run([Dual(x, float(t == k)) for t, x in enumerate(inputs)], slope)
        gradient.append(math.fsum(w * s.tangent for w, s in zip(weights, train, strict=True)))
    return spikes, gradient

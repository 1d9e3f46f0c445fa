"""Slow, independent versions of the normalisers in float64 numpy, written from their formulas.

Everything is spelled out step by step: at step t a normaliser looks at some steps of the batch (``steps_seen``), takes
mean and variance of all their samples, normalises x_t with them and applies γ, β and a factor.

    care, ca, re, bn   all steps        γ·x̂ + β
    tdbn               all steps        γ·(α·V_th·x̂) + β
    bntt               step t           γ_t·x̂             (β_t only where asked for)
    tebn               all steps        p_t·(γ·x̂ + β)
    tab                steps 1 … t      p_t²·(γ_t·x̂ + β_t)
"""

from dataclasses import dataclass, field

import numpy as np

EPS = 1e-5
CONFIDENCE = ("care", "ca")
PER_STEP_STATISTICS = ("bntt", "tab")


@dataclass
class Affine:
    """γ, β, p as [F], [T, F] or [T]; None where the normaliser has none. ``factor`` is α·V_th of tdBN."""

    weight: np.ndarray
    bias: np.ndarray | None = None
    step_scale: np.ndarray | None = None
    factor: float = 1.0


def steps_seen(name: str, t: int, time_steps: int) -> slice:
    """The steps whose samples make up the statistics at step t."""
    if name == "bntt":
        return slice(t, t + 1)
    if name == "tab":
        return slice(0, t + 1)
    return slice(0, time_steps)


def moments(block: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and biased variance per feature of [t, B, F]."""
    mean = block.mean((0, 1))
    return mean, ((block - mean) ** 2).mean((0, 1))


def statistics(name: str, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What the moving statistics estimate: [F], or [T, F] where every step has its own."""
    if name not in PER_STEP_STATISTICS:
        return moments(x)
    per_step = [moments(x[steps_seen(name, t, len(x))]) for t in range(len(x))]
    return np.stack([mean for mean, _ in per_step]), np.stack([var for _, var in per_step])


def affine_at(name: str, affine: Affine, t: int) -> tuple[np.ndarray, np.ndarray, float]:
    """γ, β and the outer factor at step t."""
    weight, bias, outer = affine.weight, affine.bias, 1.0
    if name == "tdbn":
        weight = affine.factor * weight
    if name == "tebn":
        outer = affine.step_scale[t]
    if name == "tab":
        outer = affine.step_scale[t] ** 2
    if name in PER_STEP_STATISTICS:
        weight = weight[t]
        bias = np.zeros_like(weight) if bias is None else bias[t]
    return weight, bias, outer


def train_output(name: str, x: np.ndarray, affine: Affine) -> np.ndarray:
    """y of a training forward, from the batch's own statistics."""
    y = np.empty_like(x)
    for t in range(len(x)):
        mean, var = moments(x[steps_seen(name, t, len(x))])
        weight, bias, outer = affine_at(name, affine, t)
        y[t] = outer * (weight * (x[t] - mean) / np.sqrt(var + EPS) + bias)
    return y


def eval_output(name: str, x: np.ndarray, affine: Affine, mean: np.ndarray, var: np.ndarray) -> np.ndarray:
    """y of inference, from moving statistics."""
    y = np.empty_like(x)
    for t in range(len(x)):
        m, v = (mean[t], var[t]) if name in PER_STEP_STATISTICS else (mean, var)
        weight, bias, outer = affine_at(name, affine, t)
        y[t] = outer * (weight * (x[t] - m) / np.sqrt(v + EPS) + bias)
    return y


def gradients(name: str, x: np.ndarray, affine: Affine, grad: np.ndarray) -> dict[str, np.ndarray]:
    """Gradients of Σ grad·y in closed form, by name: x, weight, bias, step_scale.

    With x̂ = (x − mean)/s over a group of n samples and G = dL/dx̂:  dL/dx = (G − ΣG/n − x̂·ΣGx̂/n)/s.
    Samples of the group whose own x̂ is not used have G = 0, but still feel the two sums.
    """
    result = {"x": np.zeros_like(x), "weight": np.zeros_like(affine.weight)}
    if affine.bias is not None:
        result["bias"] = np.zeros_like(affine.bias)
    if affine.step_scale is not None:
        result["step_scale"] = np.zeros_like(affine.step_scale)
    for t in range(len(x)):
        seen = steps_seen(name, t, len(x))
        block = x[seen]
        mean, var = moments(block)
        deviation = np.sqrt(var + EPS)
        normalised = (block - mean) / deviation
        at = t - seen.start
        weight, bias, outer = affine_at(name, affine, t)

        to_normalised = np.zeros_like(block)
        to_normalised[at] = grad[t] * outer * weight
        n = block.shape[0] * block.shape[1]
        through_mean = to_normalised.sum((0, 1)) / n
        through_var = (to_normalised * normalised).sum((0, 1)) / n
        result["x"][seen] += (to_normalised - through_mean - normalised * through_var) / deviation

        to_weight = (grad[t] * outer * normalised[at]).sum(0) * affine.factor
        to_bias = (grad[t] * outer).sum(0)
        own_row = name in PER_STEP_STATISTICS
        result["weight"][t if own_row else slice(None)] += to_weight
        if "bias" in result:
            result["bias"][t if own_row else slice(None)] += to_bias
        if "step_scale" in result:
            inner = (grad[t] * (weight * normalised[at] + bias)).sum()
            result["step_scale"][t] += inner * (2 * affine.step_scale[t] if name == "tab" else 1)
    return result


def gradient_by_complex_step(name: str, x: np.ndarray, affine: Affine, grad: np.ndarray) -> dict[str, np.ndarray]:
    """The same gradients, one number at a time, exact to rounding: Im f(z + ih)/h."""
    h = 1e-30

    def loss_of(changes: dict[str, np.ndarray]) -> complex:
        values = {"weight": affine.weight, "bias": affine.bias, "step_scale": affine.step_scale, "x": x} | changes
        values = {key: None if value is None else value.astype(complex) for key, value in values.items()}
        point = values.pop("x")
        return (grad * train_output(name, point, Affine(**values, factor=affine.factor))).sum()

    result = {}
    for key, value in {"x": x, "weight": affine.weight, "bias": affine.bias, "step_scale": affine.step_scale}.items():
        if value is None:
            continue
        result[key] = np.empty_like(value)
        for index in np.ndindex(value.shape):
            shifted = value.astype(complex)
            shifted[index] += 1j * h
            result[key][index] = loss_of({key: shifted}).imag / h
    return result


@dataclass
class Moving:
    """The moving statistics of one normaliser, batch by batch. ``momentum`` weighs the new term."""

    name: str
    time_steps: int
    features: int
    momentum: float | None
    mean: np.ndarray = field(init=False)
    var: np.ndarray = field(init=False)
    error_mean: np.ndarray = field(init=False)
    error_var: np.ndarray = field(init=False)
    batches: int = 0

    def __post_init__(self) -> None:
        shape = (self.time_steps, self.features) if self.name in PER_STEP_STATISTICS else (self.features,)
        self.mean, self.var = np.zeros(shape), np.ones(shape)
        self.error_mean, self.error_var = np.zeros(shape), np.zeros(shape)

    def update(self, x: np.ndarray) -> None:
        self.batches += 1
        mean, var = statistics(self.name, x)
        if self.name in CONFIDENCE and self.momentum is not None:
            self._confidence(mean, var, batch=x.shape[1])
        else:
            self._average(mean, var * self._unbiasing(x))

    def _confidence(self, mean: np.ndarray, var: np.ndarray, batch: int) -> None:
        alpha = self.momentum
        self.error_mean = (1 - alpha) * self.error_mean + alpha * (mean - self.mean) ** 2
        self.error_var = (1 - alpha) * self.error_var + alpha * (var - self.var) ** 2
        gain_mean = self.error_mean / (self.error_mean + var / batch)
        gain_var = self.error_var / (self.error_var + 2 * var**2 / (batch - 1))
        self.mean = (1 - gain_mean) * self.mean + gain_mean * mean
        self.var = (1 - gain_var) * self.var + gain_var * var

    def _average(self, mean: np.ndarray, var: np.ndarray) -> None:
        new = 1 / self.batches if self.momentum is None else self.momentum
        self.mean = (1 - new) * self.mean + new * mean
        self.var = (1 - new) * self.var + new * var

    def _unbiasing(self, x: np.ndarray) -> np.ndarray | float:
        """n/(n − 1) with n the number of samples of each statistic."""
        steps, batch = x.shape[:2]
        if self.name == "bntt":
            n = np.full((steps, 1), batch)
        elif self.name == "tab":
            n = batch * np.arange(1, steps + 1)[:, None]
        else:
            n = steps * batch
        return n / (n - 1)

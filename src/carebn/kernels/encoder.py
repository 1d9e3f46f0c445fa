"""Compiled population encoder: receptive fields, and the gradients of their means and widths."""

from typing import Any

from carebn.kernels.jit import array_at, njit
from carebn.kernels.pool import BLOCKS, my_part, my_share, rows_of
from carebn.kernels.tables import INT, REAL, Array, Scratch, Table

_FIELDS: dict[str, Any] = {
    "batch": INT, "obs": INT, "population": INT,
    "s": Array(REAL, "batch, obs"), "mean": Array(REAL, "obs, population"), "std": Array(REAL, "obs, population"),
    "spread": Scratch(REAL, "2, obs * population"),
}  # fmt: skip
DISTANCES = Table(**_FIELDS, out=Array(REAL, "batch, obs * population"))
FIELD_GRADIENTS = Table(
    **_FIELDS,
    a=Array(REAL, "batch, obs * population"), grad=Array(REAL, "batch, obs * population"),
    sums=Array(REAL, f"2, {BLOCKS}, obs * population"),
)  # fmt: skip


@njit
def _opened(t: Any, one: Any) -> Any:
    """Observations, means and precisions (1/std) of the receptive fields, and room for one spread observation."""
    features = t.obs * t.population
    s = array_at(t.s, (t.batch, t.obs), one)
    mean = array_at(t.mean, (features,), one)
    std = array_at(t.std, (features,), one)
    mine = array_at(my_part(t, t.spread, 2 * features * s.itemsize), (2, features), one)
    precision = mine[1]
    for f in range(features):
        precision[f] = one / std[f]
    return s, mean, precision, mine[0]


@njit
def _spread(s: Any, population: int, out: Any) -> None:
    """Each value beside every member of its population."""
    for i in range(s.size):
        out[i * population : (i + 1) * population] = s[i]


@njit
def _distance_row(spread: Any, mean: Any, precision: Any, out: Any, one: Any) -> None:
    half = one / (one + one)
    for f in range(out.size):
        u = (spread[f] - mean[f]) * precision[f]
        out[f] = -(u * u * half)


@njit
def distances(t: Any, one: Any) -> int:
    """out = −u²/2 with u = (s − mean)·(1/std), each s against its own population."""
    s, mean, precision, spread = _opened(t, one)
    out = array_at(t.out, (t.batch, t.obs * t.population), one)
    for block in my_share(t, BLOCKS):
        for b in rows_of(block, t.batch):
            _spread(s[b], t.population, spread)
            _distance_row(spread, mean, precision, out[b], one)
    return 0


@njit
def _field_gradient_row(spread: Any, mean: Any, precision: Any, a: Any, grad: Any, to_mean: Any, to_std: Any) -> None:
    for f in range(a.size):
        u = (spread[f] - mean[f]) * precision[f]
        g = grad[f] * a[f] * u
        to_mean[f] += g
        to_std[f] += g * u


@njit
def field_gradients(t: Any, one: Any) -> int:
    """Per block: the sums over samples of dL/dmean and dL/dstd."""
    features = t.obs * t.population
    s, mean, precision, spread = _opened(t, one)
    a = array_at(t.a, (t.batch, features), one)
    grad = array_at(t.grad, (t.batch, features), one)
    sums = array_at(t.sums, (2, BLOCKS, features), one)
    for block in my_share(t, BLOCKS):
        sums[:, block] = 0
        to_mean, to_std = sums[0, block], sums[1, block]
        for b in rows_of(block, t.batch):
            _spread(s[b], t.population, spread)
            _field_gradient_row(spread, mean, precision, a[b], grad[b], to_mean, to_std)
        for f in range(features):
            sums[:, block, f] *= precision[f]
    return 0

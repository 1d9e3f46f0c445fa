"""How far a normaliser's belief is from the truth: W1 between a feature's activations and the estimated Gaussian."""

import math
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from carebn.measure.activations import estimated, norm_inputs, normalisers
from carebn.training.observers import Watched
from carebn.training.record import Row

OBSERVATIONS = 2048  # per measurement: bounds its cost to about a second
FEATURES_AT_ONCE = 32  # bounds the memory of the 64-bit arithmetic, and keeps it in the cache


def gaussian_distance(samples: Tensor, mean: Tensor, var: Tensor) -> Tensor:
    """Exact W1 between the empirical distribution of ``samples [n, F]`` and N(mean, var), for each feature: ``[F]``.

    W1 = ∫₀¹ |Q_n(u) − μ − σΦ⁻¹(u)| du, where Q_n is the i-th smallest sample x on ((i−1)/n, i/n). With k = (x − μ)/σ,
    a = Φ⁻¹((i−1)/n), b = Φ⁻¹(i/n) and m = φ(a) − φ(b), one piece of it is

    σ·∫ₐᵇ |k − z| φ(z) dz = σ·|k/n − m|                                     where k lies outside of (a, b), and
                            σ·(k·(2Φ(k) − (2i−1)/n) + 2φ(k) − φ(a) − φ(b))  inside, which is rare.

    As σ → 0 the sum tends to the mean of |x − μ|.
    """
    n, features = samples.shape
    if n == 0:
        raise ValueError("a distribution needs at least one sample, got none")
    a, b = _edges(n)
    low, high = _density(a), _density(b)
    slice_mean = low - high
    distances = np.empty(features)
    columns = samples.detach().cpu().t()
    means, sigmas = mean.detach().cpu().double().numpy(), var.detach().cpu().double().sqrt().numpy()
    for first in range(0, features, FEATURES_AT_ONCE):
        some = slice(first, first + FEATURES_AT_ONCE)
        x = np.sort(columns[some].contiguous().numpy(), axis=1).astype(np.float64)
        mu, sigma = means[some, None], sigmas[some, None]
        x -= mu
        spread = np.abs(x).mean(axis=1)
        k = np.divide(x, sigma, out=x, where=sigma > 0)
        pieces = np.abs(k / n - slice_mean)
        rows, i = np.nonzero((k > a) & (k < b))
        inside = k[rows, i]
        below = torch.special.ndtr(torch.from_numpy(inside)).numpy()
        pieces[rows, i] = inside * (2 * below - (2 * i + 1) / n) + 2 * _density(inside) - low[i] - high[i]
        distances[some] = np.where(sigma[:, 0] > 0, sigma[:, 0] * pieces.sum(axis=1), spread)
    return torch.from_numpy(distances)


def layer_distances(network: nn.Module, obs: Tensor) -> list[float]:
    """W1 for each normaliser of a network, averaged over its features (and over steps, where steps have their own)."""
    distances = []
    for norm, inputs in zip(normalisers(network), norm_inputs(network, obs), strict=True):
        means = [gaussian_distance(*pair).mean() for pair in estimated(norm, inputs)]
        distances.append(float(torch.stack(means).mean()))
    return distances


class WassersteinObserver:
    """At every evaluation of a run the distance per layer, before and after re-calibration.

    ``before`` is about the statistics that the agent explored with; ``after`` about those that it is evaluated with.
    They are the same for a method that does not re-calibrate.
    """

    name = "wasserstein"

    def before_recalibration(self, run: Watched) -> list[float]:
        return self._distances(run)

    def after_evaluation(self, run: Watched, before: list[float], recalibrated: bool) -> Row:
        return {"before": before, "after": self._distances(run) if recalibrated else before}

    def _distances(self, run: Watched) -> list[float]:
        device = next(run.policy.parameters()).device
        return layer_distances(run.policy, run.replay.sample_obs(OBSERVATIONS, run.random(), device))


@lru_cache(maxsize=8)
def _edges(n: int) -> tuple[NDArray[Any], NDArray[Any]]:
    edges = torch.special.ndtri(torch.arange(n + 1, dtype=torch.float64) / n).numpy()
    return edges[:-1], edges[1:]


def _density(z: NDArray[Any]) -> NDArray[Any]:
    """φ(z), zero at ±∞."""
    density: NDArray[Any] = np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
    return density

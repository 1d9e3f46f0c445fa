"""W1 to a Gaussian: against numerical integration, scipy and closed forms; and of networks, without changing them."""

import math
from copy import deepcopy
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm as gaussian
from scipy.stats import wasserstein_distance

from carebn.measure.activations import estimated, norm_inputs, normalisers
from carebn.measure.wasserstein import gaussian_distance, layer_distances
from carebn.network import ANNActor, SpikingActor, SpikingQNetwork

FINITE = st.floats(-50, 50, width=32)


def slow_distance(samples: np.ndarray, mean: float, var: float) -> float:
    """∫ |F_n(x) − Φ((x − μ)/σ)| dx, from the distribution functions: between two samples F_n is constant."""
    sigma = math.sqrt(var)
    x = np.sort(samples)
    reach = [min(x[0], mean - 12 * sigma), *x, max(x[-1], mean + 12 * sigma)]
    total = 0.0
    for i, (a, b) in enumerate(pairwise(reach)):
        level = i / len(x)
        middle = gaussian.ppf(level, mean, sigma)
        inner = [p for p in (middle, mean, mean - 4 * sigma, mean + 4 * sigma) if a < p < b]
        cuts = [a, *sorted(inner), b]
        for c, d in pairwise(cuts):
            total += quad(lambda v, u=level: abs(u - gaussian.cdf(v, mean, sigma)), c, d, epsabs=1e-10)[0]
    return total


def one(samples: np.ndarray, mean: float, var: float) -> float:
    x = torch.tensor(samples, dtype=torch.float64)[:, None]
    return float(gaussian_distance(x, torch.tensor([mean]).double(), torch.tensor([var]).double()))


@settings(max_examples=60, deadline=None)
@given(st.lists(FINITE, min_size=1, max_size=12), FINITE, st.floats(0.0625, 100, width=32))
def test_against_numerical_integration(samples: list[float], mean: float, var: float) -> None:
    x = np.array(samples)
    assert one(x, mean, var) == pytest.approx(slow_distance(x, mean, var), rel=1e-6, abs=1e-7)


def test_against_scipy() -> None:
    x = np.random.default_rng(0).gamma(2.0, size=400)
    fine = gaussian.ppf((np.arange(200_000) + 0.5) / 200_000, 1.5, 0.7)
    assert one(x, 1.5, 0.49) == pytest.approx(wasserstein_distance(x, fine), rel=1e-4)


def test_closed_forms() -> None:
    # One sample at the mean: E|σZ| = σ√(2/π).
    assert one(np.array([3.0]), 3.0, 4.0) == pytest.approx(2 * math.sqrt(2 / math.pi), rel=1e-12)
    # Two samples at μ ± d, each against its half: the mean of |d − σ|Z||.
    d, sigma = 0.6, 1.5
    k = d / sigma
    half = sigma * (k * (4 * gaussian.cdf(k) - 3) + 4 * gaussian.pdf(k) - 2 * gaussian.pdf(0))
    assert one(np.array([-d, d]), 0.0, sigma**2) == pytest.approx(half, rel=1e-12)
    # Far away, only the distance of the means matters.
    assert one(np.array([1e6, 1e6 + 1]), 0.0, 1.0) == pytest.approx(1e6 + 0.5, rel=1e-12)
    # No variance: the mean distance to the point.
    assert one(np.array([1.0, 4.0]), 2.0, 0.0) == 1.5


def test_true_gaussian_is_near_zero_and_a_shift_is_itself() -> None:
    x = np.random.default_rng(1).normal(2.0, 3.0, 20_000)
    assert one(x, 2.0, 9.0) < 0.05
    assert one(x, 7.0, 9.0) == pytest.approx(5.0, abs=0.05)
    assert one(x, 2.0, 36.0) == pytest.approx(3 * math.sqrt(2 / math.pi), abs=0.06)  # |σ₁ − σ₂|·E|Z|


def test_every_feature_by_itself() -> None:
    rng = np.random.default_rng(2)
    x = rng.normal(size=(50, 70)) * rng.uniform(0.1, 3, 70)
    mean, var = rng.normal(size=70), rng.uniform(0, 2, 70)
    var[[0, 33, 69]] = 0  # across the blocks in which it is computed
    together = gaussian_distance(*(torch.tensor(a) for a in (x, mean, var)))
    assert together.tolist() == pytest.approx([one(x[:, i], mean[i], var[i]) for i in range(70)], rel=1e-12)


def test_no_samples() -> None:
    with pytest.raises(ValueError, match="at least one sample"):
        gaussian_distance(torch.zeros(0, 2), torch.zeros(2), torch.ones(2))


# --- networks ---------------------------------------------------------------------------------------------------------

NETWORKS = {
    "actor": lambda norm: SpikingActor(3, 2, norm=norm, hidden=(8, 6)),
    "q-network": lambda norm: SpikingQNetwork(3, 2, norm=norm, hidden=(8, 6)),
    "ann": lambda norm: ANNActor(3, 2, norm=norm, hidden=(8, 6)),
}


def trained(kind: str, norm: str) -> torch.nn.Module:
    torch.manual_seed(3)
    network = NETWORKS[kind](norm)
    for _ in range(3):
        network(torch.randn(16, 3) * 2)
    return network


@pytest.mark.parametrize("norm", ["care", "bn", "tdbn", "tebn", "bntt", "tab"])
@pytest.mark.parametrize("kind", NETWORKS)
def test_measuring_changes_nothing(kind: str, norm: str) -> None:
    network = trained(kind, norm)
    network.train()
    before, random = deepcopy(network.state_dict()), torch.get_rng_state()
    obs = torch.randn(20, 3, generator=torch.Generator().manual_seed(0))
    first = layer_distances(network, obs)
    assert layer_distances(network, obs) == first
    assert len(first) == len(normalisers(network)) >= 2
    assert all(map(math.isfinite, first))
    assert torch.equal(torch.get_rng_state(), random)
    assert all(module.training for module in network.modules())
    for name, value in network.state_dict().items():
        assert torch.equal(value, before[name])


def test_inputs_are_those_of_an_acting_network() -> None:
    network = trained("actor", "bn").eval()
    obs = torch.randn(20, 3)
    inputs = norm_inputs(network, obs)
    stimulation = network.encoder.stimulation(obs)
    x = network.encoder.spikes(stimulation)
    for layer, seen in zip(network.layers, inputs, strict=True):
        z = layer.linear(x)
        torch.testing.assert_close(seen, z)
        x = layer.neuron(layer.norm(z))


def test_statistics_per_step_are_compared_with_their_own_steps() -> None:
    inputs = torch.arange(24.0).view(3, 4, 2)
    (pooled,) = estimated(normalisers(trained("actor", "care"))[0], inputs)
    assert pooled[0].shape == (12, 2)
    network = SpikingActor(3, 2, norm="bntt", hidden=(2,), time_steps=3)
    step = list(estimated(normalisers(network)[0], inputs))
    assert [torch.equal(samples, inputs[t]) for t, (samples, _, _) in enumerate(step)] == [True] * 3
    network = SpikingActor(3, 2, norm="tab", hidden=(2,), time_steps=3)
    step = list(estimated(normalisers(network)[0], inputs))
    assert [len(samples) for samples, _, _ in step] == [4, 8, 12]


def test_recalibration_brings_the_distance_down() -> None:
    from carebn import recalibrate

    torch.manual_seed(5)
    network = SpikingActor(3, 2, norm="care")
    obs = torch.randn(1000, 3)
    before = layer_distances(network, obs)
    recalibrate(network, [obs])
    after = layer_distances(network, obs)
    assert all(b < a / 2 for a, b in zip(before, after, strict=True))

"""Fine-tuning: weights that were rounded too coarsely act more like the trained ones, and good ones are left alone."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from deploy_cases import observations, spiking_actor

from carebn import load
from carebn.deploy.folding import fold
from carebn.deploy.graph import Integers
from carebn.deploy.qat import tuned, values_of
from carebn.deploy.quantise import quantised

TRAINED = Path(__file__).parent / "trained_clif"


def coarse(network, last):
    """Every weight at the nearest of a few levels."""

    def rounded(layer):
        factor = np.abs(layer.weight).max(0) / last
        whole = Integers(np.rint(layer.weight / factor).astype(np.int8), factor)
        return replace(layer, weight=whole.weight, integers=whole)

    return replace(network, layers=tuple(map(rounded, network.layers)))


def on_its_way(count, seed):
    """Observations as the trained policy meets them."""
    rng = np.random.default_rng(seed)
    spread = np.array([0.3, 0.1, 0.1, 0.02, 0.02, 0.5, 1.0, 1.5, 0.1, 0.1, 0.1])
    return (np.array([0] * 3 + [1, 1] + [0] * 6) + spread * rng.standard_normal((count, 11))).astype(np.float32)


def error(network, trained):
    obs = on_its_way(1000, seed=8)
    return float(np.mean((values_of(network, obs) - values_of(trained, obs)) ** 2))


@pytest.mark.slow
def test_coarse_weights_learn():
    trained = fold(load(TRAINED).network)
    rounded = coarse(trained, 7)
    found = tuned(trained, rounded, "int8", on_its_way(3000, seed=5), 150)
    assert error(found, trained) < 0.85 * error(rounded, trained)
    for layer, before in zip(found.layers, rounded.layers, strict=True):
        assert layer.integers.levels.dtype == np.int8
        assert np.array_equal(layer.weight, layer.integers.weight)
        assert layer.integers.factor.shape == before.integers.factor.shape


def test_it_never_makes_worse_what_was_held_back():
    trained, seen = fold(spiking_actor()), observations(400, seed=5)
    rounded = quantised(trained, "int8", seen)
    found = tuned(trained, rounded, "int8", seen, 10)
    held = seen[::4]
    before, after = (np.mean((values_of(x, held) - values_of(trained, held)) ** 2) for x in (rounded, found))
    assert after <= before

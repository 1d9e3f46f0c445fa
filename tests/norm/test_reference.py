"""The reference itself: its closed-form gradients against its own formula, and its moving rule against arithmetic."""

import numpy as np
import pytest

from .helpers import NORM_NAMES, close
from .reference import PER_STEP_STATISTICS, Affine, Moving, gradient_by_complex_step, gradients


def random_affine(name: str, rng: np.random.Generator, time_steps: int, features: int) -> Affine:
    shape = (time_steps, features) if name in PER_STEP_STATISTICS else (features,)
    return Affine(
        weight=rng.uniform(0.5, 1.5, shape),
        bias=None if name == "bntt" else rng.normal(size=shape),
        step_scale=rng.uniform(0.5, 1.5, time_steps) if name in ("tebn", "tab") else None,
        factor=0.7 * 0.5 if name == "tdbn" else 1.0,
    )


@pytest.mark.parametrize("name", NORM_NAMES)
def test_closed_form_gradients_equal_complex_steps(name):
    rng = np.random.default_rng(1)
    x, grad = rng.normal(size=(2, 3, 4, 2))
    affine = random_affine(name, rng, 3, 2)
    expected = gradient_by_complex_step(name, x, affine, grad)
    actual = gradients(name, x, affine, grad)
    assert actual.keys() == expected.keys()
    for key, value in expected.items():
        close(actual[key], value, 1e-12)


def test_confidence_rule_by_hand():
    """Two steps, batch of two, one feature: 0, 4 and 2, 2 have mean 2 and biased variance 2."""
    moving = Moving("care", 2, 1, 0.8)
    moving.update(np.array([[[0.0], [4.0]], [[2.0], [2.0]]]))
    error_mean, error_var = 0.8 * 2**2, 0.8 * 1**2
    gain_mean = error_mean / (error_mean + 2 / 2)
    gain_var = error_var / (error_var + 2 * 4 / 1)
    close(moving.mean, np.array([gain_mean * 2]), 1e-14)
    close(moving.var, np.array([1 + gain_var]), 1e-14)
    close(moving.error_mean, np.array([error_mean]), 1e-14)
    close(moving.error_var, np.array([error_var]), 1e-14)

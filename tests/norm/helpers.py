"""What several test files of the normalisers share."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from carebn.norm import make_norm

from .reference import Affine

# Written out, not taken from NORMS: a name that goes missing there must not go untested.
NORM_NAMES = ("care", "ca", "re", "bn", "tdbn", "bntt", "tebn", "tab")
STEP_NAMES = ("bntt", "tebn", "tab")
MOMENTUM = {"care": 0.8, "ca": 0.8, "re": 0.1, "bn": 0.1, "tdbn": 0.1, "bntt": 0.1, "tebn": 0.1, "tab": 0.1}


def drifting_batches(seed: int, count: int, time_steps: int, features: int, sizes: tuple[int, ...]) -> list[np.ndarray]:
    """[T, B, F] whose mean and spread wander from batch to batch and differ between steps and features."""
    rng = np.random.default_rng(seed)
    centre, spread = rng.normal(0, 2, features), rng.uniform(0.3, 3, features)
    by_step = rng.normal(0, 0.5, (time_steps, 1, features))
    batches = []
    for i in range(count):
        centre = centre + rng.normal(0, 0.3, features)
        spread = spread * np.exp(rng.normal(0, 0.1, features))
        noise = rng.normal(size=(time_steps, sizes[i % len(sizes)], features))
        batches.append(centre + by_step + spread * noise)
    return batches


def with_random_parameters(module: nn.Module, seed: int) -> nn.Module:
    """Parameters away from their starting values, where a wrong use of one could hide behind a 1 or a 0."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(0.5 + torch.rand(parameter.shape, generator=generator))
    return module


def random_norm(name: str, features: int, time_steps: int, seed: int = 0, **options: Any) -> nn.Module:
    """A normaliser in float64 with random parameters."""
    return with_random_parameters(make_norm(name, features, time_steps, **options).double(), seed)


def affine_of(module: nn.Module, factor: float = 1.0) -> Affine:
    """The parameters of one of our normalisers in the terms of the reference."""

    def array(name: str) -> np.ndarray | None:
        value = getattr(module, name, None)
        return None if value is None else value.detach().double().numpy().copy()

    return Affine(array("weight"), array("bias"), array("step_scale"), factor)


def snapshot(module: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in module.state_dict().items()}


def assert_unchanged(module: nn.Module, before: dict[str, Tensor]) -> None:
    """Every parameter and buffer is bit for bit what it was."""
    after = module.state_dict()
    assert after.keys() == before.keys()
    for name, value in before.items():
        assert torch.equal(after[name], value), f"{name} changed"


def close(actual: Any, expected: Any, tolerance: float = 1e-9) -> None:
    """Relative to the largest number on either side of zero, absolute below one."""
    if isinstance(actual, Tensor):
        actual = actual.detach().double().numpy()
    if isinstance(expected, Tensor):
        expected = expected.detach().double().numpy()
    assert actual.shape == expected.shape
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance * max(1.0, np.abs(expected).max()))

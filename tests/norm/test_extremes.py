"""Very large, very small and constant activations: everything stays finite, in training and in inference."""

from contextlib import nullcontext

import pytest
import torch

from carebn.kernels import pure
from carebn.norm import CaReBN, make_norm

from .helpers import NORM_NAMES

T, B, F = 4, 6, 3
PATHS = {"compiled": nullcontext, "torch": pure}


def noise():
    return torch.randn(T, B, F, generator=torch.Generator().manual_seed(0))


def by_step():
    return torch.arange(1.0, T + 1)[:, None, None].expand(T, B, F)


INPUTS = {
    "1e30": lambda: 1e30 * noise(),
    "1e-30": lambda: 1e-30 * noise(),
    "zero": lambda: torch.zeros(T, B, F),
    "constant": lambda: torch.full((T, B, F), 3.7),
    "constant 1e30": lambda: torch.full((T, B, F), 1e30),
    "constant 1e-30": lambda: torch.full((T, B, F), 1e-30),
    "constant in the batch, not in time": lambda: by_step().clone(),
    "constant in the batch, 1e30 in time": lambda: 1e30 * by_step(),
    "around 1e30": lambda: 1e30 + 1e28 * noise(),
    "one feature of each kind": lambda: noise() * torch.tensor([1e30, 1e-30, 0.0]),
    "one outlier": lambda: torch.cat([noise()[:, 1:], torch.full((T, 1, F), 1e30)], 1),
    "1e18, whose fourth power leaves the range": lambda: 1e18 * noise(),
}


def assert_finite(**values):
    for name, value in values.items():
        assert torch.isfinite(value).all(), f"{name} is not finite"


def forward_and_backward(module, x):
    x = x.clone().requires_grad_()
    module.zero_grad()
    y = module(x)
    y.mul(torch.linspace(-1, 1, y.numel()).view_as(y)).sum().backward()
    assert_finite(output=y, input_gradient=x.grad)
    assert_finite(**{f"gradient_{name}": p.grad for name, p in module.named_parameters() if p.grad is not None})


@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", [*NORM_NAMES, "none"])
def test_everything_stays_finite(name, path, kind):
    """From a fresh module, again when the extreme is in the statistics, and when they have to come back from it."""
    module = make_norm(name, F, T)
    x = INPUTS[kind]()
    assert_finite(test_input=x)
    with PATHS[path]():
        for batch in (x, x, noise(), x):
            forward_and_backward(module.train(), batch)
            assert_finite(**module.state_dict())
            forward_and_backward(module.eval(), batch)
            forward_and_backward(module.eval(), noise())
    if name != "none":
        assert (module.running_var >= 0).all()


@pytest.mark.parametrize("name", NORM_NAMES)
def test_a_constant_feature_comes_out_as_beta(name):
    """It carries no information, so nothing but the offset may pass."""
    module = make_norm(name, F, T)
    y = module(torch.full((T, B, F), 3.0))
    beta = torch.zeros(()) if module.bias is None else module.bias[..., :1].mean()
    torch.testing.assert_close(y, beta.expand_as(y), rtol=0, atol=1e-4)


@pytest.mark.parametrize("name", NORM_NAMES)
@pytest.mark.parametrize("size", [1e10, 1e15, 1e30])
def test_a_large_unit_does_not_change_the_output(name, size):
    """Normalising undoes the unit of the input; beyond ε nothing of it is left, not even at 1e30."""
    module = make_norm(name, F, T)
    expected = module.double()(noise().double() * 1e6)
    torch.testing.assert_close(module.float()(noise() * size).double(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("path", PATHS)
def test_statistics_recover_after_an_extreme_batch(path):
    """CaRe-BN's confidence follows the jump back within a few batches, instead of being stuck at the limit."""
    module = CaReBN(F)
    with PATHS[path]():
        module(1e30 * noise())
        for _ in range(200):
            module(noise())
    torch.testing.assert_close(module.running_mean, noise().mean((0, 1)), rtol=0, atol=0.2)
    torch.testing.assert_close(module.running_var, noise().var((0, 1), correction=0), rtol=0.2, atol=0)

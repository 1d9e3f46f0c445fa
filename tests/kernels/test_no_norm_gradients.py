"""Actors without a normaliser: their gradients do not depend on what the memory held before."""

import copy

import pytest
import torch

from carebn.kernels import pure
from carebn.network import SpikingActor


def gradients(network, obs):
    return torch.autograd.grad(network(obs).square().sum(), list(network.parameters()))


@pytest.mark.parametrize("garbage", [-1.0, float("nan"), -1e300])
def test_freed_memory_does_not_enter_gradients(garbage):
    torch.manual_seed(0)
    network = SpikingActor(4, 2, norm="none", hidden=(64, 40))
    obs = torch.randn(128, 4)
    with pure():
        expected = gradients(copy.deepcopy(network), obs)
    for _ in range(20):
        left = [torch.full((2, columns), garbage, dtype=torch.float64) for columns in (64, 40, 24, 20)]
        del left
        for mine, theirs in zip(gradients(network, obs), expected, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=2e-3, atol=2e-4 * theirs.abs().max().item() + 1e-5)

"""Shared by the kernel tests: random cases, and one call that records everything a layer produces."""

import copy
from contextlib import contextmanager, nullcontext

import numpy as np
import pytest
import torch

from carebn.kernels import pure
from carebn.kernels.pool import Kernel
from carebn.network import SpikingActor, SpikingLayer
from carebn.network.inference import FastActor
from carebn.neuron import NEURONS, SURROGATES
from carebn.norm import NORMS

ALL_NEURONS = list(NEURONS)
ALL_SURROGATES = list(SURROGATES)
ALL_NORMS = list(NORMS)
NORMALISERS = [name for name in ALL_NORMS if name != "none"]
KINDS_OF_NORM = [name for name in ALL_NORMS if name not in ("ca", "re")]  # those two differ in re-calibration alone


@contextmanager
def kernels_called():
    """The names of the kernels that run meanwhile, in order."""
    names, call = [], Kernel.__call__

    def counted(kernel, *arguments, **fields):
        names.append(kernel.name)
        return call(kernel, *arguments, **fields)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Kernel, "__call__", counted)
        yield names


def max_steps(neuron: str) -> int:
    return 8 if neuron == "dn-authors" else 16


def random(*shape, seed=0, dtype=torch.float64):
    """Standard normal numbers, the same for both precisions but for rounding."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def random_spikes(*shape, seed=0, dtype=torch.float64):
    return (random(*shape, seed=seed) > 0.3).to(dtype)


def make_layer(norm, neuron, inputs=6, outputs=13, steps=5, seed=0, dtype=torch.float64, **norm_options):
    """A layer with every parameter away from its starting value, so that no gradient is zero by symmetry."""
    torch.manual_seed(seed)
    layer = SpikingLayer(inputs, outputs, norm=norm, neuron=neuron, time_steps=steps, norm_options=norm_options)
    layer.to(dtype)
    with torch.no_grad():
        layer.linear.weight.mul_(2)
        for parameter in layer.norm.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return layer


def evaluate(layer, x, *, compiled, stimulation=None, weights=None):
    """Run a copy of the layer forwards and backwards; the spikes, all gradients by name, and the state afterwards."""
    layer = copy.deepcopy(layer)
    x = x.detach().clone().requires_grad_()
    if stimulation is not None:
        stimulation = stimulation.detach().clone().requires_grad_()
    with nullcontext() if compiled else pure():
        spikes = layer(x, stimulation)
        if weights is None:
            weights = random(*spikes.shape, seed=99, dtype=spikes.dtype)
        (spikes * weights).sum().backward()
    gradients = {name: p.grad for name, p in layer.named_parameters()}
    gradients["x"] = x.grad
    if stimulation is not None:
        gradients["stimulation"] = stimulation.grad
    return spikes.detach(), gradients, layer.state_dict()


def assert_near(actual, expected, rel):
    """Equal up to ``rel`` of the largest entry: single entries may cancel to nothing."""
    assert actual.shape == expected.shape
    assert actual.dtype == expected.dtype
    size = expected.abs().max().item() if expected.numel() else 0.0
    torch.testing.assert_close(actual, expected, rtol=rel, atol=rel * max(size, 1e-30))


def assert_same_run(actual, expected, rel=1e-10, skip=()):
    """Spikes to the last bit; gradients and state up to rounding."""
    assert 0 < expected[0].mean() < 1, "a case without spikes, or of nothing else, tells nothing"
    assert torch.equal(actual[0], expected[0])
    assert actual[1].keys() == expected[1].keys()
    for name, gradient in expected[1].items():
        if name not in skip:
            assert gradient is not None, name
            assert_near(actual[1][name], gradient, rel)
    assert actual[2].keys() == expected[2].keys()
    for name, value in expected[2].items():
        assert_near(actual[2][name].double(), value.double(), rel)


# --- whole actors, on the path that the router chooses and on the pure one -------------------------------------------

OBS = torch.randn(128, 4, generator=torch.Generator().manual_seed(1))


def make_actor(seed=0, **options):
    """Weights on a coarse grid, so that no product has rounding; statistics that are nobody's starting values."""
    torch.manual_seed(seed)
    actor = SpikingActor(4, 2, **{"hidden": (40, 24)} | options)
    with torch.no_grad():
        for layer in actor.layers:
            layer.linear.weight.copy_((layer.linear.weight * 2**8).round() / 2**8)
    with pure():
        for i in range(3):
            actor(torch.randn(64, 4, generator=torch.Generator().manual_seed(i)))
    return actor


def trained(network, obs=OBS):
    """Action, gradients and state after one training step of a copy."""
    network = copy.deepcopy(network)
    action = network(obs)
    parameters = [p for p in network.parameters() if p.requires_grad]
    gradients = torch.autograd.grad(action.square().sum(), parameters, allow_unused=True)
    return [action.detach(), *(g for g in gradients if g is not None), *network.state_dict().values()]


def assert_same(ours, theirs):
    """Up to rounding; a gradient that cancels to nothing is measured by what it cancels from."""
    assert len(ours) == len(theirs)
    finite = [t[torch.isfinite(t)] for t in theirs if t.is_floating_point()]
    largest = max(t.abs().max().item() for t in finite if t.numel())
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5 * max(largest, 1.0), equal_nan=True)


def assert_trains_as_pure(network, obs=OBS):
    ours = trained(network, obs)
    with pure():
        theirs = trained(network, obs)
    assert_same(ours, theirs)


def assert_acts_as_pure(network, fast=None):
    obs = OBS[:40].numpy()
    fast = fast or FastActor(network)
    ours = fast(obs)
    with pure(), torch.no_grad():
        theirs = copy.deepcopy(network).eval()(OBS[:40]).numpy()
    odd = (~np.isclose(ours, theirs, rtol=1e-4, atol=1e-4, equal_nan=True)).any(1).sum()
    assert odd <= 1  # one potential may lie within rounding of its threshold

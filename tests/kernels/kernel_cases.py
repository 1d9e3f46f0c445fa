"""Shared by the kernel tests: random cases, and one call that records everything a layer produces."""

import copy
from contextlib import contextmanager, nullcontext

import pytest
import torch

from carebn.kernels import pure
from carebn.kernels.pool import Kernel
from carebn.network import SpikingLayer
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

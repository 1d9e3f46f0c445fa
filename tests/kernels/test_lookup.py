"""Products with spikes by table look-up, against float64 products, and inside layers large enough to use it."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from carebn.kernels import pure
from carebn.kernels.products import spike_product, weight_gradient
from carebn.network import SpikingLayer


def spikes(samples: int, inputs: int, rate: float, seed: int = 0) -> torch.Tensor:
    return (torch.rand(samples, inputs, generator=torch.Generator().manual_seed(seed)) < rate).float()


def normal(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def assert_close_to_exact(result: torch.Tensor, exact: torch.Tensor, terms: int) -> None:
    """Within the rounding of a float32 sum of so many terms."""
    assert result.dtype == torch.float32
    bound = 1e-7 * terms * max(1.0, exact.abs().max().item())
    assert (result.double() - exact).abs().max() < bound


@settings(max_examples=40, deadline=None)
@given(
    samples=st.integers(512, 700),
    inputs=st.integers(64, 300),
    outputs=st.integers(8, 320),
    rate=st.sampled_from([0.0, 0.05, 0.2, 0.5, 0.9, 1.0]),
    with_bias=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_product_and_weight_gradient(samples, inputs, outputs, rate, with_bias, seed):
    x, weight, grad = spikes(samples, inputs, rate, seed), normal(outputs, inputs), normal(samples, outputs, seed=2)
    bias = normal(outputs, seed=3) if with_bias else None
    z, binary = spike_product(x, weight, bias)
    exact = x.double() @ weight.double().t() + (bias.double() if bias is not None else 0)
    assert binary == (outputs >= 16)  # narrower layers are left to the dense product
    assert_close_to_exact(z, exact, inputs)
    result = weight_gradient(grad, x, True)
    assert_close_to_exact(result, grad.double().t() @ x.double(), samples)


@pytest.mark.parametrize("odd", [0.5, 2.0, -1.0, 1e-30, float("nan"), float("inf")])
@pytest.mark.parametrize("at", [(0, 0), (511, 69), (300, 33)])
def test_input_that_is_not_a_spike_takes_the_dense_product(odd, at):
    x, weight = spikes(512, 70, 0.5), normal(64, 70)
    x[at] = odd
    z, binary = spike_product(x, weight, None)
    assert not binary
    torch.testing.assert_close(z, x @ weight.t(), equal_nan=True)


def test_same_result_on_any_number_of_threads():
    x, weight, grad = spikes(1280, 270, 0.2), normal(256, 270), normal(1280, 256)
    before = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2, 3, 5):
            torch.set_num_threads(threads)
            results.append((spike_product(x, weight, None)[0], weight_gradient(grad, x, True)))
    finally:
        torch.set_num_threads(before)
    for product, gradient in results[1:]:
        assert torch.equal(product, results[0][0])
        assert torch.equal(gradient, results[0][1])


def test_strided_spikes():
    x, weight = spikes(512, 140, 0.3)[:, ::2], normal(64, 70)
    z, binary = spike_product(x, weight, None)
    assert binary
    assert_close_to_exact(z, x.double() @ weight.double().t(), 70)


@pytest.mark.parametrize("training", [True, False])
def test_large_layer_equals_the_pure_one(training):
    """Rounding may differ, so that a spike within it of the threshold may too; nothing more."""
    torch.manual_seed(4)
    layer = SpikingLayer(270, 256, norm="care", neuron="clif")
    with torch.no_grad():
        layer(spikes(1280, 270, 0.2).view(5, 256, 270))
    layer.train(training)
    twin = copy.deepcopy(layer)
    x = spikes(1280, 270, 0.2, seed=5).view(5, 256, 270)
    pull = normal(5, 256, 256, seed=6)

    def run(one):
        out = one(x)
        if training:
            (out * pull).sum().backward()
        return out

    if training:
        ours = run(layer)
        with pure():
            theirs = run(twin)
        for (name, a), b in zip(layer.named_parameters(), twin.parameters(), strict=True):
            if name != "linear.bias":
                assert (a.grad - b.grad).norm() < 2e-2 * b.grad.norm(), name
        torch.testing.assert_close(layer.norm.running_mean, twin.norm.running_mean, rtol=1e-5, atol=1e-6)
    else:
        with torch.no_grad():
            ours = run(layer)
            with pure():
                theirs = run(twin)
    assert (ours != theirs).float().mean() < 1e-5

"""The deep spiking Q-network against a slow one that repeats its input at every step."""

import copy

import pytest
import torch

from carebn.kernels import fused, pure
from carebn.network import SpikingQNetwork
from carebn.network.qnetwork import ANNQNetwork
from carebn.neuron import NEURONS
from carebn.norm import NORMS


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def make(**options):
    torch.manual_seed(0)
    return SpikingQNetwork(7, 4, **({"hidden": (12, 9)} | options)).double()


def slow_q(network, obs, steps):
    """The observation once more at every step; products, neurons and the membrane step by step."""
    inputs = [obs] * steps
    for layer in network.layers:
        products = [x @ layer.linear.weight.t() + layer.linear.bias for x in inputs]
        currents = layer.norm(torch.stack(products))
        state = layer.neuron.initial_state(currents[0])
        inputs = []
        for current in currents:
            spike, state = layer.neuron.step(current, state)
            inputs.append(spike)
    q = 0
    for spikes in inputs:
        q = q + spikes @ network.readout.weight.t() + network.readout.bias
    return q


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("norm", NORMS)
def test_equals_the_slow_network(norm, training):
    """Values, gradients and moving statistics: multiplying once instead of T times changes nothing."""
    network = make(norm=norm)
    with pure():
        network(random(8, 7))
    network.train(training)
    twin = copy.deepcopy(network)
    obs = random(9, 7, seed=1)
    q = network(obs)
    with pure():
        expected = slow_q(twin, obs, 5)
        expected.square().sum().backward()
    q.square().sum().backward()
    assert q.shape == (9, 4)
    torch.testing.assert_close(q, expected, rtol=1e-10, atol=1e-12)
    theirs = dict(twin.named_parameters())
    for name, parameter in network.named_parameters():
        size = theirs[name].grad.abs().max().item()
        torch.testing.assert_close(parameter.grad, theirs[name].grad, rtol=1e-7, atol=max(1e-9 * size, 1e-11))
    for name, value in network.state_dict().items():
        torch.testing.assert_close(value, twin.state_dict()[name], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("neuron", NEURONS)
@pytest.mark.parametrize("T", [1, 3, 8])
def test_every_neuron_and_number_of_steps(neuron, T):
    network = make(neuron=neuron, time_steps=T)
    twin = copy.deepcopy(network)
    obs = random(9, 7)
    with pure():
        expected = slow_q(twin, obs, T)
    torch.testing.assert_close(network(obs), expected, rtol=1e-10, atol=1e-12)


def test_defaults():
    """Two layers of 256 LIF with CaRe-BN, five steps; no norm on the output."""
    network = SpikingQNetwork(128, 6)
    assert [layer.linear.out_features for layer in network.layers] == [256, 256]
    assert [type(layer.neuron).__name__ for layer in network.layers] == ["LIF", "LIF"]
    assert [type(layer.norm).__name__ for layer in network.layers] == ["CaReBN", "CaReBN"]
    assert [layer.time_steps for layer in network.layers] == [5, 5]
    assert {name for name, _ in network.readout.named_parameters()} == {"weight", "bias"}


def test_the_first_product_is_computed_once(monkeypatch):
    """The input is the same at every step; five products would be five times the work."""
    network = make()
    rows = []
    multiply = fused.spike_product

    def counted(x, weight, bias):
        rows.append(x.shape[0])
        return multiply(x, weight, bias)

    monkeypatch.setattr(fused, "spike_product", counted)
    network(random(9, 7))
    assert rows == [9, 45]


def test_bytes_are_divided_by_255():
    network = make().eval()
    ram = torch.randint(0, 256, (9, 7), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    assert torch.equal(network(ram), network(ram.double() / 255))
    assert not torch.equal(network(ram), network(ram.double()))


def test_raw_bytes():
    network = make(raw_bytes=True).eval()
    ram = torch.randint(0, 256, (9, 7), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    assert torch.equal(network(ram), network(ram.double()))
    assert not torch.equal(network(ram), network(ram.double() / 255))


def test_numbers_are_taken_as_they_are():
    """Only bytes are scaled: an environment that hands out floats has scaled them itself."""
    plain, raw = make().eval(), make(raw_bytes=True).eval()
    obs = random(9, 7) * 255
    assert torch.equal(plain(obs), raw(obs))
    assert torch.equal(plain(obs.float()), raw(obs.float()))


@pytest.mark.parametrize("shape", [(9, 6), (7,), (5, 9, 7)])
def test_an_observation_of_the_wrong_shape_is_refused(shape):
    with pytest.raises(ValueError, match=r"expected observations of shape \[B, 7\]"):
        make()(torch.zeros(shape))


def test_inference_changes_nothing():
    network = make()
    network(random(8, 7))
    network.eval()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    network(random(8, 7, seed=1)).sum().backward()
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


# --- its ordinary counterpart ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("norm", ["none", "bn"])
@pytest.mark.parametrize("training", [True, False])
def test_ann_q_network_by_the_formula(norm, training):
    """W₃·relu(N(W₂·relu(N(W₁·o + b₁)) + b₂)) + b₃, with N the norm at γ = 1 and β = 0, or nothing."""
    torch.manual_seed(0)
    network = ANNQNetwork(7, 4, hidden=(12, 9), norm=norm).double().train(training)
    first, second, head = (m for m in network.modules() if isinstance(m, torch.nn.Linear))

    def normalise(z):
        if norm == "none":
            return z
        # in inference the moving statistics still are mean 0 and variance 1
        mean, var = (z.mean(0), z.var(0, correction=0)) if training else (0, torch.ones(()))
        return (z - mean) / (var + 1e-5).sqrt()

    obs = random(9, 7)
    x = torch.relu(normalise(obs @ first.weight.t() + first.bias))
    x = torch.relu(normalise(x @ second.weight.t() + second.bias))
    expected = x @ head.weight.t() + head.bias
    torch.testing.assert_close(network(obs), expected, rtol=1e-7, atol=1e-8)


def test_ann_q_network_scales_bytes_alike():
    torch.manual_seed(0)
    network = ANNQNetwork(7, 4, hidden=(12,))
    ram = torch.randint(0, 256, (9, 7), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(network(ram), network(ram.float() / 255))
    network.raw_bytes = True
    torch.testing.assert_close(network(ram), network(ram.float()))
    with pytest.raises(ValueError, match=r"shape \[B, 7\]"):
        network(torch.zeros(9, 6))

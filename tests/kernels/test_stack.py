"""A whole actor on packed spikes, against the same actor layer by layer and on the pure-torch path.

Weights are multiples of 2⁻⁸, so that products have no rounding and both ways must give the same spikes exactly.
"""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from carebn import router
from carebn.kernels import pure, stack
from carebn.network import SpikingActor
from carebn.neuron import CLIF, LIF
from carebn.neuron.surrogate import Rectangle, Triangle


def actor(obs_dim=4, action_dim=2, seed=0, **options) -> SpikingActor:
    torch.manual_seed(seed)
    network = SpikingActor(obs_dim, action_dim, **options)
    with torch.no_grad():
        for layer in network.layers:
            layer.linear.weight.copy_((layer.linear.weight * 2**8).round() / 2**8)
            if isinstance(layer.norm, torch.nn.Module) and hasattr(layer.norm, "weight"):
                layer.norm.weight.uniform_(0.3, 1.0)
                layer.norm.bias.uniform_(-0.2, 0.4)
    return network


def observations(batch: int, obs_dim: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(batch, obs_dim, generator=torch.Generator().manual_seed(seed))


def stacked(network, obs) -> bool:
    return not isinstance(router.plan_stack(network, network.encoder.stimulation(obs)), str)


@pytest.fixture
def layer_by_layer(monkeypatch):
    """Calls a network with the stack switched off; also says that it was on before."""

    def call(network, obs):
        assert stacked(network, obs)
        with monkeypatch.context() as patched:
            patched.setattr(router, "FEWEST_ROWS", 10**9)
            return network(obs)

    return call


def gradients(network, action):
    weights = torch.linspace(-0.3, 1, action.numel()).view_as(action)
    return torch.autograd.grad((action * weights).sum(), list(network.parameters()))


def assert_same_training(a, b, obs, layer_by_layer):
    one, other = a(obs), layer_by_layer(b, obs)
    assert torch.equal(one, other)
    for (name, _), x, y in zip(a.named_parameters(), gradients(a, one), gradients(b, other), strict=True):
        torch.testing.assert_close(x, y, rtol=1e-4, atol=1e-4 * y.abs().max().item() + 1e-5, msg=name)
    for name, x in a.state_dict().items():
        assert torch.equal(x, b.state_dict()[name]), name


@settings(max_examples=25, deadline=None)
@given(
    obs_dim=st.integers(1, 12),
    action_dim=st.integers(1, 9),
    hidden=st.lists(st.integers(8, 150), min_size=1, max_size=3),
    batch=st.integers(2, 200),
    steps=st.integers(1, 9),
    norm=st.sampled_from(["care", "bn", "none"]),
    neuron=st.sampled_from([LIF, CLIF]),
    surrogate=st.sampled_from([Rectangle(0.5), Rectangle(0.2), Triangle(1.0)]),
    seed=st.integers(0, 1000),
)
def test_training_equals_layer_by_layer(obs_dim, action_dim, hidden, batch, steps, norm, neuron, surrogate, seed):
    batch = max(batch, -(-256 // steps))  # fewer rows do not go through the stack
    options = {"norm": norm, "neuron": neuron(surrogate=surrogate), "hidden": hidden, "time_steps": steps}
    network = actor(obs_dim, action_dim, seed, **options)
    other = copy.deepcopy(network)
    obs = observations(batch, obs_dim, seed)
    with pytest.MonkeyPatch.context() as patch:

        def call(network, obs):
            with patch.context() as patched:
                patched.setattr(router, "FEWEST_ROWS", 10**9)
                return network(obs)

        assert stacked(network, obs)
        for _ in range(2):
            assert_same_training(network, other, obs, call)


@pytest.mark.parametrize("norm", ["care", "bn", "none", "tdbn"])
@pytest.mark.parametrize("neuron", ["lif", "clif"])
def test_inference_equals_the_pure_path(norm, neuron):
    network = actor(5, 3, norm=norm, neuron=neuron, hidden=(70, 41))
    obs = observations(100, 5)
    for i in range(3):
        network(observations(100, 5, seed=i))  # moving statistics of its own
    network.eval()
    with torch.no_grad():
        assert stacked(network, obs)
        mine = network(obs)
        with pure():
            assert torch.equal(network(obs), mine)


@pytest.mark.parametrize("norm", ["care", "bn", "none"])
def test_gradients_equal_the_pure_path(norm):
    network = actor(6, 2, norm=norm, hidden=(64, 48))
    other = copy.deepcopy(network)
    obs = observations(128, 6)
    mine = network(obs)
    with pure():
        theirs = other(obs)
        expected = gradients(other, theirs)
    torch.testing.assert_close(mine, theirs)
    for x, y in zip(gradients(network, mine), expected, strict=True):
        torch.testing.assert_close(x, y, rtol=2e-3, atol=2e-4 * y.abs().max().item() + 1e-5)


def test_same_result_on_any_number_of_threads():
    before = torch.get_num_threads()
    obs = observations(256, 11)
    results = []
    try:
        for threads in (1, 2, 3, 5):
            torch.set_num_threads(threads)
            network = actor(11, 3, hidden=(256, 100))
            action = network(obs)
            results.append((action, *network.state_dict().values(), *gradients(network, action)))
    finally:
        torch.set_num_threads(before)
    for result in results[1:]:
        for x, y in zip(result, results[0], strict=True):
            torch.testing.assert_close(x, y, rtol=1e-5, atol=1e-7)
        assert torch.equal(result[0], results[0][0])


def test_moving_statistics_do_not_depend_on_gradients_being_wanted():
    network = actor()
    other = copy.deepcopy(network)
    obs = observations(100, 4)
    network(obs)
    with torch.no_grad():
        other(obs)
    for x, y in zip(network.state_dict().values(), other.state_dict().values(), strict=True):
        assert torch.equal(x, y)


@pytest.mark.parametrize("where", ["decoder", "layers.0", "layers.1.linear", "layers.2.norm", "layers.1.neuron"])
def test_a_network_that_is_watched_runs_layer_by_layer(where, layer_by_layer):
    network = actor()
    obs = observations(100, 4)
    expected = layer_by_layer(copy.deepcopy(network), obs)
    calls = []
    network.get_submodule(where).register_forward_hook(lambda *_: calls.append(1))
    assert torch.equal(network(obs), expected)
    assert calls == [1]


def test_what_a_stack_does_not_cover():
    obs = observations(100, 4)

    def covered(network, obs=obs):
        return stacked(network, obs)

    assert covered(actor())
    assert not covered(actor(), obs[:10])
    assert not covered(actor(neuron="dn"))
    assert not covered(actor(norm="tebn"))
    assert not covered(actor(readout="max-membrane"))
    assert not covered(actor(encoder_options={"coding": "poisson"}))
    assert not covered(actor(intralayer="intra"))
    assert not covered(actor().eval())  # gradients through moving statistics
    assert not covered(actor().double(), obs.double())


def test_non_finite_weights_are_refused_and_change_nothing():
    network = actor()
    with torch.no_grad():
        network.layers[0].linear.weight[3, 2] = float("nan")
    before = {name: x.clone() for name, x in network.layers[0].state_dict().items()}
    with pytest.raises(ValueError, match="NaN or infinity in a training batch"):
        network(observations(100, 4))
    for name, x in network.layers[0].state_dict().items():
        torch.testing.assert_close(x, before[name], rtol=0, atol=0, equal_nan=True)


def test_a_batch_of_one_is_refused():
    network = actor(time_steps=300)
    with pytest.raises(ValueError, match="needs a batch of at least two"):
        network(observations(1, 4))


def test_second_derivatives_are_refused():
    network = actor()
    action = network(observations(100, 4))
    with pytest.raises(RuntimeError, match="first derivatives only"):
        torch.autograd.grad(action.sum(), list(network.parameters()), create_graph=True)


def test_cumulative_moving_statistics(layer_by_layer):
    """A rule that the kernel leaves to the normaliser, whose count of values matters."""
    network = actor(norm="bn", norm_options={"momentum": None})
    other = copy.deepcopy(network)
    for seed in range(3):
        obs = observations(100, 4, seed)
        network(obs)
        layer_by_layer(other, obs)
    for name, x in network.state_dict().items():
        assert torch.equal(x, other.state_dict()[name]), name


def test_the_map_of_moving_statistics_is_the_normalisers_own():
    """To the last bit, so that a potential on its threshold goes the same way."""
    network = actor(hidden=(100,))
    network(observations(100, 4))
    network.eval()
    stimulation = network.encoder.stimulation(observations(100, 4)).detach()
    with torch.no_grad():
        layer = router.plan_stack(network, stimulation)[0]
        spikes = stack._encode(stimulation, 5, 0.999, 1.0)
        _, memory = stack._forward(layer, spikes, 5, 100, keep=True)
        scale, shift = network.layers[0].norm.moving_scale_shift()
    assert torch.equal(memory.maps[0, :100], scale)
    assert torch.equal(memory.maps[1, :100], shift)

"""Integer weights: what they are, and that the neurons go on firing as they did."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from deploy_cases import observations, spiking_actor, spiking_q_network

from carebn import deploy, load
from carebn.deploy import DeployedPolicy, PolicyGraph
from carebn.deploy.folding import fold
from carebn.deploy.graph import Encoder, Layer, Neuron, Readout
from carebn.deploy.quantise import LEVELS, quantised

TRAINED = Path(__file__).parent / "trained_clif"


def nearest(network, last):
    """Every weight at its nearest level, the last of which stands for the largest weight of its neuron."""

    def rounded(layer):
        factor = np.abs(layer.weight).max(0) / last
        return replace(layer, weight=np.rint(layer.weight / factor) * factor)

    return replace(network, layers=tuple(map(rounded, network.layers)))


def one_layer(weight, bias, decay=0.5, threshold=1.0):
    """Inputs are what the observation says, at each of two steps; LIF neurons, each read out by itself."""
    weight = np.array(weight, float)
    inputs, outputs = weight.shape
    encoder = Encoder(
        "direct", False, "none", 0.0, np.zeros(inputs), np.ones(inputs), np.empty((inputs, 0)), np.empty((inputs, 0))
    )
    neuron = Neuron("lif", {"decay": decay, "v_threshold": threshold})
    layer = Layer(weight, np.array([bias], float), None, neuron)
    return PolicyGraph(2, encoder, (layer,), Readout("sum", np.eye(outputs), np.zeros(outputs), np.ones(2)), None)


@pytest.mark.parametrize("weights", LEVELS)
@pytest.mark.parametrize("make", [spiking_actor, spiking_q_network])
def test_weights_are_whole_multiples_of_a_factor_for_each_neuron(make, weights):
    network = quantised(fold(make()), weights, observations(300))
    for layer in network.layers:
        assert layer.integers.levels.dtype == weights
        assert layer.integers.factor.shape == (layer.outputs,)
        assert np.array_equal(layer.weight, layer.integers.levels * layer.integers.factor)
        assert np.abs(layer.integers.levels.astype(int)).max() <= LEVELS[weights]
        for real in (layer.integers.factor, layer.bias):
            assert np.array_equal(real, real.astype(np.float32))


def test_each_neuron_has_its_own_factor():
    """A neuron with weights a thousand times smaller loses nothing by its neighbour; one without any stays silent."""
    network = one_layer([[1.27, 0.00127, 0], [-0.5, -0.0005, 0]], [0, 0, 0])
    layer = quantised(network, "int16", observations(200, 2)).layers[0]
    np.testing.assert_allclose(layer.weight, network.layers[0].weight, rtol=1e-4)
    assert not layer.integers.levels[:, 2].any()


def test_inputs_that_fire_together_carry_each_others_error():
    """Twenty inputs that are always equal, with weights of 0.4 levels: alone they vanish, together they are eight."""
    weight = np.full((21, 1), 0.4)
    weight[20] = 127  # so that a level is one
    x = np.random.default_rng(0).standard_normal((400, 2)).astype(np.float32)
    obs = np.column_stack([np.repeat(x[:, :1], 20, 1), x[:, 1]])
    layer = quantised(one_layer(weight, [0.0], threshold=1e6), "int8", obs).layers[0]
    assert layer.weight[:20].sum() == pytest.approx(8, abs=0.6)
    assert not nearest(one_layer(weight, [0.0]), 127).layers[0].weight[:20].any()


def test_a_potential_on_its_threshold_stays_on_its_side():
    """Both inputs together come to just above the threshold, every time; rounding must not silence the neuron."""
    network = one_layer([[0.3], [0.7 + 1e-7]], [0.0])
    obs = np.concatenate([np.ones((100, 2)), observations(100, 2) * 0.1]).astype(np.float32)
    before = DeployedPolicy(network, compiled=False).trace(obs).spikes[1]
    for weights in LEVELS:
        after = DeployedPolicy(quantised(network, weights, obs), compiled=False).trace(obs).spikes[1]
        assert np.array_equal(before, after)
    assert before[:, :100].all()


@pytest.mark.parametrize(("weights", "share"), [("int8", 0.8), ("int16", 0.5)])
def test_closer_to_the_trained_policy_than_the_nearest_levels(weights, share):
    """A trained policy, on observations along its own way that the rounding did not see."""
    network = fold(load(TRAINED).network)
    rng = np.random.default_rng(0)
    spread = np.array([0.3, 0.1, 0.1, 0.02, 0.02, 0.5, 1.0, 1.5, 0.1, 0.1, 0.1])
    seen, obs = (np.array([0] * 3 + [1, 1] + [0] * 6) + spread * rng.standard_normal((n, 11)) for n in (4000, 2000))
    expected = DeployedPolicy(network).values(obs)

    def error(rounded):
        return np.sqrt(np.mean((DeployedPolicy(rounded).values(obs) - expected) ** 2))

    assert error(quantised(network, weights, seen)) < share * error(nearest(network, LEVELS[weights]))


@pytest.mark.parametrize("norm", ["care", "tab"])
def test_as_a_file(norm, tmp_path):
    """The archive holds the integers themselves, and gives back the same policy."""
    network = quantised(fold(spiking_actor(norm)), "int8", observations(300))
    network.save(tmp_path / "policy.npz")
    with np.load(tmp_path / "policy.npz") as file:
        assert file["layers.0.levels"].dtype == np.int8
        assert "layers.0.weight" not in file
    for compiled in (False, True):
        policy = deploy.load(tmp_path / "policy.npz", compiled)
        expected = DeployedPolicy(network, compiled).values(observations())
        assert np.array_equal(policy.values(observations()), expected)
    assert policy.network.layers[0].integers.levels.dtype == np.int8
    assert policy.info["weights"] == "int8"


def test_integers_of_other_weights_are_refused():
    layer = quantised(fold(spiking_actor()), "int8", observations(100)).layers[0]
    with pytest.raises(ValueError, match="the weights of a layer are not those of its integers"):
        replace(layer, weight=layer.weight * 1.001)

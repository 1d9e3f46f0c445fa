"""The folded policy against the network with its normalisers: every spike, every action."""

import copy

import numpy as np
import pytest
import torch
from deploy_cases import (
    OBS,
    ann_actor,
    ann_q_network,
    byte_observations,
    observations,
    spiking_actor,
    spiking_q_network,
    unfolded_spikes,
    unfolded_values,
)
from torch import nn

from carebn.deploy import DeployedPolicy
from carebn.deploy.folding import fold
from carebn.network import SpikingActor
from carebn.neuron import CLIF, NEURONS, make_neuron
from carebn.norm import NORMS


def assert_same_spikes(network, obs, compiled=True):
    """Every spike of every layer is the unfolded network's, and so are the values, from both engines."""
    folded = fold(network, byte_observations=obs.dtype == np.uint8)
    trace = DeployedPolicy(folded, compiled=False).trace(obs)
    expected = unfolded_spikes(network, obs)
    assert len(trace.spikes) == len(expected)
    for ours, theirs in zip(trace.spikes[1:], expected[1:], strict=True):
        assert ours.shape == theirs.shape
        assert np.array_equal(ours, theirs), f"{int((ours != theirs).sum())} of {ours.size} spikes differ"
    np.testing.assert_allclose(trace.spikes[0], expected[0], atol=1e-14)
    values = unfolded_values(network, obs)
    np.testing.assert_allclose(trace.values, values, rtol=1e-12, atol=1e-12)
    if compiled:
        np.testing.assert_allclose(DeployedPolicy(folded, compiled=True).values(obs), values, rtol=1e-12, atol=1e-12)
    return trace


@pytest.mark.parametrize("neuron", NEURONS)
@pytest.mark.parametrize("norm", NORMS)
def test_every_normaliser_and_neuron_spike_for_spike(norm, neuron):
    trace = assert_same_spikes(spiking_actor(norm, neuron), observations(1000))
    rates = [spikes.mean() for spikes in trace.spikes]
    assert all(0.01 < rate < 0.99 for rate in rates), f"firing rates {rates} show too little"
    assert len(np.unique(trace.values, axis=0)) > 100


@pytest.mark.parametrize("neuron", NEURONS)
@pytest.mark.parametrize("norm", NORMS)
def test_q_networks_spike_for_spike(norm, neuron):
    assert_same_spikes(spiking_q_network(norm, neuron), observations(1000))


@pytest.mark.parametrize("raw_bytes", [False, True])
def test_byte_observations(raw_bytes):
    """Divided by 255 exactly where the network does so."""
    network = spiking_q_network(make=byte_observations, raw_bytes=raw_bytes)
    assert_same_spikes(network, byte_observations(1000))
    ann = ann_q_network(make=byte_observations, raw_bytes=raw_bytes)
    ours = DeployedPolicy(fold(ann, byte_observations=True)).values(byte_observations())
    np.testing.assert_allclose(ours, unfolded_values(ann, byte_observations()), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("readout", ["membrane", "rate"])
@pytest.mark.parametrize("reset", ["spike", "threshold"])
@pytest.mark.parametrize("observation", ["tanh", "raw"])
@pytest.mark.parametrize("coding", ["deterministic", "analogue"])
def test_options_of_encoder_and_decoder(coding, observation, reset, readout):
    """Seven steps, so that subtracting 0.999 or 1 makes a difference."""
    encoder = {"coding": coding, "observation": observation, "reset": reset, "threshold": 0.6}
    assert_same_spikes(spiking_actor(readout=readout, encoder_options=encoder, time_steps=7), observations(300))


def test_standardised_observations():
    """The z-score has to be taken as in float32, where it was trained; the rest is compared in float64."""
    actor = spiking_actor(encoder_options={"observation": "zscore"})
    zscore = actor.encoder.zscore
    zscore.update(torch.from_numpy(3 + 2 * observations(500, seed=5)))
    zscore.running_var[0] = 0.0  # a constant observation: only the added epsilon keeps this finite
    obs = 3 + 2 * observations(200)
    obs[:, 0] = 3.0 + 1e-4 * obs[:, 0]
    ours = DeployedPolicy(fold(actor), compiled=False).trace(obs)
    mean, var = zscore.running_mean.double().numpy(), zscore.running_var.double().numpy()
    z = np.clip((obs - mean) / np.sqrt(var + np.finfo(np.float32).eps), -3, 3)
    assert (np.abs(z) == 3).any()
    raw = copy.deepcopy(actor)
    raw.encoder.zscore, raw.encoder.observation = None, "raw"
    for a, b in zip(ours.spikes, unfolded_spikes(raw, z), strict=True):
        assert np.array_equal(a, b)


@pytest.mark.parametrize("norm", NORMS)
def test_ordinary_networks(norm):
    for network in (ann_actor(norm), ann_q_network(norm)):
        values = unfolded_values(network, observations())
        for compiled in (False, True):
            ours = DeployedPolicy(fold(network), compiled).values(observations())
            np.testing.assert_allclose(ours, values, rtol=1e-10, atol=1e-12)


def test_neurons_with_their_own_constants():
    assert_same_spikes(spiking_actor(neuron=CLIF(0.3, 0.9, 0.2)), observations(300))
    assert_same_spikes(spiking_actor(neuron=make_neuron("dn", theta_s=0.3)), observations(300))
    assert_same_spikes(spiking_actor(neuron=make_neuron("lif", surrogate="sigmoid")), observations(300))


@pytest.mark.parametrize("steps", [1, 3, 8])
@pytest.mark.parametrize("hidden", [(7,), (33, 5, 64, 9)])
def test_other_sizes(hidden, steps):
    assert_same_spikes(spiking_actor("tab", hidden=hidden, time_steps=steps), observations(200))


@pytest.mark.parametrize("norm", NORMS)
def test_float32_differs_only_where_it_cannot_decide(norm):
    """The network as it runs in training, in float32: an action that differs needs a neuron on the threshold."""
    actor = spiking_actor(norm, hidden=(256, 256))
    obs = observations(1000)
    with torch.no_grad():
        theirs = actor(torch.from_numpy(obs)).numpy()
    trace = DeployedPolicy(fold(actor), compiled=False).trace(obs)
    different = np.abs(trace.values - theirs).max(1) > 1e-5
    assert different.mean() < 0.01
    assert (trace.margins[different] < 1e-5).all()


def test_there_is_no_scale_left_unless_steps_differ():
    for norm in NORMS:
        folded = fold(spiking_actor(norm))
        differs = norm in ("bntt", "tebn", "tab")
        assert all(layer.per_step == differs and (layer.scale is not None) == differs for layer in folded.layers)


def test_the_network_is_left_as_it_was():
    actor = spiking_actor("care").train()
    before = copy.deepcopy(actor.state_dict())
    fold(actor)
    assert actor.training
    assert all(torch.equal(a, b) for a, b in zip(before.values(), actor.state_dict().values(), strict=True))


def test_what_cannot_be_folded_is_refused():
    with pytest.raises(ValueError, match="Poisson coding draws its spikes at random"):
        fold(SpikingActor(OBS, 1, encoder_options={"coding": "poisson"}))
    with pytest.raises(ValueError, match="do not know how to fold a Linear; known networks: ANNActor"):
        fold(nn.Linear(2, 2))

    class Another(CLIF):
        def step(self, current, state):
            return super().step(2 * current, state)

    with pytest.raises(ValueError, match="the neuron Another; known: lif, clif, dn"):
        fold(SpikingActor(OBS, 1, neuron=Another()))
    actor = SpikingActor(OBS, 1)
    actor.layers[0].norm = nn.LayerNorm(256)
    with pytest.raises(ValueError, match="fold a LayerNorm into the weights"):
        fold(actor)
    with torch.no_grad():
        broken = SpikingActor(OBS, 1)
        broken.layers[0].linear.weight[0, 0] = float("nan")
    with pytest.raises(ValueError, match=r"layers.0.weight holds NaN"):
        fold(broken)

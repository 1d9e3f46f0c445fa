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
from torch.nn.utils import prune

from carebn.deploy import DeployedPolicy
from carebn.deploy.folding import fold
from carebn.network import SpikingActor
from carebn.network.decoder import READOUTS, MembraneReadout, PopulationDecoder
from carebn.network.layer import SpikingLayer
from carebn.neuron import CLIF, NEURONS, make_neuron
from carebn.neuron.surrogate import Rectangle
from carebn.norm import NORMS, CaReBN, NoNorm


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


@pytest.mark.parametrize("readout", READOUTS)
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
            return super().step(torch.erf(current), state)

    with pytest.raises(ValueError, match="the neuron Another cannot be written as equations: it uses erf; a step may"):
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


class DoublingLinear(nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


class OtherNorm(CaReBN):
    def forward(self, x):
        return super().forward(x) + 1


class OtherInference(CaReBN):
    def moving_scale_shift(self):
        scale, shift = super().moving_scale_shift()
        return 2 * scale, shift


class Shifting(NoNorm):
    def forward(self, x):
        return x + 1


class OtherDecoder(PopulationDecoder):
    def forward(self, spikes):
        return -super().forward(spikes)


class OtherLayer(SpikingLayer):
    def forward(self, x, stimulation=None):
        return super().forward(x, stimulation).flip(0)


class SoftFiring(Rectangle):
    def __call__(self, x):
        return torch.sigmoid(x)


class OtherForward(CLIF):
    def forward(self, x):
        return super().forward(2 * x)


class OtherCall(CLIF):
    def _call_impl(self, *given):
        return 1 - super()._call_impl(*given)


class Doubled(nn.Module):
    def forward(self, x):
        return 2 * x


def replaced_forward(actor):
    linear = actor.layers[0].linear
    linear.forward = lambda x: 2 * nn.functional.linear(x, linear.weight, linear.bias)


CHANGES = {
    "linear": (lambda a: setattr(a.layers[0], "linear", DoublingLinear(60, 32)), "a DoublingLinear where a Linear is"),
    "norm": (lambda a: setattr(a.layers[1], "norm", OtherNorm(24)), "fold a OtherNorm into the weights"),
    "inference": (lambda a: setattr(a.layers[1], "norm", OtherInference(24)), "fold a OtherInference into the weights"),
    "no norm": (lambda a: setattr(a.layers[1], "norm", Shifting()), "fold a Shifting into the weights"),
    "decoder": (lambda a: setattr(a, "decoder", OtherDecoder(2)), "a OtherDecoder where a PopulationDecoder is"),
    "layer": (lambda a: a.layers.__setitem__(1, OtherLayer(32, 24)), "a OtherLayer where a SpikingLayer is"),
    "neuron": (lambda a: setattr(a.layers[0], "neuron", OtherForward()), "fold the neuron OtherForward"),
    "call": (
        lambda a: setattr(a.layers[0], "neuron", OtherCall()),
        r"\(OtherCall\), because it has its own _call_impl",
    ),
    "surrogate": (lambda a: setattr(a.layers[0].neuron, "surrogate", SoftFiring()), "fires by SoftFiring"),
    "steps": (lambda a: setattr(a.layers[1], "time_steps", 7), "a layer of 7 steps in a network of 5"),
    "forward": (replaced_forward, r"layers\.0\.linear \(Linear\), because its forward was replaced"),
    "hook": (
        lambda a: a.layers[1].neuron.register_forward_hook(lambda module, args, out: 1 - out),
        r"layers\.1\.neuron \(CLIF\), because a hook is called with it; remove the hook first",
    ),
    "pre-hook": (
        lambda a: a.register_forward_pre_hook(lambda module, args: (-args[0],)),
        "this SpikingActor, because a hook is called with it",
    ),
    "parametrisation": (
        lambda a: nn.utils.parametrize.register_parametrization(a.layers[0].linear, "weight", Doubled()),
        r"layers\.0\.linear .* has a parametrisation; .*remove_parametrizations",
    ),
    "weight norm": (
        lambda a: nn.utils.parametrizations.weight_norm(a.layers[0].linear),
        r"layers\.0\.linear .* has a parametrisation",
    ),
    "pruning": (
        lambda a: prune.random_unstructured(a.layers[0].linear, "weight", amount=0.5),
        r"layers\.0\.linear \(Linear\), because a hook is called with it",
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changed_modules_are_refused_by_name(change):
    """Folded as what they were derived from, each of these would be another policy."""
    actor = spiking_actor()
    change_it, reason = CHANGES[change]
    change_it(actor)
    with pytest.raises(ValueError, match=reason):
        fold(actor)


def test_changes_of_other_networks_are_refused():
    ann = ann_actor("none")
    ann.body = nn.Sequential(nn.Linear(6, 9), nn.Linear(9, 9), nn.ReLU())
    with pytest.raises(ValueError, match="a Linear where a ReLU is expected"):
        fold(ann)
    ann.body = nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 24))
    with pytest.raises(ValueError, match="a NoneType where a ReLU is expected"):
        fold(ann)

    class OtherReadout(MembraneReadout):
        pass

    network = spiking_q_network()
    network.readout = OtherReadout(24, 4)
    with pytest.raises(ValueError, match="a OtherReadout where a MembraneReadout is"):
        fold(network)
    with pytest.raises(ValueError, match=r"connected within themselves .* cannot be exported; .* carebn\.load acts"):
        fold(spiking_actor(intralayer="intra"))


def test_global_hooks_are_refused():
    handle = nn.modules.module.register_module_forward_hook(lambda module, args, out: None)
    try:
        with pytest.raises(ValueError, match="while torch calls a hook with every module"):
            fold(spiking_actor())
    finally:
        handle.remove()
    fold(spiking_actor())


def test_a_normaliser_of_ones_own_is_folded():
    """With its own scale and offset, which the seam of norm/base.py is for."""

    class Steeper(CaReBN):
        def scale_offset(self, var):
            scale, offset = super().scale_offset(var)
            return 1.5 * scale, offset - 0.1

        def combine(self, mean, var):
            return mean, 2 * var

    actor = spiking_actor()
    mine = Steeper(32)
    mine.load_state_dict(actor.layers[0].norm.state_dict())
    actor.layers[0].norm = mine.eval()
    assert_same_spikes(actor, observations(300))


@pytest.mark.parametrize("options", [{"affine": False}, {"bias": False}])
def test_a_normaliser_without_weights_is_folded(options):
    assert_same_spikes(spiking_actor(norm_options=options), observations(300))


def test_a_normaliser_without_statistics_is_refused():
    with pytest.raises(ValueError, match=r"without moving statistics .* cannot be folded or exported"):
        fold(spiking_actor(norm_options={"track_running_stats": False}))


def test_a_decoder_in_another_layout_is_the_same_policy() -> None:
    network = spiking_actor()
    expected = fold(network).readout.weight
    network.decoder.weight = torch.nn.Parameter(network.decoder.weight.detach().t().contiguous().t())
    assert np.array_equal(fold(network).readout.weight, expected)

"""Centred thresholds: no recorded spike changes, and float32 then agrees with float64."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from deploy_cases import ann_actor, observations, spiking_actor

from carebn import load
from carebn.deploy import DeployedPolicy
from carebn.deploy.folding import fold
from carebn.deploy.graph import Readout
from carebn.deploy.observations import observations as episodes_of
from carebn.deploy.onnx_export import ONNXPolicy, write_onnx
from carebn.deploy.parity import compare, trained_values
from carebn.deploy.threshold_gaps import REACH, with_centred_thresholds

TRAINED = Path(__file__).parent / "trained_clif"


@pytest.mark.parametrize("neuron", ["lif", "clif"])
@pytest.mark.parametrize("norm", ["care", "tab", "none"])
def test_no_recorded_spike_changes(norm, neuron):
    folded, obs = fold(spiking_actor(norm, neuron)), observations(1000)
    moved = with_centred_thresholds(folded, obs)
    before, after = (DeployedPolicy(n, compiled=False).trace(obs) for n in (folded, moved))
    for a, b in zip(before.spikes, after.spikes, strict=True):
        assert np.array_equal(a, b)
    changed = 0
    for old, new in zip(folded.layers, moved.layers, strict=True):
        ratio = new.bias / old.bias
        assert (np.abs(ratio - 1) <= 2.1 * REACH).all()  # a threshold of 0.5 moved by REACH at most
        changed += int((ratio[0] != 1).sum())
    assert 0 < changed < sum(layer.outputs for layer in folded.layers)


def test_a_threshold_by_hand():
    """One neuron, with potentials 0.5 + 2e-6 (fires) and 0.5 − 4e-6 (does not): the middle is 0.5 − 1e-6."""
    folded = fold(spiking_actor("none", "lif"))
    encoder = replace(folded.encoder, coding="direct", squash="none", mean=np.empty((6, 0)), precision=np.empty((6, 0)))
    weight = np.zeros((6, 1))
    weight[0] = 1.0
    layer = replace(folded.layers[0], weight=weight, bias=np.zeros((1, 1)))
    readout = Readout("sum", np.ones((1, 2)), np.zeros(2), np.ones(1))
    one = replace(folded, encoder=encoder, layers=(layer,), time_steps=1, readout=readout)
    obs = np.zeros((3, 6), np.float32)
    obs[:, 0] = 0.5 + 2e-6, 0.5 - 4e-6, 0.1
    middle = (float(obs[0, 0]) + float(obs[1, 0])) / 2
    np.testing.assert_allclose(with_centred_thresholds(one, obs).layers[0].weight[0, 0], 0.5 / middle, rtol=1e-14)
    assert middle == pytest.approx(0.5 - 1e-6, abs=1e-7)
    assert with_centred_thresholds(one, obs[2:]).layers[0].weight[0, 0] == 1.0  # nothing near: nothing moved
    assert with_centred_thresholds(one, obs[:0]).layers[0].weight[0, 0] == 1.0


@pytest.mark.parametrize("network", [spiking_actor(neuron="dn"), ann_actor()])
def test_other_neurons_are_left_alone(network):
    folded = fold(network)
    for old, new in zip(folded.layers, with_centred_thresholds(folded, observations()).layers, strict=True):
        assert old is new


def test_it_is_needed(tmp_path):
    """The kept policy has a neuron on its threshold for several observations in a hundred; plain float32 fails."""
    policy = load(TRAINED)
    seen, folded = episodes_of(TRAINED, policy, 1000), fold(policy.network)
    expected = trained_values(policy.network, seen.compared)
    found = {}
    for name, network in (("plain", folded), ("centred", with_centred_thresholds(folded, seen.others))):
        write_onnx(network, tmp_path / "policy.onnx", np.float32)
        found[name] = compare(expected, ONNXPolicy(tmp_path / "policy.onnx").values, folded, seen.compared, exact=False)
    assert not found["plain"].passed
    assert found["plain"].unexplained == 0
    assert found["centred"].passed
    assert found["centred"].on_threshold == 0

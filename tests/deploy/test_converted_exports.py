"""Converted policies as exports: every spike, every action, every format; and what cannot be exported."""

import numpy as np
import pytest
import torch
from deploy_cases import ann_actor, ann_q_network, byte_observations, observations, unfolded_values, wide

from carebn.conversion import convert
from carebn.deploy import DeployedPolicy
from carebn.deploy.c_export import CPolicy, compiler, write_c
from carebn.deploy.export import export
from carebn.deploy.folding import fold
from carebn.deploy.graph import PolicyGraph
from carebn.deploy.nir_export import to_nir
from carebn.deploy.onnx_export import ONNXPolicy, write_onnx
from carebn.training import TrainConfig
from carebn.training.policy import Policy

CASES = {
    "actor": lambda **options: convert(ann_actor(), observations(500, seed=7), **options),
    "q": lambda **options: convert(ann_q_network(), observations(500, seed=7), **options),
}


@torch.no_grad()
def spike_trains(network, obs):
    """Of every layer, [T, B, N], from the definition: V from θ/2, S = V + I > θ, V − θ·S; in float64."""
    network = wide(network)
    x, trains = network.prepared(torch.from_numpy(obs)), []
    signals = [x] * network.simulation.time_steps
    for layer in network.body.parts():
        v, train = layer.threshold / 2 + torch.zeros(len(obs), 1), []
        for signal in signals:
            v = v + layer.linear(signal)
            train.append((v > layer.threshold).double())
            v = v - train[-1] * layer.threshold
        signals = train
        trains.append(torch.stack(train).numpy())
    return trains


@pytest.mark.parametrize("rule", ["max", "ltb"])
@pytest.mark.parametrize("read_out_from", [0, 13])
@pytest.mark.parametrize("name", CASES)
def test_spike_for_spike(name, read_out_from, rule, tmp_path):
    network = CASES[name](rule=rule, time_steps=20, read_out_from=read_out_from)
    obs = observations(300)
    fold(network).save(tmp_path / "policy.npz")
    folded = PolicyGraph.read(tmp_path / "policy.npz")
    trace = DeployedPolicy(folded, compiled=False).trace(obs)
    for ours, theirs in zip(trace.spikes[1:], spike_trains(network, obs), strict=True):
        assert np.array_equal(ours, theirs)
        assert 0.01 < ours.mean() < 0.99
    values = unfolded_values(network, obs)
    np.testing.assert_allclose(trace.values, values, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(DeployedPolicy(folded, compiled=True).values(obs), values, rtol=1e-12, atol=1e-12)
    write_onnx(folded, tmp_path / "policy.onnx", np.float64)
    np.testing.assert_allclose(ONNXPolicy(tmp_path / "policy.onnx").values(obs), values, rtol=1e-5, atol=1e-6)
    if compiler() is not None:
        write_c(folded, tmp_path / "policy.c", "float64")
        np.testing.assert_allclose(CPolicy(tmp_path / "policy.c").values(obs), values, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("raw_bytes", [False, True])
def test_byte_observations(raw_bytes):
    ann = ann_q_network(make=byte_observations, raw_bytes=raw_bytes)
    network = convert(ann, byte_observations(300, seed=3), rule="max", time_steps=12)
    obs = byte_observations(100)
    ours = DeployedPolicy(fold(network, byte_observations=True)).values(obs)
    np.testing.assert_allclose(ours, unfolded_values(network, obs), rtol=1e-12, atol=1e-12)


def policy_of(network):
    config = TrainConfig("Pendulum-v1", algo="td3", method="ann").checked()
    return Policy(network, config, 6, np.float32)


@pytest.mark.parametrize("to", ["numpy", "c", "onnx"])
def test_exported_and_compared(tmp_path, to):
    policy = policy_of(CASES["actor"](rule="max", time_steps=50))
    report = export(policy, to, tmp_path / "file", observations(200), "here", weights="float64")
    assert report.parity is None or (report.parity.passed and report.parity.on_threshold == 0)
    assert (tmp_path / "file").stat().st_size > 1000


def test_what_is_refused(tmp_path):
    carrying = policy_of(CASES["actor"](rule="max", time_steps=10, residual="crpi", alpha=0.5))
    with pytest.raises(ValueError, match=r"carries nothing; convert without --residual, or use carebn.load"):
        export(carrying, "numpy", tmp_path / "file", observations(10), "here")
    with pytest.raises(ValueError, match=r"no node for the neurons of a converted policy.*onnx, c or numpy instead"):
        to_nir(fold(CASES["actor"](rule="max", time_steps=10)))
    assert not list(tmp_path.iterdir())

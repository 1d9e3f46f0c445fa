"""Every read-out of actors and Q-networks, in both engines and in every export."""

import json
from dataclasses import replace

import numpy as np
import pytest
from deploy_cases import observations, spiking_actor, spiking_q_network, unfolded_values

from carebn.deploy import DeployedPolicy
from carebn.deploy.c_export import CPolicy, compiler, write_c
from carebn.deploy.folding import fold
from carebn.deploy.graph import PolicyGraph, Readout
from carebn.deploy.nir_export import NIRPolicy, write_nir
from carebn.deploy.onnx_export import ONNXPolicy, write_onnx
from carebn.deploy.parity import compare
from carebn.deploy.runtime import read_out
from carebn.network.decoder import Q_READOUTS, READOUTS

CASES = [(spiking_actor, readout) for readout in READOUTS] + [(spiking_q_network, readout) for readout in Q_READOUTS]
NAMES = [f"{make.__name__}-{readout}" for make, readout in CASES]
# with torch's start the potentials of an actor are large enough to tell the read-outs apart
START = {spiking_actor: {"readout_init": "torch"}, spiking_q_network: {}}


@pytest.fixture(params=CASES, ids=NAMES, scope="module")
def network(request):
    make, readout = request.param
    return make(readout=readout, time_steps=6, **START[make])


def test_the_read_outs_differ():
    """So that taking one for another cannot go unnoticed."""
    obs = observations(200)
    for make, names in ((spiking_actor, READOUTS), (spiking_q_network, Q_READOUTS)):
        values = [unfolded_values(make(readout=name, time_steps=6, **START[make]), obs) for name in names]
        for i, a in enumerate(values):
            for b in values[i + 1 :]:
                assert np.abs(a - b).max() > 0.01


@pytest.mark.parametrize("compiled", [False, True])
def test_both_engines(network, compiled, tmp_path):
    fold(network).save(tmp_path / "policy.npz")
    obs = observations()
    policy = DeployedPolicy(PolicyGraph.read(tmp_path / "policy.npz"), compiled)
    np.testing.assert_allclose(policy.values(obs), unfolded_values(network, obs), rtol=1e-12, atol=1e-12)


def assert_parity(network, exported, exact):
    obs = observations()
    parity = compare(unfolded_values(network, obs), exported.values, fold(network), obs, exact)
    assert parity.passed, str(parity)


@pytest.mark.parametrize("weights", ["float32", "float64"])
def test_onnx(network, weights, tmp_path):
    write_onnx(fold(network), tmp_path / "policy.onnx", np.dtype(weights).type)
    assert_parity(network, ONNXPolicy(tmp_path / "policy.onnx"), weights == "float64")


@pytest.mark.skipif(compiler() is None, reason="no C compiler")
@pytest.mark.parametrize("weights", ["float32", "float64"])
def test_c(network, weights, tmp_path):
    write_c(fold(network), tmp_path / "policy.c", weights)
    assert_parity(network, CPolicy(tmp_path / "policy.c"), weights == "float64")


@pytest.mark.parametrize("bias", ["affine", "neuron"])
@pytest.mark.parametrize("weights", ["float32", "float64"])
def test_nir(network, weights, bias, tmp_path):
    write_nir(fold(network), tmp_path / "policy.nir", bias, np.dtype(weights).type)
    assert_parity(network, NIRPolicy(tmp_path / "policy.nir"), weights == "float64")


def test_by_hand():
    """Three steps of two neurons, weights 1 and −2, bias 0.25. The potentials are 1.25, −0.5, −2.25 …"""
    spikes = np.array([[[1.0, 0.0]], [[0.0, 1.0]], [[0.0, 1.0]]])
    weight, bias = np.array([[1.0], [-2.0]]), np.array([0.25])
    assert read_out(Readout("sum", weight, bias, np.ones(3)), spikes).item() == 1 - 4 + 0.25
    assert read_out(Readout("sum", weight, bias, np.array([3.0, 2, 1])), spikes).item() == 3 - 6 + 0.25
    assert read_out(Readout("furthest", weight, bias, np.ones(3)), spikes).item() == -2.25
    assert read_out(Readout("furthest", weight, bias, np.ones(2)), spikes[:2]).item() == 1.25
    tie = np.array([[[1.0, 0.0]], [[0.0, 1.0]]])
    assert read_out(Readout("furthest", np.array([[1.0], [-2.0]]), np.zeros(1), np.ones(2)), tie).item() == 1.0


def test_a_leap_from_one_sign_to_the_other_is_a_near_decision():
    """Potentials +1 and −1 − 1e-7: float32 may take either, and the comparison has to know why."""
    seen = []

    def watch(potential, threshold):
        seen.append(np.abs(potential - threshold).min())

    spikes = np.array([[[1.0, 0.0]], [[0.0, 1.0]]])
    for weight, expected in ((-2 - 1e-7, 1e-7), (-3.0, 0.5), (1.0, 1.0)):
        readout = Readout("furthest", np.array([[1.0], [weight]]), np.zeros(1), np.ones(2))
        read_out(readout, spikes, watch)
        assert seen[-1] == pytest.approx(expected, rel=1e-6)


def test_what_a_read_out_cannot_be():
    weight, bias = np.ones((4, 2)), np.zeros(2)
    with pytest.raises(ValueError, match="unknown read-out 'median'"):
        Readout("median", weight, bias, np.ones(3))
    with pytest.raises(ValueError, match=r"readout\.weight has shape"):
        Readout("sum", weight, np.zeros(3), np.ones(3))
    with pytest.raises(ValueError, match="counts every step alike"):
        Readout("furthest", weight, bias, np.array([1.0, 2.0]))
    with pytest.raises(ValueError, match="needs a step that counts"):
        Readout("sum", weight, bias, np.zeros(3))
    folded = fold(spiking_actor())
    with pytest.raises(ValueError, match=r"readout\.share has shape \(4,\), expected \(5,\)"):
        replace(folded, readout=replace(folded.readout, share=np.ones(4)))


@pytest.mark.parametrize("read_out_from", [None, 2])
def test_files_of_version_1(read_out_from, tmp_path):
    """They had no shares: all steps counted, or those from one on."""
    folded = fold(spiking_actor())
    late = replace(folded.readout, share=(np.arange(5) >= (read_out_from or 0)).astype(np.float64))
    replace(folded, readout=late).save(tmp_path / "new.npz")
    with np.load(tmp_path / "new.npz") as file:
        arrays = dict(file)
    description = json.loads(str(arrays.pop("description")))
    assert description["version"] == 2
    del arrays["readout.share"], description["readout"]
    description["version"] = 1
    if read_out_from is not None:
        description["read_out_from"] = read_out_from
    np.savez(tmp_path / "old.npz", description=np.array(json.dumps(description)), **arrays)
    new, old = (DeployedPolicy(PolicyGraph.read(tmp_path / f"{name}.npz"), False) for name in ("new", "old"))
    assert np.array_equal(new.values(observations(50)), old.values(observations(50)))

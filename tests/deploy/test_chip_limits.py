"""NIR for chips with limits: whole numbers, one threshold, no biases."""

from dataclasses import replace

import numpy as np
import pytest
from deploy_cases import observations, spiking_actor

from carebn.deploy.folding import fold
from carebn.deploy.nir_export import NIRPolicy, to_nir, write_nir
from carebn.deploy.quantise import quantised
from carebn.deploy.runtime import DeployedPolicy


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("bias", ["affine", "neuron"])
@pytest.mark.parametrize("neuron", ["lif", "clif"])
def test_whole_numbers(neuron, bias, shared, tmp_path):
    """Everything that a chip holds is whole and within its bits, and means what it should."""
    folded, obs = fold(spiking_actor(neuron=neuron)), observations(500)
    rounded = quantised(folded, "int8", observations(500, seed=5), shared=shared, with_bias=bias == "neuron")
    write_nir(rounded, tmp_path / "policy.nir", bias, np.float32, "int8", shared)
    policy = NIRPolicy(tmp_path / "policy.nir")
    for name, node in policy.graph.nodes.items():
        if name.startswith("weights") or name == "readout":
            assert np.array_equal(node.weight, np.rint(node.weight))
            assert np.abs(node.weight).max() <= 127
            assert hasattr(node, "bias") == (bias == "affine")
            if bias == "affine":
                assert np.array_equal(node.bias, np.rint(node.bias))
        if name.startswith("neurons"):
            ordinary = node.v_threshold[: len(node.v_threshold) - (bias == "neuron")]
            whole = ordinary * (4 if neuron == "lif" else 1)  # NIR's LIF takes in a quarter of its input
            assert np.array_equal(whole, np.rint(whole))
            assert len(set(node.v_threshold.tolist())) == 1 or not shared
    meant = DeployedPolicy(as_graph(policy, folded, bias), compiled=False)
    differs = np.abs(policy.values(obs) - meant.values(obs)).max(1) > 1e-6
    assert differs.mean() < 0.3
    # A whole potential may lie on its threshold, and the rounding of floats decides there: nowhere else.
    assert (meant.trace(obs[differs]).margins < 1e-5).all()


def as_graph(policy, folded, bias):
    """What the whole numbers in the file mean, with every threshold as it was."""
    layers = []
    for i, layer in enumerate(folded.layers, 1):
        product, neurons = policy.graph.nodes[f"weights_{i}"], policy.graph.nodes[f"neurons_{i}"]
        gain = 4 if layer.neuron.kind == "lif" else 1
        weight = np.asarray(product.weight, float)
        shift = product.bias if bias == "affine" else weight[:-1, -1]
        weight = weight if bias == "affine" else weight[:-1, :-1]
        unit = 0.5 / (neurons.v_threshold[: layer.outputs] * gain + 1e-9)
        layers.append(replace(layer, weight=np.ascontiguousarray(weight.T * unit), bias=(shift * unit)[None]))
    weight = np.asarray(policy.graph.nodes["readout"].weight, float)
    shift = policy.graph.nodes["readout"].bias if bias == "affine" else weight[:, -1]
    weight = (weight if bias == "affine" else weight[:, :-1]) * policy.worth[:, None]
    readout = replace(folded.readout, weight=np.ascontiguousarray(weight.T), bias=shift * policy.worth * 5)
    return replace(folded, layers=tuple(layers), readout=readout)


def test_without_whole_numbers_thresholds_are_shared_anyway():
    graph = to_nir(fold(spiking_actor()))
    for name, node in graph.nodes.items():
        if name.startswith("neurons"):
            assert set(node.v_threshold.tolist()) == {0.5}


def test_an_always_on_neuron_that_cannot_fire_is_refused():
    folded = fold(spiking_actor())
    small = replace(folded, layers=tuple(replace(x, weight=x.weight / 50, bias=x.bias / 50) for x in folded.layers))
    rounded = quantised(small, "int8", observations(200), shared=True, with_bias=True)
    with pytest.raises(ValueError, match="cannot make its always-on neuron fire at every step"):
        to_nir(rounded, "neuron", np.float32, "int8", shared=True)

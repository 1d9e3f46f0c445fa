"""Every export against the unfolded network: all normalisers, neurons, codings and read-outs, in the real runtimes."""

import json
import re
import subprocess

import numpy as np
import onnx
import pytest
from deploy_cases import (
    ann_actor,
    ann_q_network,
    byte_observations,
    observations,
    spiking_actor,
    spiking_q_network,
    unfolded_values,
)

from carebn.deploy import DeployedPolicy
from carebn.deploy.c_export import CPolicy, compiler, to_c, write_c
from carebn.deploy.folding import fold
from carebn.deploy.nir_export import KEY, NIRPolicy, to_nir, write_nir
from carebn.deploy.onnx_export import ONNXPolicy, to_onnx, write_onnx
from carebn.deploy.parity import Parity, compare
from carebn.neuron import NEURONS
from carebn.norm import NORMS

needs_compiler = pytest.mark.skipif(compiler() is None, reason="no C compiler")

# Together they visit every normaliser, neuron, coding, squashing, read-out and kind of network.
CASES = {
    **{f"{norm}-{neuron}": (spiking_actor, {"norm": norm, "neuron": neuron}) for norm in NORMS for neuron in ("clif",)},
    **{f"care-{neuron}": (spiking_actor, {"neuron": neuron}) for neuron in NEURONS},
    "tab-dn-analogue": (
        spiking_actor,
        {"norm": "tab", "neuron": "dn", "readout": "rate", "encoder_options": {"coding": "analogue"}},
    ),
    "raw-threshold": (
        spiking_actor,
        {"time_steps": 8, "encoder_options": {"observation": "raw", "reset": "threshold", "threshold": 0.6}},
    ),
    "zscore": (spiking_actor, {"readout": "rate", "encoder_options": {"observation": "zscore"}}),
    "one-step": (spiking_actor, {"time_steps": 1}),
    "q-lif": (spiking_q_network, {}),
    "q-bntt": (spiking_q_network, {"norm": "bntt"}),
    "q-bytes": (spiking_q_network, {"make": byte_observations}),
    "q-raw-bytes": (spiking_q_network, {"make": byte_observations, "raw_bytes": True}),
    "ann": (ann_actor, {}),
    "ann-q": (ann_q_network, {"make": byte_observations}),
}
NIR_CASES = [name for name in CASES if not re.search("bntt|tebn|tab|dn|ann", name.replace("tdbn", ""))]


def case(name):
    make, options = CASES[name]
    network = make(**options)
    obs = byte_observations() if options.get("make") is byte_observations or name == "ann-q" else observations()
    return network, fold(network, byte_observations=obs.dtype == np.uint8), obs


def assert_parity(network, folded, obs, exported, exact=False):
    parity = compare(unfolded_values(network, obs), exported.values, folded, obs, exact)
    assert parity.passed, str(parity)
    assert parity.observations == 1000
    return parity


@pytest.mark.parametrize("name", CASES)
def test_onnx(name, tmp_path):
    network, folded, obs = case(name)
    for dtype, exact in ((np.float32, False), (np.float64, True)):
        write_onnx(folded, tmp_path / "policy.onnx", dtype)
        assert_parity(network, folded, obs, ONNXPolicy(tmp_path / "policy.onnx"), exact)


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("name", CASES)
def test_c(name, tmp_path):
    """Compiled with -std=c99 -Wall -Wextra -Werror."""
    network, folded, obs = case(name)
    for weights, exact in (("float32", False), ("float64", True)):
        write_c(folded, tmp_path / "policy.c", weights)
        assert_parity(network, folded, obs, CPolicy(tmp_path / "policy.c"), exact)


@pytest.mark.parametrize("bias", ["affine", "neuron"])
@pytest.mark.parametrize("name", NIR_CASES)
def test_nir(name, bias, tmp_path):
    network, folded, obs = case(name)
    for dtype, exact in ((np.float32, False), (np.float64, True)):
        write_nir(folded, tmp_path / "policy.nir", bias, dtype)
        assert_parity(network, folded, obs, NIRPolicy(tmp_path / "policy.nir"), exact)


def test_nir_refuses_what_it_cannot_express():
    for network, reason in (
        (spiking_actor(neuron="dn"), "NIR has no node for the neuron dn"),
        (spiking_actor("tab"), "NIR cannot express weights that differ from step to step"),
        (ann_actor(), r"NIR has no node for ordinary \(ReLU\) units"),
    ):
        with pytest.raises(ValueError, match=reason):
            to_nir(fold(network))


def test_nir_constants_and_metadata():
    """The values that make CubaLIF a CLIF, and everything that a reader needs besides."""
    folded = fold(spiking_actor())
    graph = to_nir(folded)
    assert list(graph.nodes) == [
        "input", "weights_1", "neurons_1", "weights_2", "neurons_2", "weights_3", "neurons_3", "readout", "output"
    ]  # fmt: skip
    neuron = graph.nodes["neurons_1"]
    for name, value in (("tau_syn", 2e-4), ("tau_mem", 4e-4), ("w_in", 2.0), ("r", 4.0), ("v_threshold", 0.5)):
        array = getattr(neuron, name)
        assert array.dtype == np.float64
        np.testing.assert_allclose(array, np.full(32, value), rtol=1e-15)
    assert not neuron.v_leak.any()
    assert not neuron.v_reset.any()
    readout = graph.nodes["readout"].weight
    assert readout.shape == (2, 20)
    assert np.count_nonzero(readout[0, 10:]) == np.count_nonzero(readout[1, :10]) == 0  # block-diagonal
    about = json.loads(graph.metadata[KEY])
    assert about["time_steps"] == 5
    assert about["dt"] == 1e-4
    assert "zero at the start of every decision" in about["reset"]
    assert about["encoder"]["squash"] == "tanh"
    assert np.array(about["encoder"]["mean"]).shape == (6, 10)
    assert about["bounds"]["low"] == [-1.0, -0.5]


def test_the_always_on_neuron_replaces_every_bias():
    graph = to_nir(fold(spiking_actor("none", "lif")), bias="neuron")
    assert graph.nodes["weights_1"].weight.shape == (33, 61)
    assert graph.nodes["readout"].weight.shape == (2, 21)
    assert not any(hasattr(node, "bias") for node in graph.nodes.values())


def test_onnx_inputs_and_outputs():
    """One file for any batch size; a discrete policy gives its action as well as its values."""
    model = to_onnx(fold(spiking_q_network(make=byte_observations), byte_observations=True))
    onnx.checker.check_model(model, full_check=True)
    assert [i.name for i in model.graph.input] == ["observation"]
    assert model.graph.input[0].type.tensor_type.elem_type == onnx.TensorProto.UINT8
    assert [o.name for o in model.graph.output] == ["action", "values"]


def test_onnx_action_is_the_largest_value(tmp_path):
    folded = fold(spiking_q_network())
    write_onnx(folded, tmp_path / "policy.onnx", np.float32)
    session = ONNXPolicy(tmp_path / "policy.onnx").session
    for batch in (1, 7):
        action, values = session.run(["action", "values"], {"observation": observations(batch)})
        assert action.shape == (batch,)
        assert np.array_equal(action, values.argmax(1))
        assert np.array_equal(action, DeployedPolicy(folded).predict(observations(batch))[0])


@needs_compiler
def test_c_returns_the_best_action(tmp_path):
    folded = fold(spiking_q_network())
    obs = observations(1)[0]
    caller = f"""
int main(void) {{
    const float observation[6] = {{{", ".join(f"{x}f" for x in obs.tolist())}}};
    float values[4];
    return policy(observation, values);
}}
"""
    (tmp_path / "policy.c").write_text(to_c(folded) + caller)
    program = str(tmp_path / "policy")
    subprocess.run(
        [compiler(), "-std=c99", "-Wall", "-Wextra", "-Werror", program + ".c", "-o", program, "-lm"], check=True
    )
    assert subprocess.run([program]).returncode == DeployedPolicy(folded).predict(obs)[0]


def test_c_is_self_contained():
    text = to_c(fold(spiking_actor()))
    library, program = text.split("#ifdef POLICY_MAIN")
    assert re.findall(r"#include <(.*)>", library) == ["math.h", "stdint.h"]
    assert re.findall(r"#include <(.*)>", program) == ["stdio.h"]
    assert not re.search(r"\b(malloc|calloc|realloc|free)\b", text)


@pytest.mark.parametrize("fault", ["threshold", "bias", "weight"])
def test_a_fault_is_found(fault, tmp_path):
    """The comparison itself: a small change in one number of a file must not pass."""
    network, folded, obs = case("care-clif")
    write_onnx(folded, tmp_path / "policy.onnx", np.float32)
    model = onnx.load(tmp_path / "policy.onnx")
    shapes = {"threshold": (), "bias": (1, 1, 24), "weight": (60, 32)}
    for tensor in model.graph.initializer:
        value = onnx.numpy_helper.to_array(tensor).copy()
        if value.shape == shapes[fault] and (fault != "threshold" or value == 0.5):
            value.flat[0] += 1e-2
            tensor.CopyFrom(onnx.numpy_helper.from_array(value, tensor.name))
    onnx.save(model, tmp_path / "policy.onnx")
    parity = compare(unfolded_values(network, obs), ONNXPolicy(tmp_path / "policy.onnx").values, folded, obs, False)
    assert not parity.passed


@pytest.mark.parametrize(("count", "said"), [(1, "1 differs"), (2, "2 differ")])
def test_a_difference_in_words(count, said):
    parity = Parity(1000, 1e-5, 0.0, on_threshold=count, unexplained=count, passed=False)
    assert f"; {said} because a neuron is within float32 rounding of its threshold; {said} for no" in str(parity)

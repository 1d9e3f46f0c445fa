"""Every exported file tells what it is, and only files are opened."""

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from deploy_cases import HIGH, LOW, OBS, byte_observations, spiking_actor, spiking_q_network
from test_c_files import ORIGIN

from carebn import __version__, deploy, load
from carebn.deploy import DeployedPolicy
from carebn.deploy.c_export import CPolicy
from carebn.deploy.folding import fold
from carebn.deploy.nir_export import KEY, NIRPolicy, to_nir, write_nir
from carebn.deploy.onnx_export import ONNXPolicy, write_onnx
from carebn.deploy.origin import origin_of

TRAINED = Path(__file__).parent / "trained_clif"
# written by the version before this one, without an origin
OLDER = ("format", "version", "time_steps", "readout", "encoder", "neurons")


@pytest.fixture
def network():
    return replace(fold(spiking_actor()), origin=ORIGIN)


def assert_complete(info):
    assert {name: info[name] for name in ORIGIN if name != "observation"} == {
        name: value for name, value in ORIGIN.items() if name != "observation"
    }
    assert info["observation"] == {"size": OBS, "type": "float32", **ORIGIN["observation"]}
    assert info["action"] == {"kind": "continuous", "size": 2, "low": LOW, "high": HIGH}
    assert info["time_steps"] == 5


def test_the_archive(network, tmp_path):
    network.save(tmp_path / "policy.npz")
    policy = deploy.load(tmp_path / "policy.npz", compiled=False)
    assert_complete(policy.info)
    assert repr(policy) == (
        "<carebn policy: Hopper-v4, td3, care-bn, clif, seed 7, 20,000 steps, mean return 9343.5; "
        "observation of size 6 (float32) to action of size 2; 5 time steps; runs on numpy>"
    )
    with np.load(tmp_path / "policy.npz", allow_pickle=False) as file:
        assert json.loads(str(file["description"]))["origin"] == ORIGIN


def test_an_older_archive(network, tmp_path):
    network.save(tmp_path / "policy.npz")
    with np.load(tmp_path / "policy.npz") as file:
        arrays = dict(file)
    description = json.loads(str(arrays["description"]))
    arrays["description"] = np.array(json.dumps({name: description[name] for name in OLDER}))
    np.savez(tmp_path / "older.npz", **arrays)
    policy = deploy.load(tmp_path / "older.npz", compiled=False)
    assert "environment" not in policy.info
    assert policy.info["action"]["high"] == HIGH
    assert repr(policy).startswith("<carebn policy: of unknown origin; observation of size 6")
    description["origin"] = {"trained_steps": "many"}
    arrays["description"] = np.array(json.dumps(description))
    np.savez(tmp_path / "odd.npz", **arrays)
    with pytest.raises(ValueError, match=r"odd.npz cannot be read as a policy: its origin has 'many' as trained_steps"):
        deploy.load(tmp_path / "odd.npz")


@pytest.mark.parametrize("text", ["[]", "1", "not JSON", "[" * 100_000, '{"format": "carebn-policy", "version": [2]}'])
def test_a_description_that_is_none(text, tmp_path):
    np.savez(tmp_path / "odd.npz", description=np.array(text))
    with pytest.raises(ValueError, match=r"odd.npz cannot be read as a policy: "):
        deploy.load(tmp_path / "odd.npz")


def test_a_discrete_policy_of_bytes():
    policy = DeployedPolicy(fold(spiking_q_network(make=byte_observations), byte_observations=True), compiled=False)
    assert policy.info["observation"] == {"size": OBS, "type": "uint8"}
    assert policy.info["action"] == {"kind": "discrete", "count": 4}
    assert "observation of size 6 (uint8) to 4 actions" in repr(policy)


def test_onnx_metadata(network, tmp_path):
    write_onnx(network, tmp_path / "policy.onnx", np.float32)
    model = onnx.load(tmp_path / "policy.onnx")
    found = {entry.key: entry.value for entry in model.metadata_props}
    assert (model.producer_name, model.producer_version) == ("carebn", __version__)
    assert (found.pop("producer"), found.pop("weights")) == ("carebn", "float32")
    texts = ("carebn", "environment", "run", "algorithm", "method", "neuron", "return_of")
    assert_complete({name: value if name in texts else json.loads(value) for name, value in found.items()})
    assert model.doc_string.startswith("Hopper-v4, td3, care-bn")
    assert [d.dim_param or d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim] == ["batch", OBS]
    assert [d.dim_param or d.dim_value for d in model.graph.output[0].type.tensor_type.shape.dim] == ["batch", 2]
    session = ONNXPolicy(tmp_path / "policy.onnx").session
    assert session.get_modelmeta().custom_metadata_map["environment"] == "Hopper-v4"


def test_nir_metadata(network, tmp_path):
    assert_complete(json.loads(to_nir(network).metadata[KEY])["about"])
    write_nir(network, tmp_path / "policy.nir", "affine", np.float32)
    assert_complete(NIRPolicy(tmp_path / "policy.nir").info)


def test_what_a_run_tells(tmp_path):
    """Steps and return of the very policy: an evaluation at another step was of another one."""
    policy = load(TRAINED)
    assert origin_of(policy) == {
        "carebn": __version__,
        "environment": "InvertedDoublePendulum-v4",
        "algorithm": "td3",
        "method": "care-bn",
        "neuron": "clif",
        "seed": 0,
        "observation": {"low": [None] * 11, "high": [None] * 11},
    }
    run = tmp_path / "first"
    (run / "checkpoint" / "000002000").mkdir(parents=True)
    assert origin_of(policy, run)["trained_steps"] == 2000
    row = '{{"step": {}, "eval/mean_return": {}, "eval/std_return": 1.0}}\n'
    (run / "metrics.jsonl").write_text(row.format(1000, 5.5) + row.format(2000, 9343.48) + '{"step": 2')
    told = origin_of(policy, run)
    assert (told["run"], told["mean_return"], told["return_of"]) == ("first", 9343.48, "the evaluation at step 2,000")
    assert origin_of(policy, run, step=1000)["mean_return"] == 5.5
    assert "mean_return" not in origin_of(policy, run, step=1500)


READERS = {"numpy": deploy.load, "onnx": ONNXPolicy, "nir": NIRPolicy, "c": CPolicy}


@pytest.mark.parametrize("reader", READERS)
def test_only_regular_files_are_opened(reader, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no file .*nothing"):
        READERS[reader](tmp_path / "nothing")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match=r"pipe is a named pipe, and a regular file is expected"):
        READERS[reader](tmp_path / "pipe")  # opened, it would wait for ever
    with pytest.raises(ValueError, match=r"/dev/zero is a device, and a regular file is expected"):
        READERS[reader]("/dev/zero")
    with pytest.raises(ValueError, match="is a directory"):
        READERS[reader](tmp_path)

"""A trained policy, written as NIR, in the simulators that people use: Norse, snnTorch and SpikingJelly."""

from pathlib import Path

import numpy as np
import pytest
import torch
from deploy_cases import observations, spiking_actor, unfolded_values

from carebn import load
from carebn.deploy.folding import fold
from carebn.deploy.nir_export import NIRPolicy, write_nir
from carebn.deploy.observations import observations as episodes_of
from carebn.deploy.parity import compare, trained_values
from carebn.deploy.quantise import quantised
from carebn.deploy.threshold_gaps import with_centred_thresholds

pytestmark = pytest.mark.slow

nir = pytest.importorskip("nir")

TRAINED = Path(__file__).parent / "trained_clif"  # made by the command in its command.txt


def step_by_step(model, x):
    """The outputs of a model that takes one step and a state, and gives both back."""
    outputs, state = [], None
    for now in x:
        out, state = model(now, state)
        outputs.append(out)
    return torch.stack(outputs)


def in_norse(path):
    norse = pytest.importorskip("norse.torch")
    return norse.from_nir(nir.read(path), dt=1e-4)  # its own default is another dt


def in_snntorch(path):
    pytest.importorskip("snntorch")
    from snntorch.import_nir import import_from_nir

    return import_from_nir(nir.read(path))


def in_spikingjelly(path):
    pytest.importorskip("spikingjelly")
    from spikingjelly.activation_based.nir_exchange import import_from_nir

    return import_from_nir(str(path))


READERS = {"norse": in_norse, "snntorch": in_snntorch, "spikingjelly": in_spikingjelly}


class Simulated:
    """A policy whose layers run in another library; we encode and decode."""

    def __init__(self, path, read):
        self.policy, self.path, self.read = NIRPolicy(path), path, read

    @torch.no_grad()
    def values(self, obs):
        model = self.read(self.path)  # afresh: some keep their state in the model
        x = torch.from_numpy(self.policy.encode(obs)).float()
        return self.policy.decode(step_by_step(model, x).numpy())


@pytest.mark.parametrize("bias", ["affine", "neuron"])
@pytest.mark.parametrize("reader", READERS)
def test_a_trained_policy_acts_the_same(reader, bias, tmp_path):
    policy = load(TRAINED)
    seen = episodes_of(TRAINED, policy, 1000)
    obs, folded = seen.compared, fold(policy.network)
    write_nir(with_centred_thresholds(folded, seen.others), tmp_path / "policy.nir", bias, np.float32)
    expected = trained_values(policy.network, obs)
    parity = compare(expected, Simulated(tmp_path / "policy.nir", READERS[reader]).values, folded, obs, exact=False)
    print(reader, bias, parity)
    assert parity.passed, str(parity)
    assert parity.tolerance == 1e-5
    assert parity.on_threshold == 0
    assert len(np.unique(expected.round(3))) > 50, "the policy says the same to everything"


@pytest.mark.parametrize("neuron", ["lif", "clif"])
@pytest.mark.parametrize("reader", READERS)
def test_both_neurons(reader, neuron, tmp_path):
    actor = spiking_actor("bn", neuron)
    folded, obs = fold(actor), observations()
    write_nir(folded, tmp_path / "policy.nir", "affine", np.float32)
    simulated = Simulated(tmp_path / "policy.nir", READERS[reader])
    parity = compare(unfolded_values(actor, obs), simulated.values, folded, obs, exact=False)
    assert parity.passed, str(parity)


@pytest.mark.parametrize("reader", READERS)
def test_whole_numbers_for_a_chip_with_limits(reader, tmp_path):
    """Integer weights, one threshold for a layer, no biases: the other libraries make the same of the file as we do."""
    policy = load(TRAINED)
    seen = episodes_of(TRAINED, policy, 300)
    whole = quantised(fold(policy.network), "int8", seen.others, shared=True, with_bias=True)
    path = tmp_path / "policy.nir"
    write_nir(whole, path, "neuron", np.float32, "int8", True)
    ours = NIRPolicy(path).values(seen.compared)
    if reader == "spikingjelly":  # fires at the threshold too, where whole numbers often are: docs/chip.md
        assert not np.allclose(Simulated(path, in_spikingjelly).values(seen.compared), ours, atol=1e-5)
        graph = nir.read(path)
        for name, node in graph.nodes.items():
            if name.startswith("neurons_"):
                node.v_threshold = node.v_threshold + 2.0**-13
        nir.write(path, graph)
    np.testing.assert_allclose(Simulated(path, READERS[reader]).values(seen.compared), ours, atol=1e-5)
    assert len(np.unique(ours.round(3))) > 50, "the policy says the same to everything"

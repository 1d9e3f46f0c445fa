"""A neuron that no backend was written for: in every engine and export, from its step alone."""

import json
import sys

import numpy as np
import pytest
import torch
from deploy_cases import observations, spiking_actor, spiking_q_network, unfolded_spikes, unfolded_values
from torch import nn
from traced_neurons import Everything, Toy

from carebn import cli, deploy
from carebn.deploy import DeployedPolicy, PolicyGraph
from carebn.deploy.c_export import CPolicy, compiler, write_c
from carebn.deploy.folding import fold
from carebn.deploy.integerise import integerised
from carebn.deploy.nir_export import to_nir
from carebn.deploy.onnx_export import ONNXPolicy, write_onnx
from carebn.deploy.parity import compare
from carebn.deploy.quantise import quantised
from carebn.deploy.runtime import fire, follow
from carebn.deploy.threshold_gaps import with_centred_thresholds
from carebn.neuron import CLIF, LIF, NEURONS, Neuron

needs_compiler = pytest.mark.skipif(compiler() is None, reason="no C compiler")


class Later(Neuron):
    """Fires a step late, rests after two spikes in a row, swaps two states, has one for nothing, learns its decay."""

    def __init__(self):
        super().__init__(0.2)
        self.decay = nn.Parameter(torch.tensor(0.4))

    def initial_state(self, current):
        zero = torch.zeros_like(current)
        return {
            "unused": zero,
            "now": zero,
            "before": zero,
            "v": zero,
            "w": torch.full_like(current, 0.1),
            "clock": zero,
        }

    def step(self, current, state):
        late = state["clock"] - current / (1 + state["now"] + state["before"])
        v = torch.sigmoid(self.decay) * state["w"] - late
        held = state["now"] * state["before"]
        now = self.surrogate(v - self.v_threshold) * (1 - held)
        unused = state["unused"] + v
        after = {
            "unused": unused,
            "now": now,
            "before": state["now"],
            "v": v.clamp(-1, 1),
            "w": state["v"],
            "clock": torch.full_like(v, 0.1),
        }
        return state["now"], after


NETWORKS = {
    "toy": lambda: spiking_actor(neuron=Toy()),
    "toy, tab": lambda: spiking_actor("tab", Toy(tau=2.0, beta=0.5)),
    "toy, q": lambda: spiking_q_network(neuron=Toy()),
    "later": lambda: spiking_actor(neuron=Later(), time_steps=8),
    "later, one step": lambda: spiking_actor(neuron=Later(), time_steps=1),
    "everything": lambda: spiking_actor(neuron=Everything()),
    "mixed": lambda: mixed(),
}


def mixed():
    """A toy between a CLIF and a LIF."""
    actor = spiking_actor()
    actor.layers[1].neuron, actor.layers[2].neuron = Toy(), LIF()
    return actor


@pytest.mark.parametrize("name", NETWORKS)
def test_every_export_is_the_trained_network(name, tmp_path):
    network, obs = NETWORKS[name](), observations(1000)
    graph, values = fold(network), unfolded_values(network, obs)
    trace = DeployedPolicy(graph, compiled=False).trace(obs)
    for ours, theirs in zip(trace.spikes[1:], unfolded_spikes(network, obs)[1:], strict=True):
        assert np.array_equal(ours, theirs)
        assert 0.01 < ours.mean() < 0.99 or name == "later, one step"
    np.testing.assert_allclose(trace.values, values, rtol=1e-12, atol=1e-12)
    graph.save(tmp_path / "policy.npz")
    for compiled in (False, True):
        policy = deploy.load(tmp_path / "policy.npz", compiled)
        np.testing.assert_allclose(policy.values(obs), values, rtol=1e-12, atol=1e-12)
        assert policy.engine == ("numba" if compiled else "numpy")
    for weights, exact in (("float32", False), ("float64", True)):
        write_onnx(graph, tmp_path / "policy.onnx", getattr(np, weights))
        exported = [ONNXPolicy(tmp_path / "policy.onnx")]
        if compiler() is not None:
            write_c(graph, tmp_path / "policy.c", weights)
            exported.append(CPolicy(tmp_path / "policy.c"))
        for policy in exported:
            parity = compare(values, policy.values, graph, obs, exact)
            chaotic = name == "everything" and not exact  # with so many comparisons, float32 decides many otherwise
            assert parity.passed or (chaotic and parity.unexplained == 0), (
                f"{type(policy).__name__}, {weights}: {parity}"
            )
    with pytest.raises(ValueError, match=r"NIR has no node for the neuron \w+, only for lif and clif"):
        to_nir(graph)


def test_integer_weights(tmp_path):
    """A file of an earlier version may hold them; in whole numbers throughout there is no such neuron."""
    network, obs = spiking_actor(neuron=Toy()), observations(300)
    meant = quantised(fold(network), "int8", observations(500, seed=5))
    meant.save(tmp_path / "policy.npz")
    np.testing.assert_array_equal(deploy.load(tmp_path / "policy.npz").values(obs), DeployedPolicy(meant).values(obs))
    with pytest.raises(
        ValueError, match="the neuron Toy has equations of its own, and in whole numbers there are only"
    ):
        integerised(meant, obs)


def test_its_thresholds_are_left_alone():
    graph = fold(spiking_actor(neuron=Toy()))
    moved = with_centred_thresholds(graph, observations())
    assert all(old is new for old, new in zip(graph.layers, moved.layers, strict=True))


def test_how_near_a_spike_was_is_measured():
    """By its raised threshold: nudged by a little more than the margin, some spike changes; by less, none does."""
    graph = fold(spiking_actor(neuron=Toy()))
    margins = DeployedPolicy(graph, compiled=False).trace(observations(500)).margins
    assert (margins > 0).all()
    assert np.median(margins) < 1e-2


def test_a_neuron_with_the_step_of_a_known_one_is_that_one():
    class Renamed(CLIF):
        def step(self, current, state):
            return super().step(current, state)

    neuron = fold(spiking_actor(neuron=Renamed(0.3))).layers[0].neuron
    assert (neuron.kind, neuron.own, neuron["v_threshold"]) == ("clif", None, 0.3)


@pytest.mark.parametrize("neuron", ["lif", "clif", "dn"])
def test_known_neurons_by_their_equations(neuron):
    """The engine's loop for LIF and CLIF and the equations give the same bits."""
    layer = fold(spiking_actor(neuron=neuron)).layers[0]
    currents = np.random.default_rng(0).standard_normal((20 if neuron != "dn" else 4, 30, 32))
    seen, also = [], []
    ours = fire(layer, currents, lambda v, _: seen.append(v.copy()))
    theirs = follow(layer.neuron, currents, lambda v, _: also.append(v.copy()))
    assert np.array_equal(ours, theirs)
    assert 0 < ours.sum() < ours.size
    assert np.array_equal(seen, also)


def changed(path, change):
    with np.load(path) as file:
        arrays = dict(file)
    description = json.loads(str(arrays["description"]))
    change(description)
    np.savez(path, **arrays | {"description": np.array(json.dumps(description))})


FILES = {
    "operation": (lambda d: d["neurons"][0]["equations"]["lines"][0].__setitem__(0, "eval"), "'eval' is no operation"),
    "constant": (lambda d: d["neurons"][0]["constants"].pop("decay"), "'decay' is used in the equations"),
    "infinite": (lambda d: d["neurons"][0]["constants"].update(decay=float("inf")), "hold NaN or infinity"),
    "name": (lambda d: d["neurons"][0].update(kind="lif"), "own equations cannot be called 'lif'"),
    "none": (lambda d: d["neurons"][0].pop("equations"), "Toy"),
    "version": (lambda d: d.update(version=6), "not a policy of carebn in format version 2 to 5"),
}


@pytest.mark.parametrize("what", FILES)
def test_a_made_up_file_is_refused_in_one_sentence(what, tmp_path):
    path = tmp_path / "policy.npz"
    fold(spiking_actor(neuron=Toy())).save(path)
    PolicyGraph.read(path)
    change, reason = FILES[what]
    changed(path, change)
    with pytest.raises(ValueError, match=f"policy.npz cannot be read as a policy: .*{reason}"):
        deploy.load(path)


@pytest.mark.slow
def test_one_file_and_one_line(monkeypatch, capfd, tmp_path):
    """The line is that in NEURONS; then every command knows it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(NEURONS, "toy", Toy)
    for library in ("OMP", "MKL", "OPENBLAS", "NUMBA"):
        monkeypatch.setenv(f"{library}_NUM_THREADS", "1")

    def carebn(*words):
        monkeypatch.setattr(sys, "argv", ["carebn", *map(str, words)])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        return stop.value.code, *capfd.readouterr()

    small = (
        "--hidden",
        16,
        16,
        "--batch-size",
        16,
        "--learning-starts",
        40,
        "--eval-interval",
        40,
        "--eval-episodes",
        1,
    )
    train = ("train", "--env-id", "Pendulum-v1", "--neuron", "toy", "--total-timesteps", 80, "--run-dir", "run", *small)
    assert carebn(*train)[0] == 0
    assert json.loads((tmp_path / "run" / "config.json").read_text())["neuron"] == "toy"
    for words in (
        ("evaluate", "run", "--episodes", 1),
        ("energy", "run", "--episodes", 1),
        ("spikes", "run"),
        ("export", "run", "--to", "numpy", "--out", "policy.npz"),
        ("export", "run", "--to", "onnx", "--weights", "float64", "--out", "policy.onnx"),
        ("export", "run", "--to", "c", "--weights", "float64", "--out", "policy.c"),
    ):
        if words[0] == "export":  # as many are gathered by the pure path, step by step
            words += ("--observations", 200)
        code, out, err = carebn(*words)
        assert code == 0, err
        assert words[0] != "export" or "agree to 1e-05" in out or compiler() is None
    bill = json.loads((tmp_path / "run" / "energy.json").read_text())["network"]["overhead"]
    (membranes,) = [item for item in bill if item["name"] == "membranes"]
    assert (membranes["multiplications"], membranes["additions"]) == (5 * 5 * 42, 4 * 5 * 42)  # T = 5; and the bias
    code, _, err = carebn("export", "run", "--to", "nir", "--out", "policy.nir")
    assert code == 1
    assert "NIR has no node for the neuron Toy, only for lif and clif" in err

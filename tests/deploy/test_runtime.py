"""The runtime: its file, its two engines, its manners."""

import subprocess
import sys

import numpy as np
import pytest
from deploy_cases import OBS, byte_observations, observations, spiking_actor, spiking_q_network

from carebn import deploy
from carebn.deploy import DeployedPolicy, PolicyGraph
from carebn.deploy.compiled import CHUNK, _add_rows, _add_values
from carebn.deploy.folding import fold


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "policy.npz"
    fold(spiking_actor("tab")).save(path)
    return path


def python(code, *arguments):
    """In a process of its own."""
    done = subprocess.run([sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_file_gives_back_every_number(saved):
    folded = fold(spiking_actor("tab"))
    again = PolicyGraph.read(saved)
    assert again._description() == folded._description()
    assert again._arrays().keys() == folded._arrays().keys()
    for name, array in folded._arrays().items():
        assert np.array_equal(array, again._arrays()[name]), name
    with np.load(saved, allow_pickle=False) as file:
        assert all(file[name].dtype != object for name in file.files)


def test_one_observation_or_many(saved):
    for compiled in (False, True):
        policy = deploy.load(saved, compiled)
        actions, state = policy.predict(observations(7), deterministic=True)
        assert state is None
        assert actions.shape == (7, 2)
        assert actions.dtype == np.float32
        for row, action in zip(observations(7), actions, strict=True):
            np.testing.assert_allclose(policy.predict(row)[0], action, atol=1e-6)
        np.testing.assert_array_equal(policy.predict(observations(7).astype(np.float64))[0], actions)
        assert policy.predict(np.empty((0, OBS), np.float32))[0].shape == (0, 2)


def test_both_engines_agree():
    for network, obs in ((spiking_actor("bntt", "dn"), observations()), (spiking_q_network(), observations())):
        folded = fold(network)
        ours, theirs = (DeployedPolicy(folded, compiled).values(obs) for compiled in (False, True))
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)


def test_discrete_actions_of_bytes():
    policy = DeployedPolicy(fold(spiking_q_network(make=byte_observations), byte_observations=True))
    actions, _ = policy.predict(byte_observations(5))
    assert actions.shape == (5,)
    assert actions.dtype.kind == "i"
    assert policy.predict(byte_observations(5)[0])[0] == actions[0]
    with pytest.raises(ValueError, match=r"expected an observation of bytes \(uint8\), got float32"):
        policy.predict(observations(5))


@pytest.mark.parametrize("compiled", [False, True])
def test_bad_observations_are_told_in_one_sentence(saved, compiled):
    policy = deploy.load(saved, compiled)
    with pytest.raises(ValueError, match=r"expected an observation of size 6, got shape \(5,\)"):
        policy.predict(np.zeros(5, np.float32))
    with pytest.raises(ValueError, match=r"expected an observation of size 6, got shape \(2, 3, 6\)"):
        policy.predict(np.zeros((2, 3, 6), np.float32))
    with pytest.raises(ValueError, match="expected an observation of numbers"):
        policy.predict(np.array(["a"] * 6))
    for wrong in (np.nan, np.inf, 1e300):  # the last is infinite in float32
        obs = np.zeros((2, OBS))
        obs[1, 3] = wrong
        with pytest.raises(ValueError, match="got NaN or infinity in an observation"):
            policy.predict(obs)


@pytest.mark.parametrize("observation", [{"a": np.zeros(3)}, (np.zeros(2), 1), np.array(None)])
def test_an_observation_in_parts_has_to_be_made_flat(saved, observation):
    with pytest.raises(ValueError, match=r"in one array, got a \w+; make it flat as Gymnasium does: gymnasium.spaces"):
        deploy.load(saved).predict(observation)


def test_bad_files_are_told_in_one_sentence(saved, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no file .*nothing.npz"):
        deploy.load(tmp_path / "nothing.npz")
    with pytest.raises(ValueError, match="is a directory; export a run first"):
        deploy.load(tmp_path)
    data = saved.read_bytes()
    for name, content in (("cut", data[: len(data) // 2]), ("empty", b""), ("text", b"not a policy")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match=f"{name} cannot be read as a policy: only what carebn export --to numpy"):
            deploy.load(tmp_path / name)
    np.savez(tmp_path / "other.npz", a=np.zeros(3))
    with pytest.raises(ValueError, match="not a policy of carebn"):
        deploy.load(tmp_path / "other.npz")
    with np.load(saved) as file:
        arrays = dict(file)
    for name, array, reason in (
        ("layers.0.weight", arrays["layers.0.weight"][:, :-1], "layers.0.bias has shape"),
        ("readout.bias", arrays["readout.bias"] * np.nan, "readout.bias holds NaN"),
        ("layers.1.weight", np.array([None]), "Object arrays cannot be loaded"),  # a pickle
    ):
        np.savez(tmp_path / "broken.npz", **{**arrays, name: array})
        with pytest.raises(ValueError, match=reason):
            deploy.load(tmp_path / "broken.npz")
    del arrays["readout.bias"]
    np.savez(tmp_path / "broken.npz", **arrays)
    with pytest.raises(ValueError, match=r"'readout.bias' is missing"):
        deploy.load(tmp_path / "broken.npz")


@pytest.mark.slow
def test_neither_torch_nor_numba_is_needed(saved):
    """Importing loads neither; acting never loads torch; without numba the policy acts by numpy."""
    loads = "print(*[m for m in ('torch', 'numba', 'gymnasium', 'matplotlib') if m in sys.modules])"
    act = "policy = deploy.load(sys.argv[1]); policy.predict(np.zeros(6, np.float32)); print(policy.engine)"
    start = "import sys; import numpy as np; import carebn.deploy as deploy; "
    assert python(start + loads) == "\n"
    assert python(f"{start}{act}; {loads}", saved) == "numba\nnumba\n"
    without = "import sys; sys.modules['numba'] = None; sys.modules['torch'] = None; "
    assert python(f"{without}{start}{act}", saved) == "numpy\n"
    refused = f"{without}{start}deploy.load(sys.argv[1], compiled=True)"
    done = subprocess.run([sys.executable, "-c", refused, str(saved)], capture_output=True, text=True)
    assert "numba is not installed" in done.stderr


def test_silent_neurons_cost_nothing():
    """Their rows of the weights are not even read: NaN in them does no harm."""
    rng = np.random.default_rng(0)
    x = (rng.random((5, 100)) < 0.2).astype(np.float64)
    weight = rng.standard_normal((100, 13))
    expected = x @ weight
    weight[~x.any(0)] = np.nan
    z = np.zeros((5, 13))
    _add_rows(x, 5, weight, z, np.empty(CHUNK + 1, np.uint64))
    np.testing.assert_allclose(z, expected, atol=1e-12)
    z[:] = 0
    _add_values(x, 5, weight, z)
    np.testing.assert_allclose(z, expected, atol=1e-12)


def test_a_policy_of_hand_computed_numbers():
    """One input, one CLIF neuron, weight 0.3 and bias 0.1, a spike at every step: worked by hand.

    C: 0.4, 0.6, 0.7;  H: 0.4, 0.9 (fires), 0.7 (fires);  two spikes, read out with weight 0.5 and bias 0.25.
    """
    encoder = {
        "coding": "spikes", "byte_observations": False, "squash": "none", "limit": 0.0, "threshold": 0.999,
        "subtract": 1.0, "offset": np.zeros(1), "divisor": np.ones(1), "mean": np.zeros((1, 1)),
        "precision": np.ones((1, 1)),
    }  # fmt: skip
    from carebn.deploy.graph import Bounds, Encoder, Layer, Neuron, Readout

    neuron = Neuron("clif", {"current_decay": 0.5, "decay": 0.75, "v_threshold": 0.5})
    layer = Layer(np.array([[0.3]]), np.array([[0.1]]), None, neuron)
    bounds = Bounds(np.array([1.0]), np.array([2.0]), np.array([-1.0]), np.array([3.0]))
    readout = Readout("sum", np.array([[0.5]]), np.array([0.25]), np.ones(3))
    policy = PolicyGraph(3, Encoder(**encoder), (layer,), readout, bounds)
    for compiled in (False, True):
        deployed = DeployedPolicy(policy, compiled)
        values = deployed.values(np.zeros((1, 1), np.float32))  # at the centre of the field: A = 1, a spike every step
        np.testing.assert_allclose(values, [[1 + 2 * np.tanh(1.25)]], rtol=1e-14)
        trace = deployed.trace(np.zeros((1, 1), np.float32))
        assert trace.spikes[1].ravel().tolist() == [0, 1, 1]
        assert trace.margins == pytest.approx(0.001, rel=1e-9)  # of the encoder: 1 against 0.999

"""What is recorded is what the network did: its own action, and each layer's spikes from the layer before."""

from pathlib import Path

import numpy as np
import pytest
import torch
from measured_networks import NETWORKS, SPIKING, make
from torch import nn

import carebn
from carebn.measure.spikes import decide, record
from carebn.network import ANNActor, SpikingActor, SpikingQNetwork
from carebn.training import Run, TrainConfig


@pytest.mark.parametrize("name", NETWORKS)
def test_the_output_is_the_networks_own(name: str) -> None:
    network, obs = make(name), torch.randn(17, 3)
    output, _ = record(network, obs)
    with torch.no_grad():
        assert output.equal(network(obs))


@pytest.mark.parametrize("name", NETWORKS)
def test_nothing_stays_behind(name: str) -> None:
    network = make(name)
    before = {key: value.clone() for key, value in network.state_dict().items()}
    record(network, torch.randn(4, 3))
    with pytest.raises((ValueError, RuntimeError)):
        record(network, torch.randn(4, 5))
    assert not any(module._forward_hooks for module in network.modules())
    assert all(value.equal(before[key]) for key, value in network.state_dict().items())


@pytest.mark.parametrize("name", SPIKING)
def test_every_layer_follows_from_the_one_before_step_by_step(name: str) -> None:
    """An explicit loop over time of linear → norm → one pure step of the neuron."""
    network, obs = make(name), torch.randn(6, 3)
    assert isinstance(network, (SpikingActor, SpikingQNetwork))
    output, populations = record(network, obs)
    assert len(populations) == len(network.layers) + 1
    for sender, receiver, layer in zip(populations, populations[1:], network.layers, strict=False):
        steps = layer.time_steps
        x = torch.from_numpy(sender.values).expand(steps, -1, -1)
        with torch.no_grad():
            z = layer.norm(torch.stack([layer.linear(x[t]) for t in range(steps)]))
            state = layer.neuron.initial_state(z[0])
            for t in range(steps):
                spikes, state = layer.neuron.step(z[t], state)
                np.testing.assert_array_equal(receiver.values[t], spikes.numpy())
    last = torch.from_numpy(populations[-1].values)
    with torch.no_grad():
        read = network.bounds(network.decoder(last)) if isinstance(network, SpikingActor) else network.readout(last)
    torch.testing.assert_close(read, output)


@pytest.mark.parametrize("reset", ["spike", "threshold"])
def test_encoder_spikes_by_hand(reset: str) -> None:
    actor = SpikingActor(2, 1, hidden=(4,), population=3, encoder_options={"reset": reset}).eval()
    obs = torch.tensor([[0.3, -2.0]])
    encoder = record(actor, obs)[1][0]
    subtract = 1.0 if reset == "spike" else 0.999
    for i, value in enumerate(obs[0].tolist()):
        for j, mean in enumerate((-1.0, 0.0, 1.0)):
            stimulation = np.exp(-((np.tanh(value) - mean) ** 2) / (2 * 0.05))
            v, fired = 0.0, []
            for _ in range(5):
                v += stimulation
                fired.append(float(v > 0.999))
                v -= fired[-1] * subtract
            assert encoder.values[:, 0, i * 3 + j].tolist() == fired


def test_names_kinds_and_shapes() -> None:
    kinds = {name: [(p.name, p.spiking, p.values.shape) for p in record(make(name), torch.randn(2, 3))[1]]
             for name in ("care, clif", "analogue", "q", "ann")}  # fmt: skip
    assert kinds["care, clif"] == [
        ("encoder", True, (5, 2, 30)),
        ("layer 1", True, (5, 2, 12)),
        ("layer 2", True, (5, 2, 9)),
        ("output population", True, (5, 2, 20)),
    ]
    assert kinds["analogue"][0] == ("encoder", False, (1, 2, 30))
    assert kinds["q"] == [
        ("input", False, (1, 2, 3)),
        ("layer 1", True, (5, 2, 12)),
        ("layer 2", True, (5, 2, 9)),
    ]
    assert kinds["ann"] == [
        ("input", False, (1, 2, 3)),
        ("layer 1", False, (1, 2, 12)),
        ("layer 2", False, (1, 2, 9)),
    ]


@pytest.mark.parametrize("name", SPIKING)
def test_spikes_are_zero_or_one_and_some_of_each(name: str) -> None:
    for population in record(make(name), torch.randn(50, 3))[1]:
        if population.spiking:
            assert set(np.unique(population.values)) == {0.0, 1.0}, population.name
            assert population.rate == population.values.mean(dtype=np.float64)


def test_relu_activity() -> None:
    network, obs = make("ann"), torch.randn(5, 3)
    assert isinstance(network, ANNActor)
    _, (given, first, second) = record(network, obs)
    np.testing.assert_array_equal(given.values[0], obs.numpy())
    with torch.no_grad():
        hidden = torch.relu(network.body[0](obs))
        torch.testing.assert_close(torch.from_numpy(first.values[0]), hidden)
        torch.testing.assert_close(torch.from_numpy(second.values[0]), torch.relu(network.body[2](hidden)))


def test_a_stranger_is_refused() -> None:
    with pytest.raises(ValueError, match="Sequential is none of the networks"):
        record(nn.Sequential(nn.Linear(3, 2)), torch.randn(1, 3))


@pytest.mark.parametrize(
    ("algo", "method", "env_id"),
    [("td3", "care-bn", "Pendulum-v1"), ("sac", "tebn", "Pendulum-v1"), ("ddpg", "ann", "Pendulum-v1"),
     ("dqn", "bn", "CartPole-v1"), ("dqn", "ann-care", "CartPole-v1")],
)  # fmt: skip
def test_decisions_are_those_of_the_policy(tmp_path: Path, algo: str, method: str, env_id: str) -> None:
    Run(TrainConfig(
        env_id=env_id, algo=algo, method=method, total_timesteps=40, learning_starts=20, hidden=(16, 16),
        batch_size=8, eval_episodes=1, recalibration_batches=2, run_dir=tmp_path, quiet=True,
    )).train()  # fmt: skip
    policy = carebn.load(tmp_path)
    obs = np.random.default_rng(0).normal(size=(200, policy.obs_dim)).astype(np.float32)
    decision = decide(policy, obs)
    expected, _ = policy.predict(obs)
    np.testing.assert_allclose(decision.action, expected, atol=1e-5)
    with torch.no_grad():
        np.testing.assert_array_equal(decision.output, policy.network(torch.from_numpy(obs)).numpy())
    with pytest.raises(ValueError, match="NaN or infinity"):
        decide(policy, obs * np.nan)
    with pytest.raises(ValueError, match=f"expected an observation of size {policy.obs_dim}"):
        decide(policy, obs[:, 1:])
    with pytest.raises(ValueError, match="expected a batch"):
        decide(policy, obs[0])

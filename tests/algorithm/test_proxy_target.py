"""Proxy targets against a slow version: imitation of the actor as it acts, the last batch shared, nothing Polyak'd."""

import numpy as np
import pytest
import torch
from agent_cases import ACTIONS, HIGH, LOW, OBS, changed, empty_replay, fill, make_actor, snapshot, transitions
from slow_agents import SlowActor, SlowAdam, SlowCritic, SlowDDPG, SlowTD3, draw
from torch.nn import functional as F

from carebn.algorithm import DDPGOptions, ProxyDDPG, ProxyOptions, ProxyTD3, TD3Options, proxy_table
from carebn.network import ANNActor, Critic, TwinCritic

PROXY = ProxyOptions(hidden=(9, 7), learning_rate=2e-3, updates=3)


def make_agent(algo, norm="care", proxy=PROXY, seed=0):
    actor = make_actor("spiking", norm, seed)
    imitator = ANNActor(OBS, ACTIONS, hidden=proxy.hidden, low=LOW, high=HIGH)
    common = {"batch_size": 8, "recalibration_batches": 3, "tau": 0.2, "actor_learning_rate": 1e-3}
    if algo == "td3":
        critic = TwinCritic(OBS, ACTIONS, hidden=(9, 8))
        return ProxyTD3(actor, critic, TD3Options(**common), imitator, proxy)
    critic = Critic(OBS, ACTIONS, hidden=(9, 8), action_layer=1)
    return ProxyDDPG(actor, critic, DDPGOptions(**common), imitator, proxy)


class Imitating:
    """The slow algorithms with a proxy: K imitation steps first, whose last batch the update then draws again."""

    def __init__(self, agent, low, high):
        super().__init__(agent, low, high)
        self.actor_target = SlowActor(agent.actor_target, low, high)
        self.proxy_adam = SlowAdam(self.actor_target.parameters(), PROXY.learning_rate)
        self.actor_at_start = {n: w.detach().clone() for n, w in self.actor.weights.items()}

    def update(self, data, rng):
        losses = []
        for k in range(PROXY.updates):
            state = rng.bit_generator.state
            s, *_ = draw(data, self.options.batch_size, rng, torch.float32)
            self.actor.learning = False  # as it acts: with moving statistics, and without changing them
            wanted = self.actor(s).detach()
            self.actor.learning = True
            loss = F.mse_loss(self.actor_target(s), wanted)
            self.proxy_adam.minimise(loss)
            losses.append(loss.detach())
            if k == PROXY.updates - 1:
                rng.bit_generator.state = state  # so that the update gets the same batch
        result = super().update(data, rng)
        return result | {"losses/proxy_loss": sum(losses) / len(losses)}


class SlowProxyTD3(Imitating, SlowTD3):
    pass


class SlowProxyDDPG(Imitating, SlowDDPG):
    pass


@pytest.fixture(autouse=True)
def no_following(monkeypatch):
    """In the slow versions the actor's target follows by a function of its own; with a proxy it does not."""
    monkeypatch.setattr("slow_agents.follow_network", lambda *_: None)


@pytest.mark.parametrize("norm", ["none", "care"])
@pytest.mark.parametrize("algo", ["td3", "ddpg"])
def test_against_a_slow_version(algo, norm):
    agent = make_agent(algo, norm)
    slow = (SlowProxyTD3 if algo == "td3" else SlowProxyDDPG)(agent, LOW, HIGH)
    before = snapshot(agent)
    data = transitions(algo)
    replay = fill(empty_replay(algo), data)
    ours, theirs = np.random.default_rng(3), np.random.default_rng(3)
    for _ in range(4):
        losses, expected = agent.update(replay, ours), slow.update(data, theirs)
        assert losses.keys() == expected.keys()
        for name, value in expected.items():
            torch.testing.assert_close(losses[name].double(), torch.as_tensor(value).double(), rtol=1e-4, atol=1e-5)
        assert ours.bit_generator.state == theirs.bit_generator.state
    pairs = [(agent.actor, slow.actor), (agent.actor_target, slow.actor_target)]
    for network, other in pairs:
        for name, parameter in network.named_parameters():
            torch.testing.assert_close(parameter.detach(), other.weights[name].detach(), rtol=1e-4, atol=1e-5)
    if algo == "td3":
        critics = [(SlowCritic(agent.critic_target.single(i)), slow.critic_targets[i]) for i in (0, 1)]
    else:
        critics = [(SlowCritic(agent.critic_target, 1), slow.critic_target)]
    for mine, other in critics:
        for a, b in zip(mine.parameters(), other.parameters(), strict=True):
            torch.testing.assert_close(a.detach(), b.detach(), rtol=1e-4, atol=1e-5)
    touched = changed(before, snapshot(agent))
    assert any(name.startswith("actor_target.") for name in touched)
    assert any(name.startswith("actor.") for name in touched)


@pytest.mark.parametrize("algo", ["td3", "ddpg"])
def test_imitation_leaves_the_actor_alone(algo):
    """K steps change the proxy and its optimiser, not the actor and not its statistics."""
    agent = make_agent(algo)
    before = snapshot(agent)
    agent.next_batch(fill(empty_replay(algo), transitions(algo)), np.random.default_rng(0))
    touched = changed(before, snapshot(agent))
    assert touched
    assert all(name.startswith("actor_target.") for name in touched)


def test_the_proxy_comes_closer():
    agent = make_agent("td3", proxy=ProxyOptions((32, 32), 3e-3, 50))
    replay = fill(empty_replay("td3"), transitions("td3"))
    rng, losses = np.random.default_rng(0), []
    for _ in range(6):
        agent.next_batch(replay, rng)
        losses.append(float(agent.proxy_loss))
    assert losses[-1] < 0.3 * losses[0]


@pytest.mark.parametrize("algo", ["td3", "ddpg"])
def test_it_goes_on_exactly_from_its_state(algo):
    replay = fill(empty_replay(algo), transitions(algo))
    one, other = make_agent(algo), make_agent(algo, seed=5)
    rng = np.random.default_rng(1)
    for _ in range(3):
        one.update(replay, rng)
    other.load_state_dict(one.state_dict())
    state = rng.bit_generator.state
    results = []
    for agent in (one, other):
        rng.bit_generator.state = state
        for _ in range(3):
            agent.update(replay, rng)
        results.append(agent.state_dict())
    assert results[0].keys() == results[1].keys()
    assert any(name.startswith("proxy_optimiser.") for name in results[0])
    assert all(torch.equal(results[0][name], results[1][name]) for name in results[0])


@pytest.mark.parametrize(
    ("neuron", "env_id", "hidden", "rate"),
    [
        ("lif", "Hopper-v4", (512, 512), 1e-3),
        ("clif", "Hopper-v4", (800, 600), 3e-3),
        ("clif", "InvertedDoublePendulum-v4", (512, 512), 3e-3),
        ("dn", "Hopper-v4", (512, 512), 3e-3),
    ],
)
def test_the_authors_table(neuron, env_id, hidden, rate):
    assert proxy_table(neuron, env_id) == ProxyOptions(hidden, rate, 3)

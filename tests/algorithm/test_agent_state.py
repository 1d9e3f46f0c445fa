"""Saving and restoring an agent: it goes on as if nothing had happened, bit for bit."""

import numpy as np
import pytest
import torch
from agent_cases import (
    ACTIONS,
    ALGORITHMS,
    CHOICES,
    HIGH,
    LOW,
    OBS,
    changed,
    make_actor,
    make_agent,
    make_q_network,
    make_replay,
    snapshot,
    some_obs,
)

from carebn.algorithm import ALGORITHMS as ALGORITHMS_KNOWN
from carebn.algorithm import DQN, ProxyOptions, Setup
from carebn.algorithm.base import frozen_copy
from carebn.network import ANNActor

any_algorithm = pytest.mark.parametrize("algo", ALGORITHMS)


def go_on(agent, replay, seed, updates=5):
    rng = np.random.default_rng(seed)
    return [agent.update(replay, rng) for _ in range(updates)]


def assert_goes_on_alike(agent, other, replay, algo):
    for a, b in zip(go_on(agent, replay, 3), go_on(other, replay, 3), strict=True):
        assert a.keys() == b.keys()
        assert all(torch.equal(a[key], b[key]) for key in a)
    assert changed(snapshot(agent), snapshot(other)) == set()
    assert changed(agent.state_dict(), other.state_dict()) == set()
    obs = some_obs(algo)
    for seed in (None, 1):
        rngs = [None if seed is None else np.random.default_rng(seed) for _ in range(2)]
        assert np.array_equal(agent.act(obs, rngs[0]), other.act(obs, rngs[1]))


@pytest.mark.parametrize(("kind", "norm"), [("spiking", "care"), ("spiking", "tab"), ("ann", "care"), ("ann", "none")])
@any_algorithm
def test_a_restored_agent_goes_on_bit_for_bit(algo, kind, norm):
    """After an odd number of updates, so that TD3's delay and DQN's interval are half-way."""
    options = {"target_interval": 4} if algo == "dqn" else {"tau": 0.1}
    agent, replay = make_agent(algo, kind, norm, **options), make_replay(algo)
    go_on(agent, replay, 2)
    other = make_agent(algo, kind, norm, seed=99, **options)
    other.load_state_dict(agent.state_dict())
    assert other.updates == 5
    assert_goes_on_alike(agent, other, replay, algo)


@any_algorithm
def test_a_state_without_updates_clears_the_optimisers(algo):
    """Rewinding an agent that has learnt to one that has not."""
    agent, other, replay = make_agent(algo), make_agent(algo, seed=99), make_replay(algo)
    go_on(other, replay, 2)
    other.load_state_dict(agent.state_dict())
    assert other.updates == 0
    assert_goes_on_alike(agent, other, replay, algo)


@any_algorithm
def test_a_state_is_plain_tensors_of_its_own(algo):
    """Any format for tensors can hold it, and further training does not reach into it."""
    agent, replay = make_agent(algo), make_replay(algo)
    go_on(agent, replay, 2)
    state = agent.state_dict()
    for key, value in state.items():
        assert type(key) is str
        assert type(value) is torch.Tensor, key
        assert value.is_cpu, key
        assert value.is_contiguous(), key
        assert not value.requires_grad, key
    places = [value.untyped_storage().data_ptr() for value in state.values()]
    assert len(set(places)) == len(places)
    before = {key: value.clone() for key, value in state.items()}
    go_on(agent, replay, 4)
    assert changed(before, state) == set()


@any_algorithm
def test_a_state_holds_every_network_and_optimiser(algo):
    agent, replay = make_agent(algo), make_replay(algo)
    go_on(agent, replay, 2)
    state = agent.state_dict()
    parts = {key.split(".")[0] for key in state}
    expected = {
        "td3": {"actor", "actor_target", "critic", "critic_target", "actor_optimiser", "critic_optimiser"},
        "sac": {
            "gaussian", "critic", "critic_target", "log_alpha",
            "actor_optimiser", "critic_optimiser", "alpha_optimiser",
        },
        "dqn": {"q_network", "q_target", "optimiser"},
    }  # fmt: skip
    expected["ddpg"] = expected["td3"]
    assert parts == expected[algo] | {"updates"}
    for slot in ("step", "exp_avg", "exp_avg_sq"):
        assert any(key.endswith(f"optimiser.0.{slot}") for key in state)


def with_proxy(algo):
    """Of a run with ``--target proxy``."""
    proxy = ANNActor(OBS, ACTIONS, low=LOW, high=HIGH, hidden=(5,)), ProxyOptions((5,))
    setup = Setup(make_actor(), OBS, ACTIONS, ALGORITHMS_KNOWN[algo].options(), torch.device("cpu"), lambda: proxy)
    return ALGORITHMS_KNOWN[algo].build(setup)


@pytest.mark.parametrize("algo", [*ALGORITHMS, "td3 with proxy", "ddpg with proxy"])
def test_no_part_of_an_agent_is_forgotten(algo):
    """What is declared is what there is; the policy is one of them under another name."""
    agent = with_proxy(algo.split()[0]) if "proxy" in algo else make_agent(algo)
    kinds = (torch.nn.Module, torch.optim.Optimizer)
    there = {name: part for name, part in vars(agent).items() if isinstance(part, kinds) and name != "policy"}
    assert agent.parts().keys() == there.keys()
    assert all(agent.parts()[name] is part for name, part in there.items())
    assert ("proxy_optimiser" in agent.parts()) == ("proxy" in algo)


def test_a_name_in_a_checkpoint_does_not_follow_an_attribute():
    """Two classes of the same algorithm whose attributes have other names read each other's checkpoints."""

    class Renamed(DQN):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            self.values, self.slow_values, self.adam = self.q_network, self.q_target, self.optimiser
            self.hidden_copy = frozen_copy(self.q_network)  # made anew by whoever needs it

    agent, replay = make_agent("dqn"), make_replay("dqn")
    renamed = Renamed(make_q_network(seed=5), CHOICES, agent.options)
    go_on(agent, replay, 2)
    renamed.load_state_dict(agent.state_dict())
    assert renamed.state_dict().keys() == agent.state_dict().keys()
    assert changed(renamed.state_dict(), agent.state_dict()) == set()


@any_algorithm
def test_another_network_is_refused(algo):
    agent = make_agent(algo, norm="care")
    with pytest.raises((RuntimeError, KeyError)):
        agent.load_state_dict(make_agent(algo, norm="none").state_dict())

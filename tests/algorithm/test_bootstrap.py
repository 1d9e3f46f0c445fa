"""What a transition is worth: ``terminated`` ends the sum of rewards, and nothing else does."""

import inspect

import numpy as np
import pytest
import torch
from agent_cases import ALGORITHMS, empty_replay, fill, make_agent, snapshot, transitions

from carebn.algorithm import Batch, ReplayBuffer

LOSS = {"td3": "losses/qf_loss", "ddpg": "losses/qf_loss", "sac": "losses/qf_loss", "dqn": "losses/td_loss"}
any_algorithm = pytest.mark.parametrize("algo", ALGORITHMS)


def first_loss(algo, terminated, next_obs=None):
    """The critic's loss of the first update of a fresh agent, and what the batch held."""
    obs, action, reward, other, _ = transitions(algo)
    next_obs = other if next_obs is None else next_obs
    data = (obs, action, reward, next_obs, np.full(len(reward), terminated))
    agent = make_agent(algo, batch_size=16)
    loss = agent.update(fill(empty_replay(algo), data), np.random.default_rng(4))[LOSS[algo]]
    index = np.random.default_rng(4).integers(0, len(reward), 16)
    return float(loss), [torch.from_numpy(x[index]) for x in (obs, action, reward, next_obs)]


def values(algo, agent, obs, action):
    """[critics, B]"""
    if algo == "dqn":
        return agent.q_network(obs).gather(1, action[:, None]).T
    q = agent.critic(obs, action)
    return q if q.ndim == 2 else q[None]


@any_algorithm
def test_a_terminated_transition_is_worth_its_reward(algo):
    loss, (obs, action, reward, _) = first_loss(algo, terminated=True)
    with torch.no_grad():
        expected = (values(algo, make_agent(algo), obs, action) - reward).square().mean(1).sum()
    assert loss == pytest.approx(float(expected), rel=1e-5)


@any_algorithm
def test_only_an_unfinished_transition_looks_ahead(algo):
    """Other next observations change the loss if and only if the episode goes on."""
    others = transitions(algo, seed=8)[3]
    assert first_loss(algo, True)[0] == first_loss(algo, True, others)[0]
    assert first_loss(algo, False)[0] != first_loss(algo, False, others)[0]


@pytest.mark.parametrize("algo", ["ddpg", "dqn"])
def test_an_unfinished_transition_adds_the_discounted_next_value(algo):
    """Where there is no noise the target is short enough to write out."""
    loss, (obs, action, reward, next_obs) = first_loss(algo, terminated=False)
    agent = make_agent(algo)
    with torch.no_grad():
        if algo == "dqn":
            ahead = agent.q_target(next_obs).max(1).values
        else:
            ahead = agent.critic_target(next_obs, agent.actor_target(next_obs))
        expected = (values(algo, agent, obs, action) - (reward + 0.99 * ahead)).square().mean()
    assert loss == pytest.approx(float(expected), rel=1e-5)


@any_algorithm
def test_mixed_batches_are_cut_row_by_row(algo):
    """Next observations of terminated rows are irrelevant, so two replays that differ there learn the same."""
    obs, action, reward, next_obs, terminated = transitions(algo)
    other = np.where(terminated[:, None], transitions(algo, seed=8)[3], next_obs)
    results = []
    for following in (next_obs, other):
        agent = make_agent(algo, norm="none")
        replay = fill(empty_replay(algo), (obs, action, reward, following, terminated))
        rng = np.random.default_rng(4)
        for _ in range(3):
            agent.update(replay, rng)
        results.append(snapshot(agent))
    assert all(torch.equal(results[0][key], results[1][key]) for key in results[0])


def test_replay_knows_no_truncation():
    """A time limit is not the end, so there is no place to store one."""
    assert Batch._fields == ("obs", "action", "reward", "next_obs", "terminated")
    assert list(inspect.signature(ReplayBuffer.add).parameters) == ["self", *Batch._fields]

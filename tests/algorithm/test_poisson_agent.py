"""Random spikes that can be repeated: from the run's streams in training, from the observation when acting greedily."""

import numpy as np
import torch
from agent_cases import ACTIONS, OBS, changed, make_actor, make_replay, snapshot, some_obs

from carebn.algorithm import TD3, PoissonAgent, TD3Options
from carebn.network import TwinCritic
from carebn.network.randomness import is_random


def make_agent(**options):
    actor = make_actor(encoder_options={"coding": "poisson"}, hidden=(16, 16))
    options = TD3Options(batch_size=8, recalibration_batches=3, **options)
    return PoissonAgent(TD3(actor, TwinCritic(OBS, ACTIONS, hidden=(9, 8)), options))


def test_the_same_streams_give_the_same_agent():
    replay, states = make_replay("td3"), []
    for disturbance in (1, 2):
        torch.manual_seed(0)
        agent, rng = make_agent(), np.random.default_rng(5)
        torch.manual_seed(disturbance)  # torch's own generator must not matter
        for _ in range(3):
            agent.act(some_obs("td3"), rng)
            agent.update(replay, rng)
        agent.recalibrate(replay, rng)
        states.append(agent.state_dict())
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_other_streams_give_other_spikes():
    """Without noise on actions, so that the spikes alone can make the difference."""
    agent, obs = make_agent(exploration_noise=0.0), np.repeat(some_obs("td3", 1), 50, 0)
    first, again, second = (agent.act(obs, np.random.default_rng(seed)) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, second)
    assert len(np.unique(first, axis=0)) > 1  # nor do the rows of a batch share theirs


def test_a_greedy_action_is_a_function_of_its_observation():
    agent, obs = make_agent(), some_obs("td3", 12)
    together = agent.act(obs, None)
    np.testing.assert_array_equal(agent.act(obs, None), together)
    np.testing.assert_array_equal(agent.act(obs[::-1], None), together[::-1])
    for row, action in zip(obs, together, strict=True):
        np.testing.assert_array_equal(agent.act(row[None], None)[0], action)
    near = obs + np.float32(1e-6)
    assert not np.array_equal(agent.act(near, None), together)  # other spikes, not the same ones for all


def test_torchs_own_generator_is_left_alone():
    agent, replay, rng = make_agent(), make_replay("td3"), np.random.default_rng(0)
    before = torch.random.get_rng_state()
    agent.act(some_obs("td3"), rng)
    agent.act(some_obs("td3"), None)
    agent.update(replay, rng)
    agent.recalibrate(replay, rng)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_acting_changes_nothing():
    agent = make_agent()
    before = snapshot(agent.agent)
    agent.act(some_obs("td3"), np.random.default_rng(0))
    agent.act(some_obs("td3"), None)
    assert changed(before, snapshot(agent.agent)) == set()


def test_what_is_random():
    assert is_random(make_agent().policy)
    assert not is_random(make_actor())
    assert not is_random(make_actor("ann", "none"))

"""z-scored agents: the statistics are those of the observations seen, and actor and critic both see the result."""

import numpy as np
import pytest
import torch
from agent_cases import ACTIONS, HIGH, LOW, OBS, empty_replay, fill, make_actor, make_agent, some_obs, transitions

from carebn.algorithm import SAC, TD3, GaussianPolicy, SACOptions, StandardisedAgent, TD3Options
from carebn.network import TwinCritic

RAW, ZSCORE = {"observation": "raw"}, {"observation": "zscore"}


def agents(algo="td3", norm="care", seed=0):
    """A z-scored agent, and a plain one with the same weights that takes z-scores as they are."""
    made = []
    for _ in range(2):
        actor = make_actor("spiking", norm, seed, encoder_options=RAW)
        critic = TwinCritic(OBS, ACTIONS, hidden=(9, 8))
        if algo == "td3":
            made.append(TD3(actor, critic, TD3Options(batch_size=8, recalibration_batches=3)))
        else:
            policy = GaussianPolicy(actor, OBS, hidden=10)
            made.append(SAC(policy, critic, SACOptions(batch_size=8, recalibration_batches=3)))
    inner, plain = made
    return StandardisedAgent(inner, make_actor("spiking", norm, seed + 1, encoder_options=ZSCORE)), plain


def shifted(count, seed=1):
    """Transitions whose observations are far from standard."""
    obs, action, reward, next_obs, terminated = transitions("td3", count, seed)
    scale, middle = np.array([3.0, 0.1, 20.0], np.float32), np.array([5.0, -1.0, 100.0], np.float32)
    return obs * scale + middle, action, reward, next_obs * scale + middle, terminated


def z_scores(x, seen):
    z = (x - seen.mean(0)) / np.sqrt(seen.var(0) + np.finfo(np.float32).eps)
    return np.clip(z, -3, 3).astype(np.float32)


@pytest.mark.parametrize(("count", "merged"), [(49, 0), (50, 50), (130, 100), (400, 400)])
def test_statistics_of_whole_fifties(count, merged):
    agent, _ = agents()
    data = shifted(count)
    agent.recalibrate(fill(empty_replay("td3", 500), data), np.random.default_rng(0))
    assert agent.merged == merged
    seen = data[0][:merged].astype(np.float64)
    mean, var = (seen.mean(0), seen.var(0)) if merged else (np.zeros(3), np.ones(3))
    np.testing.assert_allclose(agent.zscore.running_mean, mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(agent.zscore.running_var, var, rtol=1e-4, atol=1e-6)


def test_it_does_not_matter_how_often_it_looks():
    data, ends = shifted(300), []
    for looks in ((300,), (10, 50, 60, 149, 150, 299, 300)):
        agent, _ = agents()
        replay = empty_replay("td3", 500)
        for i, row in enumerate(zip(*data, strict=True)):
            replay.add(*row)
            if i + 1 in looks:
                agent._catch_up(replay)
        ends.append(agent.zscore.state_dict())
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])


def test_what_the_replay_no_longer_holds_is_passed_over():
    agent, _ = agents()
    data = shifted(200)
    agent.recalibrate(fill(empty_replay("td3", 64), data), np.random.default_rng(0))
    assert agent.merged == 200
    seen = data[0][-64:].astype(np.float64)
    np.testing.assert_allclose(agent.zscore.running_mean, seen.mean(0), rtol=1e-5)


@pytest.mark.parametrize("algo", ["td3", "sac"])
def test_it_learns_as_a_plain_agent_does_from_z_scores(algo):
    """Everything, critic included: the same updates from a replay that was standardised by hand."""
    agent, plain = agents(algo)
    data = shifted(200)
    seen = data[0].astype(np.float64)
    by_hand = (z_scores(data[0], seen), data[1], data[2], z_scores(data[3], seen), data[4])
    replay, standard = fill(empty_replay("td3", 200), data), fill(empty_replay("td3", 200), by_hand)
    ours, theirs = np.random.default_rng(7), np.random.default_rng(7)
    for _ in range(4):
        losses, expected = agent.update(replay, ours), plain.update(standard, theirs)
        for name in expected:
            torch.testing.assert_close(losses[name], expected[name], rtol=1e-3, atol=1e-4)
    agent.recalibrate(replay, ours)
    plain.recalibrate(standard, theirs)
    mine, other = agent.agent.state_dict(), plain.state_dict()
    for name in other:
        torch.testing.assert_close(mine[name], other[name], rtol=1e-3, atol=1e-4, msg=name)


def test_the_deployed_policy_standardises_what_the_agent_learnt():
    agent, _ = agents()
    data = shifted(100)
    replay = fill(empty_replay("td3", 100), data)
    for _ in range(3):
        agent.update(replay, np.random.default_rng(0))
    obs = shifted(20, seed=9)[0]
    agent.policy.eval()
    with torch.no_grad():
        expected = agent.policy(torch.from_numpy(obs)).numpy()
        inner = agent.agent.policy(torch.from_numpy(z_scores(obs, data[0].astype(np.float64)))).numpy()
    agent.policy.train()
    np.testing.assert_allclose(agent.act(obs, None), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(inner, expected, rtol=1e-3, atol=1e-4)
    assert {"encoder.zscore.running_mean", "encoder.zscore.running_var", "encoder.zscore.count"} <= set(
        agent.policy.state_dict()
    )


def test_it_goes_on_exactly_from_its_state():
    data = shifted(130)
    replay = fill(empty_replay("td3", 200), data)
    one, _ = agents()
    other, _ = agents(seed=3)
    rng = np.random.default_rng(1)
    for _ in range(3):
        one.update(replay, rng)
    other.load_state_dict(one.state_dict())
    for row in zip(*shifted(30, seed=4), strict=True):
        replay.add(*row)
    state, results = rng.bit_generator.state, []
    for agent in (one, other):
        rng.bit_generator.state = state
        for _ in range(3):
            agent.update(replay, rng)
        results.append(agent.state_dict())
    assert one.merged == other.merged == 150
    assert results[0].keys() == results[1].keys()
    assert all(torch.equal(results[0][name], results[1][name]) for name in results[0])


def test_plain_agents_are_untouched():
    agent = make_agent("td3")
    assert not hasattr(agent, "zscore")
    assert agent.act(some_obs("td3"), None).shape == (5, ACTIONS)
    assert np.all(agent.act(some_obs("td3"), None) <= np.array(HIGH, np.float32))
    assert np.all(agent.act(some_obs("td3"), None) >= np.array(LOW, np.float32))

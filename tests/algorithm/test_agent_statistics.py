"""Moving statistics change in the loss that trains the policy, once, and in re-calibration; nowhere else."""

import copy

import numpy as np
import pytest
import torch
from agent_cases import (
    ALGORITHMS,
    CONTINUOUS,
    OPTIONS,
    DoubleReplay,
    changed,
    empty_replay,
    make_agent,
    make_replay,
    networks,
    snapshot,
    some_obs,
)

from carebn.norm import NORMS, Norm

POLICY = {"td3": "actor", "ddpg": "actor", "sac": "gaussian.actor", "dqn": "q_network"}
TARGET = {"td3": "actor_target", "ddpg": "actor_target", "dqn": "q_target"}
any_algorithm = pytest.mark.parametrize("algo", ALGORITHMS)


def norms(network):
    return [module for module in network.modules() if isinstance(module, Norm)]


def statistics(network, kinds=("running_mean", "running_var", "error_mean", "error_var", "num_batches_tracked")):
    return {n: b.clone() for n, b in network.named_buffers() if n.rpartition(".")[2] in kinds}


def modes(agent):
    return [module.training for network in networks(agent).values() for module in network.modules()]


def trained(algo, updates=3, **options):
    agent, replay, rng = make_agent(algo, **options), make_replay(algo), np.random.default_rng(6)
    for _ in range(updates):
        agent.update(replay, rng)
    return agent, replay, rng


@pytest.mark.parametrize("kind", ["spiking", "ann"])
@any_algorithm
def test_acting_changes_nothing(algo, kind):
    """Exploring, greedy, in batches of one (evaluation) or several: the networks and their modes stay as they are."""
    agent, _, rng = trained(algo, kind=kind)
    before, mode = snapshot(agent), modes(agent)
    for count in (1, 1, 10):
        for generator in (rng, None):
            for _ in range(3):
                action = agent.act(some_obs(algo, count), generator)
                assert len(action) == count
    assert changed(before, snapshot(agent)) == set()
    assert modes(agent) == mode


@pytest.mark.parametrize("algo", CONTINUOUS)
def test_acting_changes_nothing_without_the_fast_path(algo):
    """In float64 the actor itself acts, in the middle of training."""
    agent = make_agent(algo, dtype=torch.float64)
    agent.update(make_replay(algo, kind=DoubleReplay), np.random.default_rng(6))
    before, mode = snapshot(agent), modes(agent)
    obs = torch.from_numpy(some_obs(algo)).double()
    with torch.no_grad(), agent.inference_mode():
        action = agent.policy(obs)
    assert changed(before, snapshot(agent)) == set()
    assert modes(agent) == mode
    assert torch.equal(action, copy.deepcopy(agent.policy).eval()(obs))


@pytest.mark.parametrize("kind", ["spiking", "ann"])
@any_algorithm
def test_greedy_acting_is_the_policy_in_evaluation_mode(algo, kind):
    agent, _, _ = trained(algo, kind=kind)
    obs = some_obs(algo, 6)
    with torch.no_grad():
        out = copy.deepcopy(agent.policy).eval()(torch.from_numpy(obs))
    expected = out.argmax(-1).numpy() if algo == "dqn" else out.numpy()
    np.testing.assert_allclose(agent.act(obs, None), expected, rtol=1e-5, atol=1e-6)
    for i in range(6):  # an action does not depend on who else is in the batch
        np.testing.assert_allclose(agent.act(obs[i : i + 1], None)[0], expected[i], rtol=1e-5, atol=1e-6)


def test_inference_mode_ends_with_an_error_too():
    agent = make_agent("td3")
    with agent.inference_mode():
        assert not any(norm.training for norm in norms(agent.policy))
    with pytest.raises(ValueError, match="NaN"), agent.inference_mode():
        agent.policy(torch.full((2, 3), torch.nan))
    assert all(norm.training for norm in norms(agent.policy))


@pytest.mark.parametrize("norm", ["care", "bn", "tdbn"])
@any_algorithm
def test_one_step_of_the_statistics_per_actor_update(algo, norm):
    """Exactly what one training pass over the sampled observations does: SAC's next action adds nothing to it."""
    agent, replay, rng = trained(algo, updates=1, norm=norm)
    for update in range(2, 6):
        twin = copy.deepcopy(agent.policy)
        index = np.random.default_rng()
        index.bit_generator.state = rng.bit_generator.state
        obs = replay.sample(agent.options.batch_size, index).obs
        agent.update(replay, rng)
        if algo != "td3" or update % 2 == 0:
            twin(obs)
        assert changed(statistics(twin), statistics(agent.policy)) == set()
        count = update // 2 if algo == "td3" else update
        assert {int(n.num_batches_tracked) for n in norms(agent.policy)} == {count}


@pytest.mark.parametrize("algo", ["td3", "ddpg"])
def test_targets_follow_the_statistics_by_tau(algo):
    """The error estimates and the counter belong to the online network and stay."""
    agent, replay, rng = trained(algo, tau=0.25, updates=3)
    target = getattr(agent, TARGET[algo])
    before = statistics(target)
    agent.update(replay, rng)
    online, after = statistics(agent.policy), statistics(target)
    moved = 0
    for name, value in after.items():
        if ".running_" in name:
            torch.testing.assert_close(value, 0.75 * before[name] + 0.25 * online[name])
            moved += int(not torch.equal(value, before[name]))
        else:
            assert torch.equal(value, before[name]), name
            assert not value.any(), name
            assert online[name].any(), name
    assert moved == 6  # mean and variance of three layers


def test_dqn_copies_statistics_every_so_many_updates():
    """Between two copies the target stands still; a copy is exact and leaves the error estimates."""
    agent, replay, rng = make_agent("dqn", target_interval=3), make_replay("dqn"), np.random.default_rng(6)
    for update in range(1, 8):
        before = statistics(agent.q_target), dict(copy.deepcopy(agent.q_target).named_parameters())
        agent.update(replay, rng)
        online, target = statistics(agent.q_network), statistics(agent.q_target)
        weights = dict(agent.q_target.named_parameters())
        if update % 3:
            assert changed(before[0], target) == set()
            assert changed(before[1], weights) == set()
        else:
            assert changed(dict(agent.q_network.named_parameters()), weights) == set()
            differ = {n.rpartition(".")[2] for n in changed(online, target)}
            assert differ == {"error_mean", "error_var", "num_batches_tracked"}
            assert not target["layers.0.norm.error_mean"].any()


@any_algorithm
def test_targets_never_learn_by_themselves(algo):
    agent, _, _ = trained(algo)
    targets = [network for name, network in networks(agent).items() if name.endswith("_target")]
    assert targets
    for target in targets:
        assert not any(module.training for module in target.modules())
        assert not any(p.requires_grad or p.grad is not None for p in target.parameters())


@pytest.mark.parametrize("norm", ["care", "re"])
@any_algorithm
def test_recalibration_touches_the_online_statistics_only(algo, norm):
    agent, replay, rng = trained(algo, norm=norm)
    before, mode = snapshot(agent), modes(agent)
    assert agent.recalibrate(replay, rng) is True
    touched = changed(before, snapshot(agent))
    layers = range(len(norms(agent.policy)))
    own = {f"layers.{i}.norm.running_{s}" for i in layers for s in ("mean", "var")}
    assert touched == {f"{name}.{key}" for name in {POLICY[algo], "policy"} for key in own}
    assert modes(agent) == mode


@pytest.mark.parametrize("norm", ["care", "re"])
@any_algorithm
def test_recalibration_takes_the_asked_batches_from_replay(algo, norm):
    """The first layer's statistics are those of its input over all drawn observations."""
    agent, replay, _ = trained(algo, norm=norm, batch_size=6, recalibration_batches=5)
    rows = np.random.default_rng(9).integers(0, len(replay), 30)
    obs = torch.from_numpy(replay.arrays["obs"][rows])
    first = agent.policy.layers[0]
    assert agent.recalibrate(replay, np.random.default_rng(9))
    with torch.no_grad():
        x = obs.float()[None] / 255 if algo == "dqn" else agent.policy.encoder(obs)
        z = first.linear(x).double().flatten(0, 1)
    torch.testing.assert_close(first.norm.running_mean.double(), z.mean(0), rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(first.norm.running_var.double(), z.var(0, correction=0), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("norm", sorted(set(NORMS) - {"care", "re"}))
@any_algorithm
def test_other_methods_are_not_recalibrated(algo, norm):
    agent, replay, rng = trained(algo, norm=norm, updates=2)
    before, state = snapshot(agent), rng.bit_generator.state
    assert agent.recalibrate(replay, rng) is False
    assert changed(before, snapshot(agent)) == set()
    assert rng.bit_generator.state == state


@any_algorithm
def test_an_empty_replay_recalibrates_nothing(algo):
    agent = make_agent(algo)
    before = snapshot(agent)
    for replay in (empty_replay(algo), make_replay(algo, count=1)):
        assert agent.recalibrate(replay, np.random.default_rng(0)) is False
    assert changed(before, snapshot(agent)) == set()


def test_an_ordinary_network_with_care_recalibrates():
    agent, replay, rng = trained("td3", kind="ann")
    assert agent.recalibrate(replay, rng) is True
    agent, replay, rng = trained("td3", kind="ann", norm="none")
    assert agent.recalibrate(replay, rng) is False


@pytest.mark.parametrize("kind", ["spiking", "ann"])
@any_algorithm
def test_without_a_normaliser_there_is_none(algo, kind):
    """A baseline that normalised in secret would be no baseline."""
    agent = make_agent(algo, kind, "none")
    for network in networks(agent).values():
        assert not norms(network)
        assert not any(isinstance(m, torch.nn.modules.batchnorm._NormBase) for m in network.modules())
        assert not statistics(network)
    assert norms(make_agent(algo, kind, "care").policy)


def test_every_algorithm_is_covered():
    assert set(OPTIONS) == set(ALGORITHMS)

"""Every algorithm against a slow one written from its paper: same start, same batches, same noise, several updates."""

import numpy as np
import pytest
import torch
from agent_cases import HIGH, LOW, DoubleReplay, empty_replay, fill, make_agent, transitions
from slow_agents import STATISTICS, SlowDDPG, SlowDQN, SlowSAC, SlowTD3

from carebn.algorithm import ReplayBuffer

UPDATES = 4
F32, F64 = torch.float32, torch.float64
# A ReLU network with a norm in float32 is left out: the bias in front of the norm has gradient zero but for rounding,
# which Adam makes as large as any other.
CASES = [
    ("ann", "none", F32),
    ("ann", "care", F64),
    ("spiking", "none", F32),
    ("spiking", "care", F32),
    ("spiking", "care", F64),
    ("spiking", "bn", F64),
]
any_policy = pytest.mark.parametrize(
    ("kind", "norm", "dtype"), CASES, ids=[f"{k}-{n}-{str(d)[-2:]}" for k, n, d in CASES]
)


def disturb(*networks):
    """Targets that differ from the online networks, and larger gradients than fresh weights give."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for network in networks:
            for p in network.parameters():
                p.add_(0.3 * torch.randn(p.shape, generator=generator, dtype=p.dtype))
            for name, b in network.named_buffers():
                if name.endswith(("running_mean", "running_var")):
                    b.add_(torch.rand(b.shape, generator=generator, dtype=b.dtype))


def everything(network):
    named = dict(network.named_parameters()) | dict(network.named_buffers())
    wanted = {name for name, _ in network.named_parameters()}
    wanted |= {name for name in named if name.rpartition(".")[2] in STATISTICS}
    return {name: named[name].detach() for name in wanted}


def run_both(algo, agent, slow, dtype, updates=UPDATES):
    """The same updates on both, losses compared as they come."""
    data = transitions(algo)
    kind = DoubleReplay if dtype == F64 else ReplayBuffer
    replay = fill(empty_replay(algo, kind=kind), data)
    ours, theirs = np.random.default_rng(11), np.random.default_rng(11)
    for _ in range(updates):
        losses, expected = agent.update(replay, ours), slow.update(data, theirs)
        assert losses.keys() == expected.keys()
        for name, value in expected.items():
            close(losses[name], value, dtype, name)
        assert ours.bit_generator.state == theirs.bit_generator.state


def close(actual, expected, dtype, name=""):
    tolerance = 1e-5 if dtype == F32 else 1e-7  # SAC's temperature is float32 always
    message = (lambda text: f"{name}: {text}") if name else None
    torch.testing.assert_close(actual.double(), expected.double(), rtol=tolerance, atol=tolerance, msg=message)


def same_network(ours, slow, dtype):
    mine, theirs = everything(ours), slow.everything()
    assert mine.keys() == theirs.keys()
    for name in mine:
        close(mine[name], theirs[name], dtype, name)


def same_critic(ours, slow, dtype):
    pairs = zip(ours.parameters(), slow.parameters(), strict=True)
    for i, (a, b) in enumerate(pairs):
        close(a.detach(), b.detach(), dtype, f"critic parameter {i}")


def moved(network, before, share=0.5):
    """Guards the comparison: it means little if hardly anything was learnt."""
    after = everything(network)
    return sum(bool((after[n] != before[n]).any()) for n in after) >= share * len(after)


@any_policy
def test_td3(kind, norm, dtype):
    """Smoothing noise clipped and scaled per dimension, the smaller of two targets, delayed actor and targets."""
    noise = {"policy_noise": 1.2, "noise_clip": 0.9}
    agent = make_agent("td3", kind, norm, dtype=dtype, tau=0.2, actor_learning_rate=1e-3, **noise)
    disturb(agent.critic, agent.actor_target, agent.critic_target)
    slow = SlowTD3(agent, LOW, HIGH)
    before = {name: value.clone() for name, value in everything(agent.actor).items()}
    run_both("td3", agent, slow, dtype)
    same_network(agent.actor, slow.actor, dtype)
    same_network(agent.actor_target, slow.actor_target, dtype)
    for i in (0, 1):
        same_critic(agent.critic.single(i), slow.critics[i], dtype)
        same_critic(agent.critic_target.single(i), slow.critic_targets[i], dtype)
    assert slow.clipped_noise > 10
    assert slow.clipped_actions > 10
    assert moved(agent.actor, before)


@pytest.mark.parametrize("frequency", [1, 3])
def test_td3_acts_on_its_policy_frequency(frequency):
    agent = make_agent("td3", "ann", "none", tau=0.2, policy_frequency=frequency)
    disturb(agent.critic, agent.actor_target, agent.critic_target)
    slow = SlowTD3(agent, LOW, HIGH)
    run_both("td3", agent, slow, F32)
    same_network(agent.actor, slow.actor, F32)
    same_network(agent.actor_target, slow.actor_target, F32)


@any_policy
def test_ddpg(kind, norm, dtype):
    """The action enters the critic at its second layer; weight decay is part of the critic's gradient."""
    agent = make_agent("ddpg", kind, norm, dtype=dtype, tau=0.2, actor_learning_rate=1e-3)
    disturb(agent.critic, agent.actor_target, agent.critic_target)
    assert agent.options.critic_weight_decay == 0.01
    slow = SlowDDPG(agent, LOW, HIGH)
    before = {name: value.clone() for name, value in everything(agent.actor).items()}
    run_both("ddpg", agent, slow, dtype)
    same_network(agent.actor, slow.actor, dtype)
    same_network(agent.actor_target, slow.actor_target, dtype)
    same_critic(agent.critic, slow.critic, dtype)
    same_critic(agent.critic_target, slow.critic_target, dtype)
    assert moved(agent.actor, before)


@any_policy
def test_sac(kind, norm, dtype):
    """Next action from the current policy with moving statistics, both critics in the actor's loss, temperature."""
    agent = make_agent("sac", kind, norm, dtype=dtype, tau=0.2, actor_learning_rate=1e-3, alpha_learning_rate=0.05)
    disturb(agent.critic, agent.critic_target)
    slow = SlowSAC(agent, LOW, HIGH)
    before = {name: value.clone() for name, value in everything(agent.policy).items()}
    run_both("sac", agent, slow, dtype)
    same_network(agent.policy, slow.actor, dtype)
    for a, b in zip(agent.gaussian.log_std.parameters(), slow.log_std.parameters(), strict=True):
        close(a.detach(), b.detach(), dtype, "log_std")
    for i in (0, 1):
        same_critic(agent.critic.single(i), slow.critics[i], dtype)
        same_critic(agent.critic_target.single(i), slow.critic_targets[i], dtype)
    close(agent.log_alpha["value"].detach(), slow.log_alpha.detach(), F32, "log_alpha")
    assert abs(float(slow.log_alpha.detach())) > 0.05
    assert moved(agent.policy, before)


@pytest.mark.parametrize("interval", [3, 100])
@any_policy
def test_dqn(kind, norm, dtype, interval):
    """The best of the target's values, and a target that stands still between two copies."""
    agent = make_agent("dqn", kind, norm, dtype=dtype, target_interval=interval, learning_rate=1e-3)
    disturb(agent.q_target)
    slow = SlowDQN(agent)
    before = {name: value.clone() for name, value in everything(agent.policy).items()}
    run_both("dqn", agent, slow, dtype)
    same_network(agent.q_network, slow.network, dtype)
    same_network(agent.q_target, slow.target, dtype)
    assert moved(agent.policy, before)

"""Small agents and replays for the tests of the algorithms."""

import numpy as np
import torch

from carebn.algorithm import (
    DDPG,
    DQN,
    SAC,
    TD3,
    Batch,
    DDPGOptions,
    DQNOptions,
    GaussianPolicy,
    ReplayBuffer,
    SACOptions,
    TD3Options,
)
from carebn.network import ANNActor, ANNQNetwork, Critic, SpikingActor, SpikingQNetwork, TwinCritic

ALGORITHMS = ("td3", "ddpg", "sac", "dqn")
CONTINUOUS = ("td3", "ddpg", "sac")
OBS, ACTIONS = 3, 2
LOW, HIGH = (-1.0, 0.5), (2.0, 0.75)  # neither symmetric nor equal, so that a scalar scale would show
BYTES, CHOICES = 6, 3
SMALL = {"hidden": (7, 6), "time_steps": 3}
OPTIONS = {"td3": TD3Options, "ddpg": DDPGOptions, "sac": SACOptions, "dqn": DQNOptions}


class DoubleReplay(ReplayBuffer):
    """Hands out float64, for agents in float64."""

    def sample(self, batch, rng, device="cpu"):
        return Batch(*(x.double() if x.is_floating_point() else x for x in super().sample(batch, rng, device)))


def make_actor(kind="spiking", norm="care", seed=0, **options):
    torch.manual_seed(seed)
    if kind == "ann":
        return ANNActor(OBS, ACTIONS, norm=norm, hidden=(7, 6), low=LOW, high=HIGH, **options)
    return SpikingActor(OBS, ACTIONS, norm=norm, population=4, low=LOW, high=HIGH, **(SMALL | options))


def make_q_network(kind="spiking", norm="care", seed=0):
    torch.manual_seed(seed)
    if kind == "ann":
        return ANNQNetwork(BYTES, CHOICES, norm=norm, hidden=(7, 6))
    return SpikingQNetwork(BYTES, CHOICES, norm=norm, **SMALL)


def make_agent(algo, kind="spiking", norm="care", seed=0, dtype=torch.float32, **options):
    options = OPTIONS[algo](**({"batch_size": 8, "recalibration_batches": 3} | options))
    if algo == "dqn":
        return DQN(make_q_network(kind, norm, seed).to(dtype), CHOICES, options)
    actor = make_actor(kind, norm, seed).to(dtype)
    if algo == "ddpg":
        return DDPG(actor, Critic(OBS, ACTIONS, hidden=(9, 8), action_layer=1).to(dtype), options)
    critic = TwinCritic(OBS, ACTIONS, hidden=(9, 8)).to(dtype)
    if algo == "td3":
        return TD3(actor, critic, options)
    return SAC(GaussianPolicy(actor, OBS, hidden=10).to(dtype), critic, options)


def transitions(algo, count=40, seed=1, terminated=0.3):
    """(obs, action, reward, next_obs, terminated) as arrays."""
    rng = np.random.default_rng(seed)
    if algo == "dqn":
        obs, next_obs = rng.integers(0, 256, (2, count, BYTES), dtype=np.uint8)
        action = rng.integers(0, CHOICES, count)
    else:
        obs, next_obs = rng.standard_normal((2, count, OBS), dtype=np.float32)
        action = rng.uniform(LOW, HIGH, (count, ACTIONS)).astype(np.float32)
    reward = 3 * rng.standard_normal(count, dtype=np.float32)
    return obs, action, reward, next_obs, rng.random(count) < terminated


def fill(replay, data):
    for row in zip(*data, strict=True):
        replay.add(*row)
    return replay


def empty_replay(algo, capacity=64, kind=ReplayBuffer):
    if algo == "dqn":
        return kind(capacity, (BYTES,), np.uint8, ())
    return kind(capacity, (OBS,), np.float32, (ACTIONS,))


def make_replay(algo, count=40, seed=1, terminated=0.3, kind=ReplayBuffer):
    return fill(empty_replay(algo, max(count, 1), kind), transitions(algo, count, seed, terminated))


def some_obs(algo, count=5, seed=2):
    return transitions(algo, count, seed)[0]


def networks(agent):
    """All networks of an agent by name."""
    return {name: part for name, part in vars(agent).items() if isinstance(part, torch.nn.Module)}


def snapshot(agent):
    """Every parameter and buffer of every network, copied."""
    return {
        f"{name}.{key}": value.clone()
        for name, net in networks(agent).items()
        for key, value in net.state_dict().items()
    }


def changed(before, after):
    assert before.keys() == after.keys()
    return {key for key in before if not torch.equal(before[key], after[key])}

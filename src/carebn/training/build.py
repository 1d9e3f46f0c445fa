"""From a configuration and an environment's spaces to networks and an agent."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import nn

from carebn.algorithm import (
    DDPG,
    DQN,
    SAC,
    TD3,
    Agent,
    GaussianPolicy,
    PoissonAgent,
    ProxyDDPG,
    ProxyOptions,
    ProxyTD3,
    StandardisedAgent,
)
from carebn.limits import check_memory
from carebn.network import Actor, ANNActor, ANNQNetwork, Critic, QNetwork, SpikingActor, SpikingQNetwork, TwinCritic
from carebn.network.randomness import is_random
from carebn.neuron import make_neuron
from carebn.training import seeds
from carebn.training.config import TrainConfig
from carebn.training.environment import Spaces
from carebn.training.methods import find_method

POPULATION = 10  # neurons that speak for one number of an observation or an action


def make_policy(config: TrainConfig, spaces: Spaces) -> nn.Module:
    """The network that is deployed: an actor, or for dqn a Q-network."""
    _check_fit(config, spaces)
    return _q_network(config, spaces) if config.algo == "dqn" else _actor(config, spaces)


def make_agent(config: TrainConfig, spaces: Spaces) -> Agent:
    """Networks from the run's seed, on the run's device, in training mode."""
    device = _device(config.device)
    _check_fit(config, spaces)
    with seeds.torch_seeded(seeds.number(config.seed, seeds.NETWORKS)):
        if config.algo == "dqn":
            assert spaces.actions is not None
            return DQN(_q_network(config, spaces).to(device), spaces.actions, config.algorithm_options())
        zscored = config.observation == "zscore"
        # The agent then works on z-scores, and what it deploys makes them.
        agent = _actor_critic(replace(config, observation="raw") if zscored else config, spaces, device)
        if zscored:
            deployed = _actor(config, spaces).to(device)
            assert isinstance(deployed, SpikingActor)
            agent = StandardisedAgent(agent, deployed)
        return PoissonAgent(agent) if is_random(agent.policy) else agent


def _actor_critic(config: TrainConfig, spaces: Spaces, device: torch.device) -> Agent:
    options = config.algorithm_options()
    actor = _actor(config, spaces)
    action_dim = len(spaces.action_shape) and spaces.action_shape[0]
    if config.algo == "sac":
        critic = TwinCritic(spaces.obs_dim, action_dim).to(device)
        return SAC(GaussianPolicy(actor, spaces.obs_dim).to(device), critic, options)
    if config.algo == "ddpg":
        ddpg_critic = Critic(spaces.obs_dim, action_dim, hidden=(400, 300), action_layer=1).to(device)
        if config.target == "proxy":
            return ProxyDDPG(actor.to(device), ddpg_critic, options, *_proxy(config, spaces, device))
        return DDPG(actor.to(device), ddpg_critic, options)
    critic = TwinCritic(spaces.obs_dim, action_dim).to(device)
    if config.target == "proxy":
        return ProxyTD3(actor.to(device), critic, options, *_proxy(config, spaces, device))
    return TD3(actor.to(device), critic, options)


def _proxy(config: TrainConfig, spaces: Spaces, device: torch.device) -> tuple[ANNActor, ProxyOptions]:
    options = config.proxy_options()
    bounds = _bounds(spaces)
    return ANNActor(spaces.obs_dim, len(bounds["low"]), hidden=options.hidden, **bounds).to(device), options


def _check_fit(config: TrainConfig, spaces: Spaces) -> None:
    discrete = spaces.actions is not None
    if discrete != (config.algo == "dqn"):
        right = "dqn" if discrete else "td3, ddpg or sac"
        kind = "discrete" if discrete else "continuous"
        raise ValueError(f"{config.env_id} has {kind} actions, which {config.algo} cannot choose; use --algo {right}")
    if config.raw_bytes and spaces.obs_dtype != np.uint8:
        raise ValueError(f"--raw-bytes does not apply: {config.env_id} does not give its observations as bytes")
    _check_sizes(config, spaces)


def _check_sizes(config: TrainConfig, spaces: Spaces) -> None:
    """At least so much: weights with gradients and two moments each, and of a batch every current and spike."""
    wide = 1 if config.algo == "dqn" or not find_method(config.method).spiking else POPULATION
    ends = spaces.obs_dim * wide, (spaces.actions or sum(spaces.action_shape)) * wide
    steps = config.time_steps if find_method(config.method).spiking else 1
    needed = 0
    for hidden, times in ((config.hidden, steps), (config.proxy_hidden or (1,), 1)):
        sizes = (ends[0], *hidden, ends[1])
        needed += 4 * 4 * sum(a * b for a, b in pairwise(sizes)) + 4 * 2 * times * (config.batch_size or 1) * sum(sizes)
    check_memory("a network of these sizes", needed, "choose a smaller --hidden, --time-steps or --batch-size")


def _device(name: str) -> torch.device:
    if name.split(":")[0] not in ("cpu", "cuda"):
        raise ValueError(f"unknown device {name!r}; use cpu or cuda")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ValueError(f"unknown device {name!r}; use cpu or cuda") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError("--device cuda was asked for, but torch finds no usable graphics card; use --device cpu")
    return device


def _norm_options(config: TrainConfig) -> dict[str, Any]:
    return {} if find_method(config.method).norm == "none" else {"momentum": config.norm_momentum}


def _spiking_options(config: TrainConfig) -> dict[str, Any]:
    norm_options = _norm_options(config)
    return {
        "norm": find_method(config.method).norm,
        "neuron": make_neuron(config.neuron, surrogate=config.surrogate),
        "hidden": config.hidden,
        "time_steps": config.time_steps,
        "readout": config.readout,
        "norm_options": norm_options and norm_options | {"init": config.norm_init},
    }


def _ordinary_options(config: TrainConfig) -> dict[str, Any]:
    norm = find_method(config.method).norm
    return {"norm": norm, "hidden": config.hidden, "norm_options": _norm_options(config)}


def _bounds(spaces: Spaces) -> dict[str, Any]:
    assert spaces.low is not None
    assert spaces.high is not None
    return {"low": torch.from_numpy(spaces.low), "high": torch.from_numpy(spaces.high)}


def _actor(config: TrainConfig, spaces: Spaces) -> Actor:
    bounds = _bounds(spaces)
    if not find_method(config.method).spiking:
        return ANNActor(spaces.obs_dim, len(bounds["low"]), **bounds, **_ordinary_options(config))
    return SpikingActor(
        spaces.obs_dim,
        len(bounds["low"]),
        readout_init=config.readout_init,
        intralayer=config.intralayer,
        encoder_options={
            "coding": config.coding,
            "observation": config.observation,
            "reset": config.encoder_reset,
            "mean_range": config.encoder_range,
            "std": config.encoder_std,
        },
        **bounds,
        **_spiking_options(config),
    )


def _q_network(config: TrainConfig, spaces: Spaces) -> QNetwork:
    assert spaces.actions is not None
    common: dict[str, Any] = {"obs_dim": spaces.obs_dim, "actions": spaces.actions, "raw_bytes": config.raw_bytes}
    if find_method(config.method).spiking:
        return SpikingQNetwork(**common, **_spiking_options(config))
    return ANNQNetwork(**common, **_ordinary_options(config))

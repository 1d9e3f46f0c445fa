"""From a configuration and an environment's spaces to networks and an agent."""

from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import nn

from carebn.algorithm import (
    ALGORITHMS,
    Agent,
    PoissonAgent,
    ProxyOptions,
    Setup,
    StandardisedAgent,
    find_algorithm,
)
from carebn.limits import check_memory
from carebn.network import Actor, ANNActor, ANNQNetwork, QNetwork, SpikingActor, SpikingQNetwork
from carebn.network.randomness import is_random
from carebn.neuron import make_neuron
from carebn.training import seeds, sparsity
from carebn.training.config import TrainConfig
from carebn.training.environment import Spaces
from carebn.training.methods import find_method

POPULATION = 10  # neurons that speak for one number of an observation or an action


def make_policy(config: TrainConfig, spaces: Spaces) -> nn.Module:
    """The network that is deployed: an actor, or for discrete actions a Q-network."""
    _check_fit(config, spaces)
    return _actor(config, spaces) if spaces.actions is None else _q_network(config, spaces)


def make_agent(config: TrainConfig, spaces: Spaces) -> Agent:
    """Networks from the run's seed, on the run's device, in training mode."""
    device = _device(config.device)
    with seeds.torch_seeded(seeds.number(config.seed, seeds.NETWORKS)):
        zscored = config.observation == "zscore"
        # The agent then works on z-scores, and what it deploys makes them.
        agent = _learner(replace(config, observation="raw") if zscored else config, spaces, device)
        if zscored:
            deployed = _actor(config, spaces).to(device)
            assert isinstance(deployed, SpikingActor)
            agent = StandardisedAgent(agent, deployed)
        return PoissonAgent(agent) if is_random(agent.policy) else agent


def _learner(config: TrainConfig, spaces: Spaces, device: torch.device) -> Agent:
    policy = make_policy(config, spaces).to(device)
    actions = spaces.actions if spaces.actions is not None else sum(spaces.action_shape)
    proxy = partial(_proxy, config, spaces, device) if config.target == "proxy" else None
    setup = Setup(policy, spaces.obs_dim, actions, config.algorithm_options(), device, proxy)
    agent = find_algorithm(config.algo).build(setup)
    if config.spike_penalty or config.target_rate:
        sparsity.penalise(agent, policy, config.spike_penalty, config.target_rate)
    return agent


def _proxy(config: TrainConfig, spaces: Spaces, device: torch.device) -> tuple[ANNActor, ProxyOptions]:
    options = config.proxy_options()
    bounds = _bounds(spaces)
    return ANNActor(spaces.obs_dim, len(bounds["low"]), hidden=options.hidden, **bounds).to(device), options


def _check_fit(config: TrainConfig, spaces: Spaces) -> None:
    discrete = spaces.actions is not None
    if discrete != find_algorithm(config.algo).discrete:
        *others, last = (name for name, algorithm in ALGORITHMS.items() if algorithm.discrete == discrete)
        right = " or ".join([", ".join(others), last] if others else [last])
        kind = "discrete" if discrete else "continuous"
        raise ValueError(f"{config.env_id} has {kind} actions, which {config.algo} cannot choose; use --algo {right}")
    if config.raw_bytes and spaces.obs_dtype != np.uint8:
        raise ValueError(f"--raw-bytes does not apply: {config.env_id} does not give its observations as bytes")
    _check_sizes(config, spaces)


def _check_sizes(config: TrainConfig, spaces: Spaces) -> None:
    """At least so much: weights with gradients and two moments each, and of a batch every current and spike."""
    wide = 1 if spaces.actions is not None or not find_method(config.method).spiking else POPULATION
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
    return {} if config.norm_momentum is None else {"momentum": config.norm_momentum}


def _spiking_options(config: TrainConfig) -> dict[str, Any]:
    norm = find_method(config.method).norm
    return {
        "norm": norm,
        "neuron": make_neuron(config.neuron, surrogate=config.surrogate),
        "hidden": config.hidden,
        "time_steps": config.time_steps,
        "readout": config.readout,
        "norm_options": {} if norm == "none" else _norm_options(config) | {"init": config.norm_init},
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

"""From a configuration and an environment's spaces to networks and an agent."""

from typing import Any

import torch
from torch import nn

from carebn.algorithm import DDPG, DQN, SAC, TD3, Agent, GaussianPolicy
from carebn.network import Actor, ANNActor, ANNQNetwork, Critic, QNetwork, SpikingActor, SpikingQNetwork, TwinCritic
from carebn.training import seeds
from carebn.training.config import TrainConfig
from carebn.training.environment import Spaces
from carebn.training.methods import find_method


def make_policy(config: TrainConfig, spaces: Spaces) -> nn.Module:
    """The network that is deployed: an actor, or for dqn a Q-network."""
    _check_fit(config, spaces)
    return _q_network(config, spaces) if config.algo == "dqn" else _actor(config, spaces)


def make_agent(config: TrainConfig, spaces: Spaces) -> Agent:
    """Networks from the run's seed, on the run's device, in training mode."""
    device = _device(config.device)
    _check_fit(config, spaces)
    options = config.algorithm_options()
    with seeds.torch_seeded(seeds.number(config.seed, seeds.NETWORKS)):
        if spaces.actions is not None:
            return DQN(_q_network(config, spaces).to(device), spaces.actions, options)
        actor = _actor(config, spaces)
        action_dim = len(spaces.action_shape) and spaces.action_shape[0]
        if config.algo == "ddpg":
            ddpg_critic = Critic(spaces.obs_dim, action_dim, hidden=(400, 300), action_layer=1)
            return DDPG(actor.to(device), ddpg_critic.to(device), options)
        critic = TwinCritic(spaces.obs_dim, action_dim).to(device)
        if config.algo == "td3":
            return TD3(actor.to(device), critic, options)
        return SAC(GaussianPolicy(actor, spaces.obs_dim).to(device), critic, options)


def _check_fit(config: TrainConfig, spaces: Spaces) -> None:
    discrete = spaces.actions is not None
    if discrete != (config.algo == "dqn"):
        right = "dqn" if discrete else "td3, ddpg or sac"
        kind = "discrete" if discrete else "continuous"
        raise ValueError(f"{config.env_id} has {kind} actions, which {config.algo} cannot choose; use --algo {right}")


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


def _spiking_options(config: TrainConfig) -> dict[str, Any]:
    method = find_method(config.method)
    return {
        "norm": method.norm,
        "neuron": config.neuron,
        "hidden": config.hidden,
        "time_steps": config.time_steps,
        "norm_options": {} if method.norm == "none" else {"init": config.norm_init},
    }


def _actor(config: TrainConfig, spaces: Spaces) -> Actor:
    method = find_method(config.method)
    assert spaces.low is not None
    assert spaces.high is not None
    bounds: dict[str, Any] = {"low": torch.from_numpy(spaces.low), "high": torch.from_numpy(spaces.high)}
    if method.spiking:
        return SpikingActor(spaces.obs_dim, len(spaces.low), **bounds, **_spiking_options(config))
    return ANNActor(spaces.obs_dim, len(spaces.low), norm=method.norm, hidden=config.hidden, **bounds)


def _q_network(config: TrainConfig, spaces: Spaces) -> QNetwork:
    method = find_method(config.method)
    assert spaces.actions is not None
    if method.spiking:
        return SpikingQNetwork(spaces.obs_dim, spaces.actions, raw_bytes=config.raw_bytes, **_spiking_options(config))
    return ANNQNetwork(
        spaces.obs_dim, spaces.actions, norm=method.norm, hidden=config.hidden, raw_bytes=config.raw_bytes
    )

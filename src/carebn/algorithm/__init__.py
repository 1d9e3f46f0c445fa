"""Learning algorithms: one file each, four verbs."""

from carebn.algorithm.base import Agent
from carebn.algorithm.ddpg import DDPG, DDPGOptions
from carebn.algorithm.dqn import DQN, DQNOptions
from carebn.algorithm.poisson import PoissonAgent
from carebn.algorithm.proxy import ProxyDDPG, ProxyOptions, ProxyTD3, proxy_table
from carebn.algorithm.replay import Batch, ReplayBuffer
from carebn.algorithm.sac import SAC, GaussianPolicy, SACOptions
from carebn.algorithm.standardised import StandardisedAgent
from carebn.algorithm.td3 import TD3, TD3Options

__all__ = [
    "DDPG",
    "DQN",
    "SAC",
    "TD3",
    "Agent",
    "Batch",
    "DDPGOptions",
    "DQNOptions",
    "GaussianPolicy",
    "PoissonAgent",
    "ProxyDDPG",
    "ProxyOptions",
    "ProxyTD3",
    "ReplayBuffer",
    "SACOptions",
    "StandardisedAgent",
    "TD3Options",
    "proxy_table",
]

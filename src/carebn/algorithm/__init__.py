"""Learning algorithms: one file each, four verbs, a record of what the other rooms may know of it."""

from carebn.algorithm import ddpg, dqn, sac, td3
from carebn.algorithm.base import Agent, BaseAgent, Parts
from carebn.algorithm.ddpg import DDPG, DDPGOptions, ProxyDDPG
from carebn.algorithm.dqn import DQN, DQNOptions
from carebn.algorithm.poisson import PoissonAgent
from carebn.algorithm.proxy import ProxyOptions, proxy_table
from carebn.algorithm.record import Algorithm, Sampling, Setup
from carebn.algorithm.replay import Batch, ReplayBuffer
from carebn.algorithm.sac import SAC, GaussianPolicy, SACOptions
from carebn.algorithm.standardised import StandardisedAgent
from carebn.algorithm.td3 import TD3, ProxyTD3, TD3Options
from carebn.errors import unknown_name

#: Algorithms by the names that ``--algo`` takes; those of your own may be added from a module that --import names.
ALGORITHMS: dict[str, Algorithm] = {
    "td3": td3.RECORD,
    "ddpg": ddpg.RECORD,
    "sac": sac.RECORD,
    "dqn": dqn.RECORD,
}


def find_algorithm(name: str) -> Algorithm:
    """The record of the algorithm of that name; an unknown one is a ValueError that names the others."""
    if name not in ALGORITHMS:
        raise ValueError(unknown_name("algorithm", name, ALGORITHMS))
    return ALGORITHMS[name]


__all__ = [
    "ALGORITHMS",
    "DDPG",
    "DQN",
    "SAC",
    "TD3",
    "Agent",
    "Algorithm",
    "BaseAgent",
    "Batch",
    "DDPGOptions",
    "DQNOptions",
    "GaussianPolicy",
    "Parts",
    "PoissonAgent",
    "ProxyDDPG",
    "ProxyOptions",
    "ProxyTD3",
    "ReplayBuffer",
    "SACOptions",
    "Sampling",
    "Setup",
    "StandardisedAgent",
    "TD3Options",
    "find_algorithm",
    "proxy_table",
]

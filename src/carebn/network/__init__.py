"""Networks: observations become spikes, spikes become actions and values."""

from carebn.network.actor import ANNActor, SpikingActor
from carebn.network.critic import Critic, TwinCritic
from carebn.network.decoder import MembraneReadout, PopulationDecoder
from carebn.network.encoder import PopulationEncoder, ZScore
from carebn.network.layer import SpikingLayer
from carebn.network.qnetwork import SpikingQNetwork

__all__ = [
    "ANNActor",
    "Critic",
    "MembraneReadout",
    "PopulationDecoder",
    "PopulationEncoder",
    "SpikingActor",
    "SpikingLayer",
    "SpikingQNetwork",
    "TwinCritic",
    "ZScore",
]

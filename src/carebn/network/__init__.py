"""Networks: observations become spikes, spikes become actions and values."""

from carebn.network.actor import SpikingActor
from carebn.network.ann import ANNActor
from carebn.network.critic import Critic, TwinCritic
from carebn.network.decoder import MembraneReadout, PopulationDecoder
from carebn.network.encoder import PopulationEncoder, ZScore
from carebn.network.intralayer import IntralayerSpikingLayer, PopulationConnections
from carebn.network.layer import SpikingLayer
from carebn.network.qnetwork import ANNQNetwork, SpikingQNetwork

#: What decides actions that are numbers: ``actor(obs: [B, obs_dim]) → [B, action_dim]``.
Actor = SpikingActor | ANNActor
#: What gives a value to each of several actions: ``network(obs: [B, obs_dim]) → [B, actions]``.
QNetwork = SpikingQNetwork | ANNQNetwork

__all__ = [
    "ANNActor",
    "ANNQNetwork",
    "Actor",
    "Critic",
    "IntralayerSpikingLayer",
    "MembraneReadout",
    "PopulationConnections",
    "PopulationDecoder",
    "PopulationEncoder",
    "QNetwork",
    "SpikingActor",
    "SpikingLayer",
    "SpikingQNetwork",
    "TwinCritic",
    "ZScore",
]

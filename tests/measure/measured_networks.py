"""Networks of every kind that can be measured, with statistics that are not their initial ones."""

from collections.abc import Callable

import torch
from torch import nn

from carebn.network import ANNActor, ANNQNetwork, SpikingActor, SpikingQNetwork
from carebn.norm import Norm

NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "care, clif": lambda: SpikingActor(3, 2, hidden=(12, 9)),
    "tab, lif": lambda: SpikingActor(3, 2, hidden=(12, 9), norm="tab", neuron="lif", low=[-2, 0], high=[1, 5]),
    "bntt, dn": lambda: SpikingActor(3, 2, hidden=(12,), norm="bntt", neuron="dn", time_steps=7),
    "none, dn-authors": lambda: SpikingActor(3, 1, hidden=(12, 9, 5), norm="none", neuron="dn-authors"),
    "rate, threshold": lambda: SpikingActor(
        3, 2, hidden=(12, 9), readout="rate", encoder_options={"reset": "threshold"}
    ),
    "analogue": lambda: SpikingActor(3, 2, hidden=(12, 9), encoder_options={"coding": "analogue"}),
    "q": lambda: SpikingQNetwork(3, 4, hidden=(12, 9)),
    "q, tdbn": lambda: SpikingQNetwork(3, 4, hidden=(12,), norm="tdbn", neuron="clif", time_steps=3),
    "ann": lambda: ANNActor(3, 2, hidden=(12, 9)),
    "ann, care": lambda: ANNActor(3, 2, hidden=(12, 9), norm="care"),
    "ann q": lambda: ANNQNetwork(3, 4, hidden=(12, 9)),
}
SPIKING = [name for name in NETWORKS if not name.startswith("ann")]


def make(name: str, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    network = NETWORKS[name]()
    for module in network.modules():
        if isinstance(module, Norm):
            module.running_mean.uniform_(-0.3, 0.3)
            module.running_var.uniform_(0.02, 0.5)
    return network.eval()

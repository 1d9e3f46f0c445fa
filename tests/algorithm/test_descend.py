"""One step of an optimiser: the right parameters, by the right gradient, whatever its layout in memory."""

import copy

import pytest
import torch
from agent_cases import make_actor, make_q_network
from slow_agents import SlowAdam

from carebn.algorithm.base import adam, descend
from carebn.network import Critic, TwinCritic

NETWORKS = {
    "twin": lambda: TwinCritic(3, 2, hidden=(9, 8)),
    "critic": lambda: Critic(3, 2, hidden=(9, 8), action_layer=1),
    "ann": lambda: make_actor("ann", "care"),
    "spiking": make_actor,
    "q": make_q_network,
}


def loss_of(name, network):
    generator = torch.Generator().manual_seed(3)
    obs, action = torch.randn(8, 3, generator=generator), torch.randn(8, 2, generator=generator)
    if name == "q":
        return network(torch.cat([obs, action, obs[:, :1]], 1)).square().mean()
    return (network(obs, action) if name in ("twin", "critic") else network(obs)).square().mean()


@pytest.mark.parametrize("decay", [0.0, 0.01])
@pytest.mark.parametrize("name", NETWORKS)
def test_every_parameter_takes_its_own_gradient(name, decay):
    """A gradient may come with other strides than its parameter, and fused Adam walks through both in memory order."""
    torch.manual_seed(1)
    network = NETWORKS[name]()
    slow = copy.deepcopy(network)
    optimiser, by_hand = adam(network, 1e-2, decay), SlowAdam(slow.parameters(), 1e-2, decay)
    for _ in range(2):
        descend(optimiser, loss_of(name, network))
        by_hand.minimise(loss_of(name, slow))
    for (key, ours), theirs in zip(network.named_parameters(), slow.parameters(), strict=True):
        if name == "ann" and key in ("body.0.bias", "body.3.bias"):
            continue  # in front of a norm: the gradient is zero but for rounding
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5, msg=lambda text, key=key: f"{key}: {text}")


def test_other_networks_get_no_gradient():
    """The actor's loss runs through the critic, which must not learn from it."""
    actor, critic = make_actor(), TwinCritic(3, 2)
    before = copy.deepcopy(critic.state_dict())
    obs = torch.randn(8, 3, generator=torch.Generator().manual_seed(3))
    descend(adam(actor, 1e-2), -critic.first(obs, actor(obs)).mean())
    assert all(p.grad is None for p in critic.parameters())
    assert all(torch.equal(before[key], value) for key, value in critic.state_dict().items())

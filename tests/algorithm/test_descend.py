"""One step of an optimiser: the right parameters, by the right gradient, whatever its layout in memory."""

import copy

import pytest
import torch
from agent_cases import make_actor, make_q_network
from slow_agents import SlowAdam

from carebn.algorithm.optimiser import adam, descend
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
    descend(adam(actor, 1e-2), -critic(obs, actor(obs)).mean())
    assert all(p.grad is None for p in critic.parameters())
    assert all(torch.equal(before[key], value) for key, value in critic.state_dict().items())


def test_a_gradient_from_outside_is_where_the_descent_starts():
    """descend(outputs, grad) is descend of a loss whose gradient with respect to the outputs that is."""
    one = make_actor()
    other = copy.deepcopy(one)
    obs = torch.randn(8, 3, generator=torch.Generator().manual_seed(3))
    weights = torch.randn(one(obs).shape, generator=torch.Generator().manual_seed(4))
    descend(adam(one, 1e-2), one(obs), weights)
    descend(adam(other, 1e-2), (other(obs) * weights).sum())
    for ours, theirs in zip(one.parameters(), other.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_state_and_steps_are_those_of_torch():
    """Bit for bit, also when the state changes hands in the middle, and when the learning rate is changed."""
    ours, theirs = torch.nn.Linear(5, 3), torch.nn.Linear(5, 3)
    theirs.load_state_dict(ours.state_dict())
    lean, plain = adam(ours, 1e-2, 0.1), torch.optim.Adam(theirs.parameters(), lr=1e-2, weight_decay=0.1, fused=True)
    x = torch.randn(7, 5, generator=torch.Generator().manual_seed(0))
    for step in range(6):
        if step == 2:
            lean.load_state_dict(copy.deepcopy(plain.state_dict()))
        if step == 4:
            lean.param_groups[0]["lr"] = plain.param_groups[0]["lr"] = 1e-3
        descend(lean, ours(x).square().mean())
        plain.zero_grad()
        theirs(x).square().mean().backward()
        plain.step()
        assert torch.equal(ours.weight, theirs.weight)
        assert torch.equal(ours.bias, theirs.bias)
    for mine, slot in zip(lean.state_dict()["state"].values(), plain.state_dict()["state"].values(), strict=True):
        assert mine.keys() == slot.keys()
        assert all(torch.equal(mine[name], slot[name]) for name in slot)


def test_without_the_function_that_torch_keeps_to_itself(monkeypatch):
    """The same to rounding, and the state can change hands in the middle, either way."""
    hidden, usual = (torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.Linear(4, 3)) for _ in range(2))
    hidden.load_state_dict(usual.state_dict())
    ours, theirs = adam(hidden, 1e-2, 0.1), adam(usual, 1e-2, 0.1)
    x = torch.randn(7, 5, generator=torch.Generator().manual_seed(0))
    for step in range(9):
        if step == 6:
            ours.load_state_dict(copy.deepcopy(theirs.state_dict()))
        descend(theirs, usual(x).square().mean())
        with monkeypatch.context() as patch:
            if step not in (3, 4):
                patch.delattr(torch, "_fused_adam_")
            descend(ours, hidden(x).square().mean())
        assert all(parameter.grad is None for parameter in hidden.parameters())
        torch.testing.assert_close(list(hidden.parameters()), list(usual.parameters()), rtol=1e-4, atol=1e-6)
    for mine, slot in zip(ours.state_dict()["state"].values(), theirs.state_dict()["state"].values(), strict=True):
        assert mine["step"] == slot["step"] == 9
        torch.testing.assert_close(mine, slot, rtol=1e-4, atol=1e-6)

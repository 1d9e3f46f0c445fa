"""Critics against their formulas, and two at once against one at a time."""

import math

import pytest
import torch

from carebn.network import Critic, TwinCritic


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_action_with_the_observation():
    """Q = w₃·relu(W₂·relu(W₁·[o, a] + b₁) + b₂) + b₃."""
    torch.manual_seed(0)
    critic = Critic(5, 2, hidden=(12, 9)).double()
    first, second, head = critic.layers
    obs, action = random(6, 5), random(6, 2, seed=1)
    x = torch.relu(torch.cat([obs, action], 1) @ first.weight.t() + first.bias)
    x = torch.relu(x @ second.weight.t() + second.bias)
    expected = (x @ head.weight.t() + head.bias)[:, 0]
    q = critic(obs, action)
    assert q.shape == (6,)
    torch.testing.assert_close(q, expected, rtol=1e-12, atol=1e-13)


def test_action_at_the_second_layer():
    """DDPG: the observation alone through 400, then with the action through 300."""
    torch.manual_seed(0)
    critic = Critic(5, 2, hidden=(400, 300), action_layer=1).double()
    first, second, head = critic.layers
    assert [tuple(layer.weight.shape) for layer in critic.layers] == [(400, 5), (300, 402), (1, 300)]
    obs, action = random(6, 5), random(6, 2, seed=1)
    x = torch.relu(obs @ first.weight.t() + first.bias)
    x = torch.relu(torch.cat([x, action], 1) @ second.weight.t() + second.bias)
    expected = (x @ head.weight.t() + head.bias)[:, 0]
    torch.testing.assert_close(critic(obs, action), expected, rtol=1e-12, atol=1e-13)


def test_action_at_the_output():
    """Linear in the action then: the slope is the last weights of the head."""
    critic = Critic(5, 2, hidden=(12,), action_layer=1).double()
    action = random(6, 2, seed=1).requires_grad_()
    critic(random(6, 5), action).sum().backward()
    torch.testing.assert_close(action.grad, critic.layers[1].weight[0, -2:].detach().expand(6, 2))


@pytest.mark.parametrize("action_layer", [-1, 3])
def test_an_action_layer_that_does_not_exist_is_refused(action_layer):
    with pytest.raises(ValueError, match=r"0\.\.2"):
        Critic(5, 2, hidden=(12, 9), action_layer=action_layer)


@pytest.mark.parametrize("hidden", [(12, 9), (7,), (8, 8, 8), ()])
def test_twin_equals_its_two_critics(hidden):
    """Values, and gradients of every parameter, of the observation and of the action."""
    torch.manual_seed(0)
    twin = TwinCritic(5, 2, hidden=hidden)
    obs, action = (x.float().requires_grad_() for x in (random(6, 5), random(6, 2, seed=1)))
    weights = random(2, 6, seed=2).float()
    q = twin(obs, action)
    assert q.shape == (2, 6)
    (q * weights).sum().backward()
    obs_grad, action_grad = torch.zeros_like(obs), torch.zeros_like(action)
    for index in (0, 1):
        single = twin.single(index)
        o, a = obs.detach().clone().requires_grad_(), action.detach().clone().requires_grad_()
        value = single(o, a)
        torch.testing.assert_close(q[index], value)
        (value * weights[index]).sum().backward()
        obs_grad += o.grad
        action_grad += a.grad
        assert len(single.layers) == len(twin.weights) == len(hidden) + 1
        for layer, weight, bias in zip(single.layers, twin.weights, twin.biases, strict=True):
            torch.testing.assert_close(weight.grad[index], layer.weight.grad)
            torch.testing.assert_close(bias.grad[index, 0], layer.bias.grad)
    torch.testing.assert_close(obs.grad, obs_grad)
    torch.testing.assert_close(action.grad, action_grad)


def test_twins_are_independent():
    """They start apart, and the loss of one leaves the other alone."""
    torch.manual_seed(0)
    twin = TwinCritic(5, 2, hidden=(12, 9))
    obs, action = random(6, 5).float(), random(6, 2).float()
    q = twin(obs, action)
    assert (q[0] - q[1]).abs().min() > 0
    q[0].sum().backward()
    for parameter in (*twin.weights, *twin.biases):
        assert parameter.grad[0].abs().max() > 0
        assert (parameter.grad[1] == 0).all()


def test_twin_starts_as_linear_layers_do():
    """Uniform within ±1/√(inputs), weights and biases."""
    torch.manual_seed(0)
    twin = TwinCritic(30, 6, hidden=(256, 256))
    for weight, bias in zip(twin.weights, twin.biases, strict=True):
        bound = 1 / math.sqrt(weight.shape[2])
        for index in (0, 1):
            assert weight[index].abs().max() <= bound
            assert bias[index].abs().max() <= bound
            assert weight[index].std().item() == pytest.approx(bound / math.sqrt(3), rel=0.1)


def test_single_is_a_copy():
    twin = TwinCritic(5, 2, hidden=(12,))
    single = twin.single(0)
    before = twin.weights[0].clone()
    with torch.no_grad():
        single.layers[0].weight.zero_()
    assert torch.equal(twin.weights[0], before)


def test_single_keeps_the_precision():
    """A float64 twin must not lose half of its digits on the way."""
    twin = TwinCritic(5, 2, hidden=(12,)).double()
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.copy_(random(*parameter.shape))
    obs, action = random(6, 5), random(6, 2, seed=1)
    single = twin.single(1)
    assert single.layers[0].weight.dtype == torch.float64
    torch.testing.assert_close(single(obs, action), twin(obs, action)[1], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("hidden", [(), (6,), (16, 9), (7, 8, 9)])
def test_squared_error_and_slope_equal_autograd(hidden):
    torch.manual_seed(0)
    critic = TwinCritic(4, 3, hidden=hidden)
    obs, action, target = torch.randn(10, 4), torch.randn(10, 3, requires_grad=True), torch.randn(10)
    singles = [critic.single(i) for i in range(2)]
    q = torch.stack([single(obs, action) for single in singles])
    values, loss, gradients = critic.squared_error(obs, action.detach(), target)
    torch.testing.assert_close(values, q.detach())
    expected_loss = ((q - target) ** 2).mean(1).sum()
    torch.testing.assert_close(loss, expected_loss.detach())
    expected = torch.autograd.grad(expected_loss, [p for s in singles for p in s.parameters()], retain_graph=True)
    layers = len(hidden) + 1
    for i in range(layers):
        for j in range(2):
            weight, bias = expected[2 * layers * j + 2 * i : 2 * layers * j + 2 * i + 2]
            torch.testing.assert_close(gradients[i][j], weight)
            torch.testing.assert_close(gradients[layers + i][j, 0], bias)
    assert [g.shape for g in gradients] == [p.shape for p in critic.parameters()]
    first, slope = critic.first_and_slope(obs, action.detach())
    torch.testing.assert_close(first, q[0].detach())
    torch.testing.assert_close(slope, torch.autograd.grad(q[0].sum(), action)[0])

"""Exploring: noise in units of half the range, kept within bounds; SAC's own spread; DQN's random share."""

import copy
import math

import numpy as np
import pytest
import torch
from agent_cases import CHOICES, HIGH, LOW, make_actor, make_agent, make_replay, some_obs
from torch.distributions import AffineTransform, Independent, Normal, TanhTransform, TransformedDistribution

from carebn.algorithm import GaussianPolicy

REACH = (np.array(HIGH) - np.array(LOW)) / 2


def learnt(algo, **options):
    agent, replay, rng = make_agent(algo, **options), make_replay(algo), np.random.default_rng(6)
    for _ in range(3):
        agent.update(replay, rng)
    return agent


@pytest.mark.parametrize("kind", ["spiking", "ann"])
@pytest.mark.parametrize("algo", ["td3", "ddpg"])
def test_gaussian_noise_relative_to_half_the_range(algo, kind):
    agent = learnt(algo, kind=kind, exploration_noise=0.6)
    obs = some_obs(algo, 200)
    noise = np.random.default_rng(5).standard_normal((200, 2), dtype=np.float32)
    free = agent.act(obs, None) + 0.6 * REACH * noise
    action = agent.act(obs, np.random.default_rng(5))
    np.testing.assert_allclose(action, np.clip(free, LOW, HIGH), rtol=1e-5, atol=1e-6)
    assert ((action < free - 1e-3).any(0) | (action > free + 1e-3).any(0)).all(), "nothing was clipped"


def test_sac_explores_by_its_own_spread_with_moving_statistics():
    agent = learnt("sac")
    obs = torch.from_numpy(some_obs("sac", 20))
    noise = torch.from_numpy(np.random.default_rng(5).standard_normal((20, 2), dtype=np.float32))
    twin = copy.deepcopy(agent.gaussian).eval()
    with torch.no_grad():
        u = twin.actor.potential(obs) + twin.log_std(obs).exp() * noise
        expected = torch.tensor(LOW) + torch.tensor(REACH) * (torch.tanh(u) + 1)
    action = agent.act(obs.numpy(), np.random.default_rng(5))
    np.testing.assert_allclose(action, expected.numpy(), rtol=1e-5, atol=1e-5)
    greedy = agent.act(obs.numpy(), None)
    np.testing.assert_allclose(greedy, twin.actor(obs).detach().numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("updates", [0, 10_000, 40_000])
def test_dqn_explores_with_probability_epsilon(updates):
    """A random choice hits the greedy one by chance as well."""
    agent = learnt("dqn")
    agent.updates = updates
    obs, rng = some_obs("dqn", 1), np.random.default_rng(7)
    greedy = int(agent.act(obs, None)[0])
    actions = np.array([agent.act(obs, rng)[0] for _ in range(600)])
    epsilon = {0: 1.0, 10_000: 0.55, 40_000: 0.1}[updates]
    assert set(actions.tolist()) == set(range(CHOICES))
    assert np.mean(actions == greedy) == pytest.approx(1 - epsilon + epsilon / CHOICES, abs=0.09)


# --- the squashed Gaussian -------------------------------------------------------------------------------------------


def gaussian(dtype=torch.float64, spread=0.0):
    policy = GaussianPolicy(make_actor("ann", "none"), 3, hidden=10).to(dtype)
    with torch.no_grad():
        policy.log_std[-1].bias.add_(spread)
    return policy


def test_log_probability_equals_torchs_transformed_distribution():
    policy, generator = gaussian(), torch.Generator().manual_seed(3)
    obs = torch.randn(50, 3, generator=generator, dtype=torch.float64)
    noise = torch.randn(50, 2, generator=generator, dtype=torch.float64)
    low, high = (torch.tensor(x, dtype=torch.float64) for x in (LOW, HIGH))
    with torch.no_grad():
        action, log_prob = policy.sample(obs, noise)
        base = Normal(policy.actor.potential(obs), policy.log_std(obs).exp())
        squash = [TanhTransform(), AffineTransform((low + high) / 2, (high - low) / 2)]
        expected = Independent(TransformedDistribution(base, squash), 1).log_prob(action)
    torch.testing.assert_close(log_prob, expected, rtol=1e-7, atol=1e-7)


def test_log_probability_is_a_density_of_actions():
    """Change of variables by finite differences: p(a)·|da/dnoise| is the noise's own density."""
    policy, generator = gaussian(), torch.Generator().manual_seed(3)
    obs = torch.randn(1, 3, generator=generator, dtype=torch.float64).expand(400, 3)
    grid = torch.linspace(-4, 4, 400, dtype=torch.float64)
    h = 1e-5 * torch.eye(2, dtype=torch.float64)
    for dimension in (0, 1):
        noise = torch.zeros(400, 2, dtype=torch.float64)
        noise[:, dimension] = grid
        with torch.no_grad():
            _, log_prob = policy.sample(obs, noise)
            up, down = ([policy.sample(obs, noise + s * h[i])[0][:, i] for i in (0, 1)] for s in (1, -1))
        stretch = (up[0] - down[0]) / 2e-5 * (up[1] - down[1]) / 2e-5
        density = torch.exp(-0.5 * (noise**2).sum(1)) / (2 * math.pi)
        torch.testing.assert_close(log_prob.exp() * stretch, density, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("u", [-60.0, -9.0, 0.0, 9.0, 60.0])
def test_log_probability_survives_saturation(u):
    """1 − tanh² underflows from |u| = 9 on in float32; its logarithm must not."""
    policy = gaussian(torch.float32)
    with torch.no_grad():
        policy.actor.head.weight.zero_()
        policy.actor.head.bias.fill_(u)
        for p in policy.log_std.parameters():
            p.zero_()
    noise = torch.zeros(1, 2)
    log_prob = policy.sample(torch.zeros(1, 3), noise)[1]
    log_slope = -2 * (abs(u) + math.log1p(math.exp(-2 * abs(u))) - math.log(2))  # log(1/cosh²)
    expected = sum(-0.5 * math.log(2 * math.pi) - log_slope - math.log(r) for r in REACH)
    assert float(log_prob.detach()) == pytest.approx(expected, rel=1e-5)
    grads = torch.autograd.grad(log_prob.sum(), policy.actor.head.bias)
    assert torch.isfinite(grads[0]).all()


@pytest.mark.parametrize(("bias", "log_std"), [(-50.0, -20.0), (50.0, 2.0)])
def test_spread_is_clamped(bias, log_std):
    policy = gaussian(spread=bias)
    obs, noise = torch.zeros(1, 3, dtype=torch.float64), torch.full((1, 2), 0.5, dtype=torch.float64)
    with torch.no_grad():
        _, log_prob = policy.sample(obs, noise)
        u = policy.actor.potential(obs) + math.exp(log_std) * noise
        slope = (torch.tensor(REACH) / torch.cosh(u) ** 2).log()
        expected = (-0.125 - log_std - 0.5 * math.log(2 * math.pi) - slope).sum(1)
    torch.testing.assert_close(log_prob, expected)


def test_gradients_of_the_log_probability():
    """Reparametrised: through the mean and through the spread, against finite differences."""
    policy = gaussian()
    obs = torch.randn(4, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    noise = torch.randn(4, 2, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    biases = (policy.actor.head.bias, policy.log_std[-1].bias)

    def total():
        action, log_prob = policy.sample(obs, noise)
        return log_prob.sum() + action.sum()

    for bias, grad in zip(biases, torch.autograd.grad(total(), biases), strict=True):
        for i in range(2):
            with torch.no_grad():
                bias[i] += 1e-6
                up = total()
                bias[i] -= 2e-6
                down = total()
                bias[i] += 1e-6
            assert float(grad[i]) == pytest.approx(float((up - down) / 2e-6), rel=1e-6, abs=1e-7)

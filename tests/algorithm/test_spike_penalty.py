"""A price for spikes: it enters the loss of the policy and nothing else, and a target finds it."""

import copy
import math

import numpy as np
import pytest
import torch
from agent_cases import ALGORITHMS, DoubleReplay, make_agent, make_replay

from carebn.algorithm.spike_penalty import BAND, RANGE, STEP, SpikePenalty
from carebn.kernels import pure

F64 = torch.float64
PENALTY = (3.0, 5.0, 7.0, 11.0)


def agent_of(algo, **options):
    return make_agent(algo, dtype=F64, **({"policy_frequency": 1} if algo == "td3" else {}), **options)


def penalised(agent, penalty=(), target=()):
    names = agent.policy.populations()
    agent.penalise_spikes(SpikePenalty(names, penalty[: len(names)], target[: len(names)]))
    return agent


def policy_optimiser(agent, algo):
    return agent.optimiser if algo == "dqn" else agent.actor_optimiser


def update(agent, algo):
    """The losses, and the gradients that reach the policy's optimiser."""
    optimiser, seen = policy_optimiser(agent, algo), []
    step = optimiser.update
    optimiser.update = lambda grads: (seen.append([g.clone() for g in grads]), step(grads))
    losses = agent.update(make_replay(algo, kind=DoubleReplay), np.random.default_rng(3))
    optimiser.update = step
    return losses, seen[0]


def rates_by_hand(policy, obs):
    """On the pure path, from what every layer was seen to answer."""
    seen = []

    def note(module, inputs, output):
        if not seen and len(inputs) == 2:
            seen.append(inputs[0] + (inputs[1] - inputs[1].detach()))
        seen.append(output)

    hooks = [layer.register_forward_hook(note) for layer in policy.layers]
    with pure():
        policy(obs)
    for hook in hooks:
        hook.remove()
    return torch.stack([spikes.mean() for spikes in seen])


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_the_gradient_is_the_algorithms_own_and_that_of_the_penalty(algo):
    plain, priced = agent_of(algo), penalised(agent_of(algo), PENALTY)
    before = copy.deepcopy(priced.policy)
    losses, without = update(plain, algo)
    also, within = update(priced, algo)
    batch = make_replay(algo, kind=DoubleReplay).sample(8, np.random.default_rng(3))
    rates = rates_by_hand(before, batch.obs)
    loss = sum(p * rate for p, rate in zip(PENALTY, rates, strict=False))
    parameters = list(before.parameters())
    expected = torch.autograd.grad(loss, parameters, allow_unused=True)
    # SAC's optimiser has the network of the spread as well, which has no spikes.
    for i, (a, b) in enumerate(zip(without, within, strict=True)):
        more = expected[i] if i < len(expected) and expected[i] is not None else torch.zeros_like(a)
        torch.testing.assert_close(b - a, more, rtol=1e-7, atol=1e-9)
    assert any(g is not None and g.abs().max() > 1e-3 for g in expected)
    told = {name: value for name, value in also.items() if name.startswith("spikes/")}
    assert list(told) == [f"spikes/{name}" for name in before.populations()]
    torch.testing.assert_close(torch.stack(list(told.values())), rates.detach())
    assert {name: also[name] for name in losses} == losses  # the algorithm's own losses are told as without


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_a_penalty_of_zero_only_tells(algo):
    plain, priced = agent_of(algo), penalised(agent_of(algo), (0.0,) * 4)
    for agent in (plain, priced):
        for _ in range(3):
            update(agent, algo)
    assert plain.state_dict().keys() == priced.state_dict().keys()
    for name, value in plain.state_dict().items():
        assert torch.equal(value, priced.state_dict()[name]), name


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_the_critic_is_not_touched_by_it(algo):
    """Its first update has the same actor before it, so it must come out the same."""
    plain, priced = agent_of(algo), penalised(agent_of(algo), PENALTY)
    for agent in (plain, priced):
        update(agent, algo)
    if algo != "dqn":
        for a, b in zip(plain.critic.parameters(), priced.critic.parameters(), strict=True):
            assert torch.equal(a, b)
    assert any(
        not torch.equal(a, b) for a, b in zip(plain.policy.parameters(), priced.policy.parameters(), strict=True)
    )


def slow_price(rates, target):
    """λ at every update, worked out number by number."""
    log_penalty, charged = 0.0, []
    for rate in rates:
        excess = max(-1.0, min(1.0, (rate - target) / target))
        share = max(0.0, min(1.0, 0.5 + excess / (2 * BAND)))
        charged.append(math.exp(log_penalty) * share)
        log_penalty = max(math.log(RANGE[0]), min(math.log(RANGE[1]), log_penalty + STEP * excess))
    return charged, log_penalty


class Heard:
    def __init__(self, rates):
        self.rates = torch.tensor(rates, dtype=F64, requires_grad=True)


def test_a_target_finds_its_penalty():
    rng = np.random.default_rng(0)
    rates = np.concatenate([rng.uniform(0, 0.5, 300), np.full(9000, 0.9), np.full(20_000, 0.001)])
    expected, log_penalty = slow_price(rates, 0.1)
    penalty = SpikePenalty(["encoder", "layer_1"], target=(1.0, 0.1))
    found = []
    for rate in rates:
        penalty._heard = Heard([0.8, rate])
        loss = penalty.loss()
        found.append(loss.item() / rate)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)  # a target of 1 adds nothing
    assert penalty.log_penalty[1].item() == pytest.approx(log_penalty)
    assert max(expected) == pytest.approx(RANGE[1])
    assert list(penalty.told()) == ["spikes/encoder", "spikes/layer_1", "spike_penalty/layer_1"]


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_few_spikes_are_learnt_and_the_price_is_part_of_the_state(algo):
    target = (0.15,) * 4
    fast = {"learning_rate" if algo == "dqn" else "actor_learning_rate": 1e-3}
    agent = penalised(agent_of(algo, **fast), target=target)
    replay, rng = make_replay(algo, kind=DoubleReplay), np.random.default_rng(0)
    agent._spike_penalty.log_penalty.fill_(math.log(1e3))
    begun = agent.update(replay, rng)
    for _ in range(150):
        agent.update(replay, rng)
    other = penalised(agent_of(algo, seed=1, **fast), target=target)
    other.load_state_dict(agent.state_dict())
    ours, theirs = np.random.default_rng(5), np.random.default_rng(5)
    for _ in range(5):
        told = agent.update(replay, ours)
        again = other.update(replay, theirs)
        assert told.keys() == again.keys()
        assert all(torch.equal(told[name], again[name]) for name in told)
    assert "spike_penalty.log_penalty" in agent.state_dict()
    assert told["spikes/layer_1"] < begun["spikes/layer_1"] - 0.05


def test_as_many_numbers_as_populations():
    with pytest.raises(ValueError, match="2 populations need as many penalties, or as many target rates"):
        SpikePenalty(["a", "b"], penalty=(1.0,))
    with pytest.raises(ValueError, match="as many"):
        SpikePenalty(["a"], penalty=(1.0,), target=(0.1,))

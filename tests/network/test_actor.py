"""Spiking and ordinary actors from observation to action."""

import copy
import math

import pytest
import torch

from carebn.kernels import pure
from carebn.network import ANNActor, SpikingActor
from carebn.neuron import LIF, NEURONS
from carebn.norm import NORMS

SMALL = {"hidden": (12, 9), "population": 4}


def random(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def make(seed=0, **options):
    torch.manual_seed(seed)
    return SpikingActor(3, 2, **(SMALL | options))


def slow_actor(actor, obs):
    """CLIF actor in inference, time step by time step, in explicit formulas."""
    encoder, decoder = actor.encoder, actor.decoder
    a = torch.exp(-0.5 * ((torch.tanh(obs)[..., None] - encoder.mean) / encoder.std) ** 2).flatten(1)
    v_in = torch.zeros_like(a)
    currents = [0.0] * len(actor.layers)
    potentials = [0.0] * len(actor.layers)
    membrane = torch.zeros(obs.shape[0], decoder.outputs, dtype=obs.dtype)
    for _ in range(encoder.time_steps):
        v_in = v_in + a
        x = (v_in > 0.999).to(obs.dtype)
        v_in = v_in - x
        for i, layer in enumerate(actor.layers):
            norm = layer.norm
            z = x @ layer.linear.weight.t() + layer.linear.bias
            z = norm.weight * (z - norm.running_mean) / (norm.running_var + 1e-5).sqrt() + norm.bias
            currents[i] = 0.5 * currents[i] + z
            h = 0.75 * potentials[i] + currents[i]
            x = (h > 0.5).to(obs.dtype)
            potentials[i] = h * (1 - x)
        own = x.view(obs.shape[0], decoder.outputs, decoder.population)
        membrane = membrane + (own * decoder.weight).sum(-1) + decoder.bias
    low, high = actor.bounds.middle - actor.bounds.reach, actor.bounds.middle + actor.bounds.reach
    return low + (high - low) * (torch.tanh(membrane) + 1) / 2


def test_equals_a_slow_actor_step_by_step():
    """The whole chain against formulas written out anew: encoder, three layers, decoder, bounds."""
    actor = make(low=[-1.0, 0.0], high=[1.0, 4.0], norm="bn").double()
    for seed in range(3):
        actor(random(20, 3, seed=seed, dtype=torch.float64))
    actor.eval()
    obs = random(11, 3, seed=9, dtype=torch.float64)
    action = actor(obs)
    assert action.std(0).min() > 0
    torch.testing.assert_close(action, slow_actor(actor, obs), rtol=1e-10, atol=1e-10)


def test_shapes():
    """Three norms: after both hidden layers and after the output populations, ten neurons an action."""
    actor = SpikingActor(17, 6)
    assert [(layer.linear.in_features, layer.linear.out_features) for layer in actor.layers] == [
        (170, 256),
        (256, 256),
        (256, 60),
    ]
    assert [layer.norm.num_features for layer in actor.layers] == [256, 256, 60]
    assert actor(random(4, 17)).shape == (4, 6)
    assert actor.potential(random(4, 17)).shape == (4, 6)
    assert make(hidden=(5,))(random(4, 3)).shape == (4, 2)
    assert make(hidden=())(random(4, 3)).shape == (4, 2)


@pytest.mark.parametrize("T", [1, 5])
@pytest.mark.parametrize("neuron", NEURONS)
@pytest.mark.parametrize("norm", NORMS)
def test_every_norm_with_every_neuron(norm, neuron, T):
    """Builds, acts within bounds, and every parameter gets a finite gradient, compiled as pure."""
    actor = make(norm=norm, neuron=neuron, time_steps=T).double()
    twin = copy.deepcopy(actor)
    obs = random(8, 3, dtype=torch.float64)
    action = actor(obs)
    with pure():
        expected = twin(obs)
        expected.square().sum().backward()
    action.square().sum().backward()
    assert action.shape == (8, 2)
    assert (action.abs() <= 1).all()
    torch.testing.assert_close(action, expected, rtol=1e-10, atol=1e-12)
    theirs = dict(twin.named_parameters())
    for name, parameter in actor.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name
        if norm != "none" and name.endswith("linear.bias"):
            assert (parameter.grad == 0).all(), name  # the norm cancels it; the pure path is left with rounding
            assert theirs[name].grad.abs().max() < 1e-8, name
            continue
        size = theirs[name].grad.abs().max().item()
        torch.testing.assert_close(parameter.grad, theirs[name].grad, rtol=1e-7, atol=max(1e-9 * size, 1e-12))
    actor.eval()
    assert actor(obs[:1]).shape == (1, 2)


@pytest.mark.parametrize("readout", ["membrane", "rate"])
@pytest.mark.parametrize("coding", ["deterministic", "poisson", "analogue"])
@pytest.mark.parametrize("observation", ["tanh", "zscore", "raw"])
def test_gradients_reach_every_parameter(readout, coding, observation):
    """Not only present but alive: something in every tensor moves, but for biases that a norm cancels."""
    actor = make(readout=readout, encoder_options={"coding": coding, "observation": observation}, hidden=(32, 32))
    actor(random(64, 3), torch.Generator().manual_seed(0)).square().sum().backward()
    for name, parameter in actor.named_parameters():
        assert torch.isfinite(parameter.grad).all(), name
        if name.endswith("linear.bias"):
            assert (parameter.grad == 0).all(), name
        else:
            assert parameter.grad.abs().max() > 0, name


def test_gradient_reaches_the_observation():
    obs = random(8, 3).requires_grad_()
    make()(obs).sum().backward()
    assert obs.grad.abs().max() > 0


def test_biases_learn_without_a_norm():
    actor = make(norm="none", hidden=(32, 32))
    actor(random(64, 3)).square().sum().backward()
    assert all(layer.linear.bias.grad.abs().max() > 0 for layer in actor.layers)


@pytest.mark.parametrize("norm", NORMS)
def test_inference_changes_nothing(norm):
    """Acting, target and evaluation passes must not leak into the statistics, with gradients or without."""
    actor = make(norm=norm)
    actor(random(8, 3))
    actor.eval()
    before = {name: value.clone() for name, value in actor.state_dict().items()}
    first = actor(random(5, 3, seed=1))
    first.sum().backward()
    with torch.no_grad():
        actor(random(1, 3, seed=2))
        assert torch.equal(actor(random(5, 3, seed=1)), first)
    after = actor.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(value, after[name]) for name, value in before.items())


@pytest.mark.parametrize("norm", [name for name in NORMS if name != "none"])
def test_a_training_pass_updates_statistics_once(norm):
    """One update a pass, not one a time step, and none in the backward pass."""
    actor = make(norm=norm)
    for passes in (1, 2, 3):
        before = [layer.norm.running_mean.clone() for layer in actor.layers]
        out = actor(random(8, 3, seed=passes))
        after = [layer.norm.running_mean.clone() for layer in actor.layers]
        out.sum().backward()
        for layer, old, new in zip(actor.layers, before, after, strict=True):
            assert layer.norm.num_batches_tracked == passes
            assert not torch.equal(old, new)
            assert torch.equal(layer.norm.running_mean, new)


def test_training_mode_normalises_by_the_batch():
    """In training the statistics in the buffers have no say; in inference the batch has none."""
    actor = make().double()
    obs = random(8, 3, dtype=torch.float64)
    first = actor(obs)
    for layer in actor.layers:
        layer.norm.running_mean.fill_(5)
        layer.norm.running_var.fill_(9)
    assert torch.equal(actor(obs), first)
    actor.eval()
    together = actor(obs)
    alone = torch.cat([actor(row[None]) for row in obs])
    torch.testing.assert_close(together, alone, rtol=1e-10, atol=1e-12)


def test_the_same_seed_makes_the_same_actor():
    one, two, other = make(seed=1), make(seed=1), make(seed=2)
    for name, value in one.state_dict().items():
        assert torch.equal(value, two.state_dict()[name])
    obs = random(8, 3)
    assert torch.equal(one(obs), two(obs))
    assert not torch.equal(one(obs), other(obs))


@pytest.mark.parametrize("norm", NORMS)
def test_deepcopy_after_use(norm):
    """Target networks are deep copies, taken at any time; afterwards the two live apart."""
    actor = make(norm=norm)
    actor(random(8, 3)).sum().backward()
    twin = copy.deepcopy(actor)
    obs = random(8, 3, seed=1)
    assert torch.equal(twin(obs), actor(obs))
    before = {name: value.clone() for name, value in twin.state_dict().items()}
    with torch.no_grad():
        for parameter in actor.parameters():
            parameter.add_(1)
    actor(obs)
    assert all(torch.equal(value, before[name]) for name, value in twin.state_dict().items())


def test_state_dict_round_trip():
    actor = make(seed=1)
    actor(random(8, 3))
    other = make(seed=2)
    other.load_state_dict(actor.state_dict())
    obs = random(8, 3, seed=1)
    assert torch.equal(other.eval()(obs), actor.eval()(obs))


@pytest.mark.parametrize("training", [True, False])
def test_actions_stay_within_bounds_for_huge_observations(training):
    low, high = [-0.4, 2.0], [0.4, 7.0]
    actor = make(low=low, high=high).train(training)
    with torch.no_grad():
        actor.decoder.weight.mul_(1e6)  # tanh saturates
    for size in (1e3, 1e10, 1e30, 3e38):
        obs = random(8, 3).sign() * size
        action = actor(obs)
        assert torch.isfinite(action).all()
        assert (action >= torch.tensor(low)).all()
        assert (action <= torch.tensor(high)).all()


def test_actions_use_each_dimensions_own_bounds():
    actor = make(low=[-0.4, 2.0], high=[0.4, 7.0])
    with torch.no_grad():
        actor.decoder.bias.fill_(100)
    torch.testing.assert_close(actor(random(4, 3)), torch.tensor([0.4, 7.0]).expand(4, 2))
    with torch.no_grad():
        actor.decoder.bias.fill_(-100)
    torch.testing.assert_close(actor(random(4, 3)), torch.tensor([-0.4, 2.0]).expand(4, 2))


def test_infinite_bounds_are_refused():
    with pytest.raises(ValueError, match="finite"):
        make(low=-math.inf)


def test_poisson_actor_follows_its_generator():
    actor = make(encoder_options={"coding": "poisson"}, hidden=(32, 32)).eval()
    with torch.no_grad():
        for layer in actor.layers:
            layer.norm.running_var.fill_(0.05)
    obs = random(16, 3)
    first, again, other = (actor(obs, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("training", [True, False])
def test_analogue_coding_is_a_constant_input(training):
    """The same as the stimulation written out at every step, gradients included."""
    actor = make(encoder_options={"coding": "analogue"}).double().train(training)
    twin = copy.deepcopy(actor)
    obs = random(8, 3, dtype=torch.float64)
    out = actor(obs)
    x = twin.encoder.stimulation(obs).expand(5, -1, -1)
    for layer in twin.layers:
        x = layer(x)
    expected = twin.bounds(twin.decoder(x))
    torch.testing.assert_close(out, expected, rtol=1e-12, atol=1e-13)
    out.square().sum().backward()
    expected.square().sum().backward()
    torch.testing.assert_close(actor.encoder.mean.grad, twin.encoder.mean.grad, rtol=1e-9, atol=1e-12)


def test_a_neuron_of_ones_own_sets_the_norms_start():
    """γ and β start at half of the threshold of the neuron that follows."""
    actor = make(neuron=LIF(v_threshold=0.8))
    for layer in actor.layers:
        assert layer.norm.weight.tolist() == pytest.approx([0.4] * layer.norm.num_features)
        assert layer.norm.bias.tolist() == pytest.approx([0.4] * layer.norm.num_features)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"norm": "cure"}, "did you mean 'care'"),
        ({"neuron": "cliff"}, "did you mean 'clif'"),
        ({"readout": "rates"}, "did you mean 'rate'"),
        ({"time_steps": 0}, "at least one time step"),
        ({"neuron": "dn-authors", "time_steps": 9}, "dn-authors"),
    ],
)
def test_options_that_make_no_actor_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        make(**options)


def test_observations_that_make_no_action_are_refused():
    actor = make()
    with pytest.raises(ValueError, match=r"shape \[B, 3\]"):
        actor(torch.zeros(4, 2))
    with pytest.raises(ValueError, match="NaN"):
        actor(torch.full((4, 3), math.nan))
    assert all(layer.norm.num_batches_tracked == 0 for layer in actor.layers)


# --- ordinary actors -------------------------------------------------------------------------------------------------


def make_ann(**options):
    torch.manual_seed(0)
    return ANNActor(3, 2, hidden=(12, 9), **options).double()


def linears(actor):
    return [m for m in actor.modules() if isinstance(m, torch.nn.Linear)]


def test_ann_actor_without_norm():
    """tanh(W₃·relu(W₂·relu(W₁·o + b₁) + b₂) + b₃), scaled per dimension."""
    actor = make_ann(low=[-1.0, 0.0], high=[1.0, 10.0])
    first, second, head = linears(actor)
    obs = random(6, 3, dtype=torch.float64)
    x = torch.relu(obs @ first.weight.t() + first.bias)
    x = torch.relu(x @ second.weight.t() + second.bias)
    y = torch.tanh(x @ head.weight.t() + head.bias)
    expected = torch.stack([y[:, 0], 5 + 5 * y[:, 1]], 1)
    torch.testing.assert_close(actor(obs), expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("training", [True, False])
def test_ann_actor_with_norm(training):
    """Linear → norm → ReLU with γ = 1 and β = 0 at the start, none on the output."""
    actor = make_ann(norm="bn").train(training)
    norms = [m for m in actor.modules() if type(m).__name__ == "BN"]
    assert len(norms) == 2
    for i, norm in enumerate(norms):
        assert (norm.weight == 1).all()
        assert (norm.bias == 0).all()
        norm.running_mean.fill_(0.1 * (i + 1))
        norm.running_var.fill_(0.5)
    first, second, head = linears(actor)
    obs = random(6, 3, dtype=torch.float64)

    def normalise(z, norm):
        mean, var = (z.mean(0), z.var(0, correction=0)) if training else (norm.running_mean, norm.running_var)
        return (z - mean) / (var + 1e-5).sqrt()

    x = torch.relu(normalise(obs @ first.weight.t() + first.bias, norms[0]))
    x = torch.relu(normalise(x @ second.weight.t() + second.bias, norms[1]))
    expected = torch.tanh(x @ head.weight.t() + head.bias)
    torch.testing.assert_close(actor(obs), expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("norm", NORMS)
def test_ann_actor_with_every_norm(norm):
    actor = make_ann(norm=norm)
    actor(random(6, 3, dtype=torch.float64)).square().sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in actor.parameters())
    actor.eval()
    assert actor(random(1, 3, dtype=torch.float64)).shape == (1, 2)

"""The population encoder: receptive fields, codings, and the straight-through gradient."""

import contextlib
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from carebn.kernels import pure
from carebn.network import PopulationEncoder, ZScore


def random(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def shaken(encoder, seed=3):
    """With means and widths away from their regular start."""
    with torch.no_grad():
        encoder.mean.add_(0.1 * random(*encoder.mean.shape, seed=seed).to(encoder.mean.dtype))
        encoder.std.mul_((0.3 * random(*encoder.std.shape, seed=seed + 1)).exp().to(encoder.std.dtype))
    return encoder


def slow_spikes(a, steps, subtract):
    """Soft-reset integrate-and-fire for one neuron, on Python floats."""
    v, spikes = 0.0, []
    for _ in range(steps):
        v = v + a
        spike = 1.0 if v > 0.999 else 0.0
        v = v - spike * subtract
        spikes.append(spike)
    return spikes


# --- receptive fields ------------------------------------------------------------------------------------------------


def test_start():
    """Means evenly on [−1, 1], widths √0.05, ten a dimension, all trainable."""
    encoder = PopulationEncoder(3)
    assert encoder.out_features == 30
    assert {name for name, _ in encoder.named_parameters()} == {"mean", "std"}
    for row in encoder.mean:
        assert row.tolist() == pytest.approx([-1 + 2 * k / 9 for k in range(10)], abs=1e-6)
    assert encoder.std.flatten().tolist() == pytest.approx([math.sqrt(0.05)] * 30, rel=1e-6)


@pytest.mark.parametrize("observation", ["tanh", "raw"])
def test_receptive_fields_by_the_formula(observation):
    """A = exp(−((s − μ)/σ)²/2), each dimension against its own population, in order."""
    encoder = shaken(PopulationEncoder(3, 4, observation=observation)).double()
    obs = random(5, 3)
    a = encoder.stimulation(obs)
    assert a.shape == (5, 12)
    for b in range(5):
        for i in range(3):
            s = math.tanh(obs[b, i].item()) if observation == "tanh" else obs[b, i].item()
            for j in range(4):
                distance = (s - encoder.mean[i, j].item()) / encoder.std[i, j].item()
                assert a[b, 4 * i + j].item() == pytest.approx(math.exp(-distance * distance / 2), rel=1e-12)


@pytest.mark.parametrize(("dtype", "rel"), [(torch.float32, 2e-5), (torch.float64, 1e-11)])
@pytest.mark.parametrize("B", [1, 7, 33])
def test_gradients_of_the_receptive_fields(B, dtype, rel):
    """Means, widths and observations, against autograd of the formula in float64."""
    encoder = shaken(PopulationEncoder(5, 10)).to(dtype)
    obs = random(B, 5, dtype=dtype).requires_grad_()
    weights = random(B, 50, seed=1, dtype=dtype)
    (encoder.stimulation(obs) * weights).sum().backward()

    mean, std, o = (x.detach().double().requires_grad_() for x in (encoder.mean, encoder.std, obs))
    expected = torch.exp(-0.5 * ((torch.tanh(o)[..., None] - mean) / std) ** 2).flatten(1)
    (expected * weights.double()).sum().backward()
    for ours, theirs in ((encoder.mean, mean), (encoder.std, std), (obs, o)):
        size = theirs.grad.abs().max().item()
        torch.testing.assert_close(ours.grad.double(), theirs.grad, rtol=rel, atol=rel * size)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_compiled_fields_equal_the_pure_ones(dtype):
    """Bitwise forwards, for a transposed observation too, and whatever the layout of the arriving gradient."""
    encoder = shaken(PopulationEncoder(5, 7)).to(dtype)
    results = []
    for compiled in (True, False):
        encoder.zero_grad()
        obs = random(5, 19, dtype=dtype).requires_grad_()
        if compiled:
            a = encoder.stimulation(obs.t())
        else:
            with pure():
                a = encoder.stimulation(obs.t())
        a.backward(random(35, 19, seed=1, dtype=dtype).t())
        results.append((a.detach(), encoder.mean.grad.clone(), encoder.std.grad.clone(), obs.grad))
    assert torch.equal(results[0][0], results[1][0])
    for ours, theirs in zip(results[0][1:], results[1][1:], strict=True):
        torch.testing.assert_close(ours, theirs, rtol=2e-5, atol=2e-5 * theirs.abs().max().item())


def test_gradient_that_is_the_same_everywhere():
    """``sum()`` sends an expanded tensor of stride zero."""
    encoder = shaken(PopulationEncoder(2, 3)).double()
    encoder.stimulation(random(4, 2)).sum().backward()
    ours = encoder.mean.grad.clone()
    encoder.zero_grad()
    with pure():
        encoder.stimulation(random(4, 2)).sum().backward()
    torch.testing.assert_close(ours, encoder.mean.grad, rtol=1e-12, atol=1e-12)


# --- codings ---------------------------------------------------------------------------------------------------------


def test_deterministic_coding_by_hand():
    """
    A = 0.4      V: 0.4, 0.8, 1.2 (spike, 0.2 left), 0.6, 1.0 (spike)
    A = 1        a spike at every step
    A = 0.999    not above the threshold at first; then 1.998 (spike, 0.998 left), 1.997 (spike), ...
    A = 0.9992   subtracting the spike leaves −0.0008, so the next V = 0.9984 does not fire; subtracting the threshold
                 leaves 0.0002, and it does
    """
    a = torch.tensor([[0.4, 1.0, 0.999, 0.9992, 0.0]], dtype=torch.float64)
    by_spike = PopulationEncoder(1, 5).spikes(a)[:, 0].t().tolist()
    assert by_spike == [[0, 0, 1, 0, 1], [1, 1, 1, 1, 1], [0, 1, 1, 1, 1], [1, 0, 1, 1, 1], [0, 0, 0, 0, 0]]
    by_threshold = PopulationEncoder(1, 5, reset="threshold").spikes(a)[:, 0].t().tolist()
    assert by_threshold[0] == [0, 0, 1, 0, 1]
    assert by_threshold[3] == [1, 1, 1, 1, 1]


@pytest.mark.parametrize(("reset", "subtract"), [("spike", 1.0), ("threshold", 0.999)])
@settings(max_examples=40, deadline=None)
@given(values=st.lists(st.floats(0, 1), min_size=1, max_size=12), steps=st.integers(1, 20))
def test_deterministic_coding_equals_a_loop_over_python_floats(reset, subtract, values, steps):
    encoder = PopulationEncoder(1, len(values), steps, reset=reset)
    a = torch.tensor([values], dtype=torch.float64)
    expected = [slow_spikes(x, steps, subtract) for x in values]
    assert encoder.spikes(a)[:, 0].t().tolist() == expected
    with pure():
        assert encoder.spikes(a)[:, 0].t().tolist() == expected


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("B", [1, 17])
def test_deterministic_coding_compiled_and_pure(B, dtype):
    encoder = shaken(PopulationEncoder(31, 10, 7)).to(dtype)
    obs = random(B, 31, dtype=dtype)
    spikes = encoder(obs)
    assert spikes.shape == (7, B, 310)
    assert spikes.dtype == dtype
    assert set(spikes.unique().tolist()) == {0, 1}
    with pure():
        assert torch.equal(encoder(obs), spikes)


def test_forward_is_straight_through():
    """Each spike has derivative one with respect to A, so A gets the sum over t of the arriving gradients."""
    encoder = shaken(PopulationEncoder(3, 4)).double()
    obs = random(6, 3)
    grad = random(5, 6, 12, seed=1)
    encoder(obs).backward(grad)
    ours = encoder.mean.grad.clone(), encoder.std.grad.clone()
    encoder.zero_grad()
    encoder.stimulation(obs).backward(grad.sum(0))
    torch.testing.assert_close(ours, (encoder.mean.grad, encoder.std.grad), rtol=1e-12, atol=1e-12)


def test_poisson_rates_match_the_stimulation():
    """A spike with probability A at every step: over 20,000 steps within five standard errors, for each neuron."""
    steps = 20_000
    encoder = PopulationEncoder(2, 10, steps, coding="poisson")
    obs = torch.tensor([[0.3, -1.2]])
    a = encoder.stimulation(obs).detach()[0]
    spikes = encoder(obs, torch.Generator().manual_seed(0)).detach()[:, 0]
    assert set(spikes.unique().tolist()) == {0, 1}
    error = (spikes.mean(0) - a).abs()
    assert (error <= 5 * (a * (1 - a) / steps).sqrt() + 1e-4).all()
    # Steps are independent: a neuron's spikes do not predict its next ones.
    middle = (a - 0.5).abs().argmin()
    train = spikes[:, middle] - spikes[:, middle].mean()
    assert (train[1:] * train[:-1]).mean().abs() < 5 * 0.25 / math.sqrt(steps)


def test_poisson_is_reproducible_and_leaves_the_global_generator_alone():
    encoder = PopulationEncoder(2, coding="poisson")
    obs = random(8, 2, dtype=torch.float32)
    before = torch.get_rng_state()
    first, again, other = (encoder(obs, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(5)
    first = encoder(obs)
    assert not torch.equal(encoder(obs), first)
    torch.manual_seed(5)
    assert torch.equal(encoder(obs), first)


def test_poisson_gradient_is_straight_through():
    encoder = PopulationEncoder(2, coding="poisson").double()
    grad = random(5, 3, 20)
    encoder(random(3, 2)).backward(grad)
    ours = encoder.mean.grad.clone()
    encoder.zero_grad()
    encoder.stimulation(random(3, 2)).backward(grad.sum(0))
    torch.testing.assert_close(ours, encoder.mean.grad, rtol=1e-12, atol=1e-12)


def test_analogue_coding_is_the_stimulation_itself():
    encoder = PopulationEncoder(3, coding="analogue")
    obs = random(4, 3, dtype=torch.float32)
    out = encoder(obs)
    assert out.shape == (1, 4, 30)
    assert torch.equal(out[0], encoder.stimulation(obs))


# --- running standardisation -----------------------------------------------------------------------------------------


def test_zscore_equals_numpy_over_all_data():
    """Uneven updates, one of a single observation, of data with a large mean: the same as all of it at once."""
    data = random(1000, 4).numpy() * np.array([1.0, 5.0, 0.01, 100.0]) + np.array([0.0, 300.0, -2.0, 1000.0])
    zscore = ZScore(4)
    for part in np.split(data, [1, 3, 10, 400, 401, 950]):
        zscore.update(torch.from_numpy(part))
    assert zscore.count.item() == 1000
    np.testing.assert_allclose(zscore.running_mean, data.mean(0), rtol=1e-6)
    np.testing.assert_allclose(zscore.running_var, data.var(0), rtol=2e-4)


@pytest.mark.parametrize("training", [True, False])
def test_zscore_is_updated_by_update_alone(training):
    encoder = PopulationEncoder(3, observation="zscore").train(training)
    encoder.zscore.update(random(50, 3, dtype=torch.float32) * 2 + 1)
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    for seed in range(3):
        encoder(random(6, 3, seed=seed, dtype=torch.float32)).sum().backward()
    assert all(torch.equal(value, before[name]) for name, value in encoder.state_dict().items())


def test_zscore_formula_and_clip():
    """(x − mean)/√var, held within ±3; before the first update the observation passes as it is, clipped."""
    zscore = ZScore(2)
    assert zscore(torch.tensor([[0.5, -7.0]])).tolist() == [[pytest.approx(0.5, rel=1e-6), -3]]
    zscore.update(torch.tensor([[0.0, 10.0], [2.0, 30.0]]))  # mean 1, 20; variance 1, 100
    assert zscore(torch.tensor([[2.0, 15.0], [9.0, -99.0]])).tolist() == [
        [pytest.approx(1, rel=1e-6), pytest.approx(-0.5, rel=1e-6)],
        [3, -3],
    ]


def test_zscore_of_a_constant_observation_is_finite():
    zscore = ZScore(1)
    zscore.update(torch.full((10, 1), 7.0))
    assert zscore(torch.tensor([[7.0]])).item() == 0
    assert zscore(torch.tensor([[8.0]])).item() == 3


def test_encoder_with_zscore_uses_it():
    encoder = PopulationEncoder(2, 3, observation="zscore").double()
    encoder.zscore.update(random(100, 2) * 4 + 2)
    obs = random(5, 2) * 4 + 2
    s = encoder.zscore(obs)
    expected = torch.exp(-0.5 * ((s[..., None] - encoder.mean) / encoder.std) ** 2).flatten(1)
    torch.testing.assert_close(encoder.stimulation(obs), expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_zscore_refuses_what_would_poison_it(value):
    """One NaN in an update would turn every later observation into NaN."""
    zscore = ZScore(2)
    zscore.update(random(10, 2))
    before = zscore.running_mean.clone()
    bad = random(4, 2)
    bad[1, 0] = value
    with pytest.raises(ValueError, match="NaN"):
        zscore.update(bad)
    assert torch.equal(zscore.running_mean, before)


def test_zscore_ignores_or_refuses_an_empty_update():
    zscore = ZScore(2)
    with contextlib.suppress(ValueError):
        zscore.update(torch.empty(0, 2))
    assert torch.isfinite(zscore.running_mean).all()
    assert torch.isfinite(zscore.running_var).all()


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("observation", ["tanh", "zscore", "raw"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_an_observation_that_is_not_a_number_is_refused(value, observation):
    """tanh would hide an infinity, and a NaN would silence the neurons without a word."""
    encoder = PopulationEncoder(3, observation=observation)
    obs = torch.zeros(4, 3)
    obs[2, 1] = value
    with pytest.raises(ValueError, match="NaN or infinity"):
        encoder(obs)
    with pure(), pytest.raises(ValueError, match="NaN or infinity"):
        encoder(obs)


def test_infinities_that_cancel_are_found():
    obs = torch.tensor([[math.inf, -math.inf]])
    with pytest.raises(ValueError, match="NaN or infinity"):
        PopulationEncoder(2)(obs)


def test_huge_but_finite_observations_pass():
    """Their sum overflows, they themselves do not."""
    spikes = PopulationEncoder(2)(torch.full((4, 2), 3e38))
    assert torch.isfinite(spikes).all()


@pytest.mark.parametrize("shape", [(4, 2), (4, 4), (3,), (5, 4, 3)])
def test_an_observation_of_the_wrong_shape_is_refused(shape):
    with pytest.raises(ValueError, match=r"expected observations of shape \[B, 3\]"):
        PopulationEncoder(3)(torch.zeros(shape))


@pytest.mark.parametrize(
    ("option", "wrong", "near"),
    [("coding", "poison", "poisson"), ("observation", "z-score", "zscore"), ("reset", "treshold", "threshold")],
)
def test_unknown_options_are_answered_with_the_nearest(option, wrong, near):
    with pytest.raises(ValueError, match=f"unknown {option} '{wrong}'.*did you mean '{near}'"):
        PopulationEncoder(3, **{option: wrong})


def test_an_observation_with_a_gradient_raises_no_warning(recwarn):
    """Differentiating a policy with respect to its observation is ordinary use."""
    always = torch.is_warn_always_enabled()
    torch.set_warn_always(True)  # torch says most things once a process, which another test may have used up
    try:
        PopulationEncoder(3)(torch.zeros(4, 3, requires_grad=True)).sum().backward()
    finally:
        torch.set_warn_always(always)
    assert not [str(w.message) for w in recwarn]

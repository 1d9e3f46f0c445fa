"""Read-outs and action bounds."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from carebn.network import MembraneReadout, PopulationDecoder
from carebn.network.bounds import ActionBounds


def random(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def random_spikes(*shape, seed=0):
    return (random(*shape, seed=seed) > 0).double()


def membrane_by_hand(decoder, spikes):
    """V ← V + w·S + b for every action over its own population, on Python floats."""
    steps, batch, _ = spikes.shape
    weight, bias = decoder.weight.tolist(), decoder.bias.tolist()
    size = decoder.population
    out = []
    for b in range(batch):
        row = []
        for action in range(decoder.outputs):
            v = 0.0
            for t in range(steps):
                own = spikes[t, b, action * size : (action + 1) * size].tolist()
                v += math.fsum(w * s for w, s in zip(weight[action], own, strict=True)) + bias[action]
            row.append(v)
        out.append(row)
    return torch.tensor(out, dtype=torch.float64)


@pytest.mark.parametrize("steps", [1, 5, 8])
@pytest.mark.parametrize(("outputs", "population"), [(1, 10), (3, 4), (6, 1)])
def test_membrane_sums_weighted_spikes_and_bias_at_every_step(outputs, population, steps):
    """V_T = Σ_t (w·S_t + b): the bias counts T times."""
    torch.manual_seed(0)
    decoder = PopulationDecoder(outputs, population, steps).double()
    spikes = random_spikes(steps, 7, outputs * population)
    out = decoder(spikes)
    assert out.shape == (7, outputs)
    torch.testing.assert_close(out, membrane_by_hand(decoder, spikes), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("steps", [1, 5])
def test_rate_is_the_mean_over_time_with_the_bias_once(steps):
    torch.manual_seed(0)
    decoder = PopulationDecoder(3, 4, steps, readout="rate").double()
    spikes = random_spikes(steps, 7, 12)
    expected = membrane_by_hand(decoder, spikes) / steps
    torch.testing.assert_close(decoder(spikes), expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("steps", [1, 5, 16])
def test_both_readouts_start_alike(steps):
    """Membrane weights and bias start at 1/T of the usual scale, so the first action is that of a rate read-out."""
    decoders = []
    for readout in ("membrane", "rate"):
        torch.manual_seed(0)
        decoders.append(PopulationDecoder(3, 10, steps, readout=readout).double())
    membrane, rate = decoders
    spikes = random_spikes(steps, 7, 30)
    torch.testing.assert_close(membrane(spikes), rate(spikes), rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(membrane.weight * steps, rate.weight, rtol=1e-6, atol=0)
    torch.testing.assert_close(membrane.bias * steps, rate.bias, rtol=1e-6, atol=0)


@pytest.mark.parametrize("readout", ["max-membrane", "mean-membrane"])
def test_the_other_membrane_readouts(readout):
    """The potential after every step, one at a time; then the one furthest from zero, or their mean."""
    torch.manual_seed(0)
    decoder = PopulationDecoder(3, 4, 6, readout=readout, init="torch").double()
    with torch.no_grad():
        decoder.bias.copy_(torch.tensor([0.3, -0.3, 0.0]))
    spikes = random_spikes(6, 7, 12).requires_grad_()
    history = torch.stack([membrane_by_hand(decoder, spikes[: t + 1]) for t in range(6)])
    expected = torch.empty(7, 3, dtype=torch.float64)
    for b in range(7):
        for a in range(3):
            values = history[:, b, a].tolist()
            expected[b, a] = max(values, key=abs) if readout == "max-membrane" else sum(values) / 6
    out = decoder(spikes)
    torch.testing.assert_close(out, expected, rtol=1e-12, atol=1e-14)
    assert (expected < 0).any()
    assert (expected > 0).any()
    out.sum().backward()
    assert spikes.grad.abs().max() > 0


def test_max_membrane_by_hand():
    """w = 1, b = −0.4 and spikes 1, 0, 0, 0, 0: V = 0.6, 0.2, −0.2, −0.6, −1.0; the last is furthest from zero."""
    decoder = PopulationDecoder(1, 1, 5, readout="max-membrane").double()
    with torch.no_grad():
        decoder.weight.fill_(1)
        decoder.bias.fill_(-0.4)
    spikes = torch.zeros(5, 1, 1, dtype=torch.float64)
    spikes[0] = 1
    assert decoder(spikes).item() == pytest.approx(-1.0)
    assert decoder(spikes[:2]).item() == pytest.approx(0.6)


def test_a_membrane_may_start_at_torchs_scale():
    starts = []
    for init in ("scaled", "torch"):
        torch.manual_seed(0)
        starts.append(PopulationDecoder(3, 10, 5, init=init))
    scaled, plain = starts
    torch.testing.assert_close(scaled.weight * 5, plain.weight)
    torch.testing.assert_close(scaled.bias * 5, plain.bias)
    with pytest.raises(ValueError, match="did you mean 'scaled'"):
        PopulationDecoder(2, init="scale")


def test_start_is_torchs_for_a_linear_of_ten_inputs():
    torch.manual_seed(0)
    decoder = PopulationDecoder(400, 10, readout="rate")
    bound = 1 / math.sqrt(10)
    for parameter in (decoder.weight, decoder.bias):
        assert parameter.abs().max() <= bound
        assert parameter.abs().max() > 0.95 * bound
        assert parameter.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.1)


@pytest.mark.parametrize("readout", ["membrane", "rate"])
def test_each_action_reads_its_own_population_only(readout):
    decoder = PopulationDecoder(3, 4, readout=readout).double()
    spikes = random_spikes(5, 2, 12).requires_grad_()
    for action in range(3):
        (gradient,) = torch.autograd.grad(decoder(spikes)[:, action].sum(), spikes)
        own = torch.zeros(12, dtype=torch.bool)
        own[4 * action : 4 * action + 4] = True
        assert (gradient[..., ~own] == 0).all()
        factor = 1 if readout == "membrane" else 1 / 5
        torch.testing.assert_close(gradient[..., own], (decoder.weight[action] * factor).expand(5, 2, 4))


@pytest.mark.parametrize("readout", ["membrane", "rate"])
def test_parameter_gradients(readout):
    """dL/dw is the gradient times the count (or rate) of that neuron's spikes, dL/db the gradient times T (or 1)."""
    decoder = PopulationDecoder(2, 3, readout=readout).double()
    spikes, grad = random_spikes(5, 4, 6), random(4, 2)
    decoder(spikes).backward(grad)
    factor = 1 if readout == "membrane" else 1 / 5
    counts = spikes.sum(0).view(4, 2, 3)
    torch.testing.assert_close(decoder.weight.grad, (grad[..., None] * counts).sum(0) * factor)
    torch.testing.assert_close(decoder.bias.grad, grad.sum(0) * 5 * factor)


def test_the_block_structure_is_not_part_of_a_checkpoint():
    assert set(PopulationDecoder(2, 3).state_dict()) == {"weight", "bias"}


def test_an_unknown_readout_is_answered_with_the_nearest():
    with pytest.raises(ValueError, match=r"unknown readout 'membrain'.*did you mean 'membrane'"):
        PopulationDecoder(2, readout="membrain")


def test_membrane_readout_of_a_whole_layer():
    """Σ_t (W·S_t + b), step by step."""
    torch.manual_seed(0)
    readout = MembraneReadout(6, 4).double()
    spikes = random_spikes(5, 3, 6)
    v = torch.zeros(3, 4, dtype=torch.float64)
    for s in spikes:
        v = v + torch.nn.functional.linear(s, readout.weight, readout.bias)
    torch.testing.assert_close(readout(spikes), v, rtol=1e-12, atol=1e-13)


def test_count_readout_has_its_bias_once():
    torch.manual_seed(0)
    readout = MembraneReadout(6, 4, "count").double()
    spikes = random_spikes(5, 3, 6)
    expected = spikes.sum(0) @ readout.weight.t() + readout.bias
    torch.testing.assert_close(readout(spikes), expected, rtol=1e-12, atol=1e-13)
    with pytest.raises(ValueError, match="readout of a Q-network"):
        MembraneReadout(6, 4, "rate")


# --- bounds ----------------------------------------------------------------------------------------------------------


def test_every_dimension_has_its_own_bounds():
    """Middle and reach by hand: [−1, 1] → 0 ± 1; [0, 10] → 5 ± 5; [−3, −1] → −2 ± 1."""
    bounds = ActionBounds(3, [-1.0, 0.0, -3.0], [1.0, 10.0, -1.0])
    x = torch.tensor([[0.0, 0.0, 0.0], [100.0, 100.0, 100.0], [-100.0, -100.0, -100.0], [0.5, 0.5, 0.5]])
    y = math.tanh(0.5)
    expected = torch.tensor([[0, 5, -2], [1, 10, -1], [-1, 0, -3], [y, 5 + 5 * y, -2 + y]])
    torch.testing.assert_close(bounds(x), expected)


def test_one_number_serves_all_dimensions():
    bounds = ActionBounds(3, -2.0, 2.0)
    assert bounds(torch.full((1, 3), 50.0)).tolist() == [[2, 2, 2]]


@settings(max_examples=60, deadline=None)
@given(
    low=st.floats(-1e4, 1e4, width=32),
    high=st.floats(-1e4, 1e4, width=32),
    x=st.floats(-1e6, 1e6, width=32),
)
def test_actions_never_leave_their_bounds(low, high, x):
    """Not by one bit: environments check ``low <= action <= high`` strictly."""
    low, high = min(low, high), max(low, high)
    if low == high:
        return
    bounds = ActionBounds(1, low, high)
    for value in (x, 1e9, -1e9):
        assert low <= bounds(torch.tensor([[value]])).item() <= high


@pytest.mark.parametrize(
    ("low", "high"),
    [
        (-math.inf, 1.0),
        (-1.0, math.inf),
        ([-1.0, -math.inf], [1.0, 1.0]),
        (math.nan, 1.0),
        (1.0, -1.0),
        (0.5, 0.5),
        ([-1.0, 1.0], [1.0, 1.0]),
    ],
)
def test_bounds_that_cannot_be_scaled_to_are_refused(low, high):
    with pytest.raises(ValueError, match="finite with low < high"):
        ActionBounds(2, low, high)


def test_bounds_as_wide_as_float32():
    """Finite bounds are accepted, so they must work: high − low overflows here."""
    bounds = ActionBounds(1, -3e38, 3e38)
    assert bounds(torch.tensor([[0.0]])).item() == 0
    assert torch.isfinite(bounds(torch.tensor([[5.0], [-5.0]]))).all()


def test_bounds_are_saved_with_the_network():
    """A checkpoint loaded into an actor built with other bounds acts within those it was trained for."""
    saved = ActionBounds(2, [-3.0, 1.0], [-1.0, 5.0])
    loaded = ActionBounds(2, -1.0, 1.0)
    loaded.load_state_dict(saved.state_dict())
    x = torch.tensor([[0.3, -0.7], [50.0, -50.0]])
    assert torch.equal(loaded(x), saved(x))

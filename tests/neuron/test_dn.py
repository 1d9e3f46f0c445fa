"""The dynamic neuron worked out by hand, and the variant of its authors' code."""

import pytest
import torch

from carebn.neuron import DN, DNAuthors
from carebn.neuron.dn import AUTHORS_MAX_STEPS

# One input for both variants, chosen so that they part at t = 4. θ_v = −0.172, θ_u = ±0.529, θ_r = 0.021, θ_s = 0.132;
# V + (V² − V − U + C) = V² − U + C.
INPUTS = [0.3, 0.4, 0.1, 0.3, 0.3]


def column(values):
    """One neuron over time: [T, 1, 1], in float64."""
    return torch.tensor(values, dtype=torch.float64)[:, None, None]


def run_steps(neuron, inputs):
    """Spikes, and the states after every step."""
    x = column(inputs)
    state = neuron.initial_state(x[0])
    spikes, states = [], []
    for current in x:
        spike, state = neuron.step(current, state)
        spikes.append(spike.item())
        states.append(state)
    return spikes, states


def potentials(states):
    return [state.v.item() for state in states]


def resistances(states):
    return [state.u.item() for state in states]


def test_dn_trajectory():
    """
    t  C        V, U before              V after                                         S  U after
    1  0.3      0, 0                     0.3                                             0  0
    2  0.55     0.3, 0                   0.09 − 0 + 0.55 = 0.64                          1  −0.172·0.3 = −0.0516
    3  0.375    0.021, 0.0804 (reset)    0.000441 − 0.0804 + 0.375 = 0.295041            0
                                         U: 0.0804 − 0.172·0.021 − 0.529·0.0804 = 0.0342564
    4  0.4875   0.295041, 0.0342564      0.087049191681 − 0.0342564 + 0.4875 = 0.540292791681  1
                                         U: 0.0342564 − 0.050747052 − 0.0181216356 = −0.0346122876
    5  0.54375  0.021, 0.0973877124      0.000441 − 0.0973877124 + 0.54375 = 0.4468032876  0
                                         U: 0.0973877124 − 0.003612 − 0.0515180998596 = 0.0422576125404

    At t = 5 it stays silent because the spikes raised U by θ_s each: without that, V would be 0.5788.
    """
    spikes, states = run_steps(DN(), INPUTS)
    assert spikes == [0, 1, 0, 1, 0]
    assert [s.c.item() for s in states] == pytest.approx([0.3, 0.55, 0.375, 0.4875, 0.54375], abs=1e-15)
    assert potentials(states) == pytest.approx([0.3, 0.64, 0.295041, 0.540292791681, 0.4468032876], abs=1e-12)
    assert resistances(states) == pytest.approx([0, -0.0516, 0.0342564, -0.0346122876, 0.0422576125404], abs=1e-12)
    assert [s.s.item() for s in states] == spikes
    assert DN()(column(INPUTS)).flatten().tolist() == [0, 1, 0, 1, 0]


def test_dn_authors_trajectory():
    """The same until U first matters; +θ_u·U then raises the resistance and the spike at t = 4 does not come.

    t  C        V, U before              V after                                         S  U after
    3  0.375    0.021, 0.0804            0.295041                                        0
                                         U: 0.0804 − 0.003612 + 0.0425316 = 0.1193196
    4  0.4875   0.295041, 0.1193196      0.087049191681 − 0.1193196 + 0.4875 = 0.455229591681  0
                                         U: 0.1193196 − 0.050747052 + 0.0631200684 = 0.1316926164
    5  0.54375  0.455229591681, 0.1316926164
                                         0.207233981140... − 0.1316926164 + 0.54375 = 0.61929136474...  1
                                         U: 0.1316926164 − 0.078299489769... + 0.0696653940756 = 0.12305852070...
    """
    spikes, states = run_steps(DNAuthors(), INPUTS)
    assert spikes == [0, 1, 0, 0, 1]
    assert potentials(states) == pytest.approx([0.3, 0.64, 0.295041, 0.455229591681, 0.61929136474], abs=1e-10)
    assert resistances(states) == pytest.approx([0, -0.0516, 0.1193196, 0.1316926164, 0.1230585207], abs=1e-10)
    assert DNAuthors()(column(INPUTS)).flatten().tolist() == [0, 1, 0, 0, 1]


@pytest.mark.parametrize("neuron", [DN(), DNAuthors()])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_exactly_at_the_threshold_there_is_no_spike(neuron, dtype):
    """The first potential is the input itself; 0.5 does not fire, the next number does.

    After 0.5: V² − U + C = 0.25 − 0 + (0.25 + x₂), which is 0.5 again for x₂ = 0.
    """
    more = torch.nextafter(torch.tensor(0.5, dtype=dtype), torch.tensor(1.0, dtype=dtype)).item()
    assert neuron(torch.tensor([[0.5], [0.0]], dtype=dtype)).flatten().tolist() == [0, 0]
    assert neuron(torch.tensor([[more]], dtype=dtype)).item() == 1


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("neuron", [DN(), DNAuthors()])
@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        # L = 2·S₁ + 3·S₂; V₁ = x₁, V₂ = R² − θ_s·S₁ + 0.5·x₁ + x₂ with R = V₁·(1 − S₁) + θ_r·S₁, so
        # dV₂/dx₁ = 0.5 + 2R·((1 − S₁) + (θ_r − V₁)·σ₁) − θ_s·σ₁.
        # V₁ = 0.4, no spike, R = 0.4; V₂ = 0.16 + 0.6 = 0.76.
        # 2 + 3·(0.5 + 0.8·(1 + 0.021 − 0.4) − 0.132) = 2 + 3·0.8648 = 4.5944
        ([0.4, 0.4], [4.5944, 3]),
        # V₁ = 0.8, spike, R = 0.021; V₂ = 0.000441 − 0.132 + 0.7 = 0.568441.
        # 2 + 3·(0.5 + 0.042·(0.021 − 0.8) − 0.132) = 2 + 3·0.335282 = 3.005846
        ([0.8, 0.3], [3.005846, 3]),
        # V₁ = 1.2, spike, σ₁ = 0, R = 0.021; V₂ = 0.000441 − 0.132 + 0.7.  Only the current carries on: 3·0.5
        ([1.2, 0.1], [1.5, 3]),
    ],
)
def test_gradient_of_two_steps(neuron, inputs, expected, compiled):
    """θ_u has no say yet, so both variants agree."""
    x = column(inputs).requires_grad_()
    spikes = neuron(x) if compiled else neuron.scan(x)
    (spikes * column([2.0, 3.0])).sum().backward()
    assert x.grad.flatten().tolist() == pytest.approx(expected, abs=1e-13)


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize(("neuron", "factor"), [(DN(), 1 - 0.529), (DNAuthors(), 1 + 0.529)])
def test_gradient_through_the_resistance(neuron, factor, compiled):
    """Three steps, L = S₃, from x = (1.2, 0, 0.4), so that S₁ fires with σ₁ = 0 (0.7 from the threshold):

    V₁ = 1.2.
    t = 2: V = 0.021, U = 0.132, C = 0.6: V₂ = 0.000441 − 0.132 + 0.6 = 0.468441, no spike, σ₂ = 1;
           U₂ = factor·0.132 − 0.172·0.021.
    t = 3: R = V₂·(1 − S₂) + 0.021·S₂, so dR/dV₂ = 1 + (0.021 − 0.468441) = 0.552559;
           U = U₂ + 0.132·S₂, so dU/dV₂ = 0.132 (U₂ itself does not depend on V₂);
           V₃ = R² − U + C₃ with C₃ = 0.3 + 0.4: 0.219436970... − U₂ + 0.7, within [0, 1] for both factors.
    dV₂/dx₂ = 1, dC₃/dx₂ = 0.5: dL/dx₂ = 2·0.468441·0.552559 − 0.132 + 0.5.
    dV₂/dx₁ = 0.5 (the spike hides V₁), dC₃/dx₁ = 0.25: dL/dx₁ is half of dL/dx₂.
    """
    x = column([1.2, 0.0, 0.4]).requires_grad_()
    _, states = run_steps(neuron, [1.2, 0.0, 0.4])
    u2 = factor * 0.132 - 0.172 * 0.021
    assert resistances(states)[1] == pytest.approx(u2, abs=1e-14)
    assert potentials(states)[2] == pytest.approx(0.468441**2 - u2 + 0.7, abs=1e-14)
    assert 0 <= potentials(states)[2] <= 1
    (neuron(x) if compiled else neuron.scan(x))[2].sum().backward()
    to_x2 = 2 * 0.468441 * 0.552559 - 0.132 + 0.5
    assert x.grad.flatten().tolist() == pytest.approx([to_x2 / 2, to_x2, 1], abs=1e-13)


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize(("neuron", "factor"), [(DN(), 1 - 0.529), (DNAuthors(), 1 + 0.529)])
def test_resistance_carries_a_gradient_of_its_own(neuron, factor, compiled):
    """Four steps of zero slope but the last, L = S₄, from a strongly negative potential: only the smooth part is left.

    x = (−0.1, −0.1, −0.1, x₄): C = −0.1, −0.15, −0.175, and no potential comes within 0.5 of the threshold, so no S
    has a slope: V₁ = C₁, V₂ = V₁² + C₂ − U₁ with U₁ = 0, U₂ = −0.172·V₁, V₃ = V₂² + C₃ − U₂,
    U₃ = factor·U₂ − 0.172·V₂, V₄ = V₃² + C₄ − U₃ with x₄ = 0.7 to bring V₄ into the window.
    """
    c = [-0.1, -0.15, -0.175, -0.0875 + 0.7]
    v1 = c[0]
    v2 = v1 * v1 + c[1]
    v3 = v2 * v2 + c[2] - (-0.172 * v1)
    u3 = factor * (-0.172 * v1) - 0.172 * v2
    v4 = v3 * v3 + c[3] - u3
    assert max(v1, v2, v3) < 0 <= v4 <= 1
    # dV₂/dx₁ = 2V₁ + 0.5; dV₃/dx₁ = 2V₂·dV₂ + 0.25 + 0.172; dU₃/dx₁ = −0.172·factor − 0.172·dV₂
    dv2 = 2 * v1 + 0.5
    dv3 = 2 * v2 * dv2 + 0.25 + 0.172
    dv4 = 2 * v3 * dv3 + 0.125 - (-0.172 * factor - 0.172 * dv2)
    x = column([-0.1, -0.1, -0.1, 0.7]).requires_grad_()
    (neuron(x) if compiled else neuron.scan(x))[3].sum().backward()
    assert x.grad[0].item() == pytest.approx(dv4, abs=1e-13)


def test_authors_variant_is_refused_for_many_steps():
    """Its resistance grows 1.529-fold a step, so long runs are numbers without a meaning."""
    assert AUTHORS_MAX_STEPS == 8
    neuron = DNAuthors()
    assert neuron(torch.zeros(8, 2, 3)).shape == (8, 2, 3)
    for run in (neuron, neuron.scan):
        with pytest.raises(ValueError, match=r"dn-authors.*8.*got 9"):
            run(torch.zeros(9, 2, 3))
    assert DN()(torch.zeros(9, 2, 3)).shape == (9, 2, 3)

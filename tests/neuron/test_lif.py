"""LIF and CLIF worked out by hand: spikes, states and gradients."""

import pytest
import torch

from carebn.kernels import pure
from carebn.neuron import CLIF, LIF

WEIGHTS = (2.0, 3.0)  # of the two spikes in the gradient tests: L = 2·S₁ + 3·S₂


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
        states.append(tuple(part.item() for part in state))
    return spikes, states


def gradient(neuron, inputs, compiled):
    x = column(inputs).requires_grad_()
    with torch.enable_grad():
        spikes = neuron(x) if compiled else neuron.scan(x)
    (spikes * column(WEIGHTS)).sum().backward()
    return x.grad.flatten().tolist()


def test_lif_trajectory():
    """
    t   input   H = 0.75·V + input       spike   V after
    1   0.4     0.4                      0       0.4
    2   0.3     0.75·0.4 + 0.3 = 0.6     1       0       hard reset
    3   0.2     0.75·0 + 0.2 = 0.2       0       0.2     nothing is left of the 0.6
    4   0.5     0.75·0.2 + 0.5 = 0.65    1       0
    5   0.1     0.1                      0       0.1
    """
    inputs = [0.4, 0.3, 0.2, 0.5, 0.1]
    spikes, states = run_steps(LIF(), inputs)
    assert spikes == [0, 1, 0, 1, 0]
    assert [v for (v,) in states] == pytest.approx([0.4, 0, 0.2, 0, 0.1], abs=1e-15)
    assert LIF()(column(inputs)).flatten().tolist() == [0, 1, 0, 1, 0]


def test_clif_trajectory():
    """
    t   input   C = 0.5·C + input            H = 0.75·V + C                       spike   V after
    1   0.4     0.4                          0.4                                  0       0.4
    2   0.1     0.5·0.4 + 0.1 = 0.3          0.75·0.4 + 0.3 = 0.6                 1       0
    3   0.4     0.5·0.3 + 0.4 = 0.55         0.55                                 1       0
    4   0       0.275                        0.275                                0       0.275
    5   0.2     0.1375 + 0.2 = 0.3375        0.75·0.275 + 0.3375 = 0.54375        1       0

    At t = 3 it fires because the spike at t = 2 left the current alone: with C reset, H would be 0.4.
    """
    inputs = [0.4, 0.1, 0.4, 0.0, 0.2]
    spikes, states = run_steps(CLIF(), inputs)
    assert spikes == [0, 1, 1, 0, 1]
    assert [c for c, _ in states] == pytest.approx([0.4, 0.3, 0.55, 0.275, 0.3375], abs=1e-15)
    assert [v for _, v in states] == pytest.approx([0.4, 0, 0, 0.275, 0], abs=1e-15)
    assert CLIF()(column(inputs)).flatten().tolist() == [0, 1, 1, 0, 1]


def test_negative_input_is_remembered():
    """LIF: H = −0.4, then 0.75·(−0.4) + 0.7 = 0.4 (no spike), then 0.75·0.4 + 0.25 = 0.55 (spike)."""
    assert LIF()(column([-0.4, 0.7, 0.25])).flatten().tolist() == [0, 0, 1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_exactly_at_the_threshold_there_is_no_spike(dtype):
    """LIF: H = 0.5, then 0.75·0.5 + 0.125 = 0.5 again (all exact in binary); one step of the last bit more fires."""
    more = torch.nextafter(torch.tensor(0.5, dtype=dtype), torch.tensor(1.0, dtype=dtype)).item()
    for neuron in (LIF(), CLIF()):
        assert neuron(torch.tensor([[0.5]], dtype=dtype)).item() == 0
        assert neuron(torch.tensor([[more]], dtype=dtype)).item() == 1
    twice = torch.tensor([[0.5], [0.125]], dtype=dtype)
    assert LIF()(twice).flatten().tolist() == [0, 0]
    with pure():
        assert LIF()(twice).flatten().tolist() == [0, 0]
    # CLIF: C = 0.25 + (−0.125) = 0.125, H = 0.375 + 0.125 = 0.5
    assert CLIF()(torch.tensor([[0.5], [-0.125]], dtype=dtype)).flatten().tolist() == [0, 0]


# With L = 2·S₁ + 3·S₂ and σ the slope of a spike, 1 for |H − 0.5| ≤ 0.5:
#
#   LIF    H₂ = 0.75·H₁·(1 − S₁) + x₂          dH₂/dx₁ = 0.75·((1 − S₁) − H₁·σ₁)
#   CLIF   H₂ = 0.75·H₁·(1 − S₁) + 0.5·x₁ + x₂   dH₂/dx₁ = 0.5 + 0.75·((1 − S₁) − H₁·σ₁)
#
# and dL/dx₁ = 2·σ₁ + 3·σ₂·dH₂/dx₁, dL/dx₂ = 3·σ₂. The term −H₁·σ₁ is the reset path; detached, it would be missing.


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        # H₁ = 0.4, no spike; H₂ = 0.3 + 0.4 = 0.7.  2 + 3·0.75·(1 − 0.4) = 3.35 (detached: 4.25)
        ([0.4, 0.4], [3.35, 3]),
        # H₁ = 0.8, spike; H₂ = 0.3.  2 + 3·0.75·(0 − 0.8) = 0.2 (detached: 2)
        ([0.8, 0.3], [0.2, 3]),
        # H₁ = 1.2, spike, and 0.7 from the threshold: σ₁ = 0; H₂ = 0.3.  Nothing gets through.
        ([1.2, 0.3], [0, 3]),
        # H₁ = −0.2, no spike, σ₁ = 0; H₂ = −0.15 + 0.35 = 0.2.  3·0.75·1 = 2.25
        ([-0.2, 0.35], [2.25, 3]),
        # H₁ = 0.4; H₂ = 0.3 + 0.9 = 1.2: σ₂ = 0, so only S₁'s own term is left.
        ([0.4, 0.9], [2, 0]),
        # The interval is closed: H₁ = 1 is 0.5 from the threshold; H₂ = 0 too.  2 + 3·0.75·(0 − 1) = −0.25
        ([1.0, 0.0], [-0.25, 3]),
    ],
)
def test_lif_gradient_through_the_reset(inputs, expected, compiled):
    assert gradient(LIF(), inputs, compiled) == pytest.approx(expected, abs=1e-14)


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        # H₁ = 0.4; H₂ = 0.3 + 0.2 + 0.4 = 0.9.  2 + 3·(0.5 + 0.75·0.6) = 4.85
        ([0.4, 0.4], [4.85, 3]),
        # H₁ = 0.8, spike; H₂ = 0.4 + 0.3 = 0.7.  2 + 3·(0.5 − 0.75·0.8) = 1.7 (detached: 3.5)
        ([0.8, 0.3], [1.7, 3]),
        # H₁ = 1.2, spike, σ₁ = 0; H₂ = 0.6 + 0.1 = 0.7.  Only the current carries on: 3·0.5 = 1.5
        ([1.2, 0.1], [1.5, 3]),
        # H₁ = −0.2, σ₁ = 0; H₂ = −0.15 − 0.1 + 0.65 = 0.4.  3·(0.5 + 0.75) = 3.75
        ([-0.2, 0.65], [3.75, 3]),
    ],
)
def test_clif_gradient_through_the_reset(inputs, expected, compiled):
    assert gradient(CLIF(), inputs, compiled) == pytest.approx(expected, abs=1e-14)


def test_constants_are_settable():
    """LIF with threshold 1 and decay 0.5: H = 0.8; 0.4 + 0.5 = 0.9; 0.45 + 0.6 = 1.05 (spike); 0 + 0.9.
    CLIF with current decay 0.25 as well: C = 0.8, 0.7, 0.275; H = 0.8; 0.4 + 0.7 = 1.1 (spike); 0.275.
    """
    assert LIF(v_threshold=1.0, decay=0.5)(column([0.8, 0.5, 0.6, 0.9])).flatten().tolist() == [0, 0, 1, 0]
    neuron = CLIF(v_threshold=1.0, decay=0.5, current_decay=0.25)
    assert neuron(column([0.8, 0.5, 0.1])).flatten().tolist() == [0, 1, 0]

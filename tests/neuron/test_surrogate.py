"""Surrogate slopes: area one, the right support, and a step in front of them."""

import math

import pytest
import torch

from carebn.neuron import SURROGATES, Rectangle, Sigmoid, Tanh, Triangle

KINDS = [Rectangle, Triangle, Sigmoid, Tanh]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [None, 0.3, 1.0, 5.0])
def test_the_slope_integrates_to_one(kind, size):
    """A spike is worth one: the slope that stands in for its derivative must have area one at any size."""
    surrogate = kind() if size is None else kind(size)
    x = torch.linspace(-80, 80, 1_600_001, dtype=torch.float64)
    area = torch.trapezoid(surrogate.slope(x), x)
    assert area.item() == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_the_slope_is_even_and_never_negative(kind):
    x = torch.linspace(-3, 3, 601, dtype=torch.float64)
    slope = kind().slope(x)
    assert (slope >= 0).all()
    torch.testing.assert_close(slope, slope.flip(0), rtol=1e-12, atol=1e-12)
    assert slope[300] == slope.max()


def test_default_sizes():
    """The paper's rectangle has a half-width of one half; the rest are our own choice and must not drift."""
    assert (Rectangle().size, Triangle().size, Sigmoid().size, Tanh().size) == (0.5, 1.0, 4.0, 2.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("width", [0.5, 0.25, 2.0])
def test_rectangle_is_closed(dtype, width):
    """|x| = ω still counts, the next number beyond it no longer does."""
    edge = torch.tensor([-width, width], dtype=dtype)
    beyond = torch.nextafter(edge, edge.sign() * math.inf)
    surrogate = Rectangle(width)
    assert surrogate.slope(edge).tolist() == [1 / (2 * width)] * 2
    assert surrogate.slope(beyond).tolist() == [0, 0]


def test_slopes_at_worked_points():
    """Rectangle 1/(2·0.5) = 1; triangle (1 − 0.25/1)/1 = 0.75; sigmoid and tanh peak at k/4 = 1 and k/2 = 1."""
    x = torch.tensor([0.0, 0.25, -0.25, 3.0], dtype=torch.float64)
    assert Rectangle().slope(x).tolist() == [1, 1, 1, 0]
    assert Triangle().slope(x).tolist() == [1, 0.75, 0.75, 0]
    assert Sigmoid().slope(x)[0].item() == 1
    assert Tanh().slope(x)[0].item() == 1
    # σ(1)·(1 − σ(1))·4 and (1 − tanh²(1/2)): the same number, because tanh(y/2) = 2σ(y) − 1
    assert Sigmoid().slope(x)[1].item() == pytest.approx(0.786447732965927, rel=1e-12)
    assert Tanh().slope(x)[2].item() == pytest.approx(0.786447732965927, rel=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_forward_is_a_strict_step_and_backward_is_the_slope(kind):
    x = torch.tensor([-0.3, -1e-30, 0.0, 1e-30, 0.3, 0.6], dtype=torch.float64, requires_grad=True)
    surrogate = kind()
    spikes = surrogate(x)
    assert spikes.tolist() == [0, 0, 0, 1, 1, 1]
    weights = torch.arange(1.0, 7.0, dtype=torch.float64)
    (spikes * weights).sum().backward()
    torch.testing.assert_close(x.grad, weights * surrogate.slope(x.detach()), rtol=0, atol=0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [0.0, -1.0, math.nan, math.inf])
def test_a_size_that_makes_no_slope_is_refused(kind, size):
    with pytest.raises(ValueError, match="size"):
        kind(size)


def test_kernel_numbers_are_distinct():
    """Two surrogates with one number would share one compiled slope."""
    numbers = [make().kernel_number for make in SURROGATES.values()]
    assert len(set(numbers)) == len(numbers)

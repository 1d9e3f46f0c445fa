"""Thresholds of converted networks: local threshold balancing and maxima."""

from itertools import pairwise

import pytest
import torch
from slow_conversion import balanced, largest
from torch import Tensor, nn

from carebn.conversion.thresholds import SMALLEST, balance, draws, maxima, one_pass


def linear(weight: list[list[float]], bias: list[float]) -> nn.Linear:
    layer = nn.Linear(len(weight[0]), len(weight)).double().requires_grad_(False)
    layer.weight.copy_(torch.tensor(weight))
    layer.bias.copy_(torch.tensor(bias))
    return layer


IDENTITY = [linear([[1.0]], [0.0])]


def column(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)[:, None]


def random_layers(*sizes: int) -> list[nn.Linear]:
    torch.manual_seed(0)
    return [nn.Linear(a, b).double().requires_grad_(False) for a, b in pairwise(sizes)]


def as_lists(layers: list[nn.Linear]) -> list[tuple[list[list[float]], list[float]]]:
    return [(layer.weight.tolist(), layer.bias.tolist()) for layer in layers]


def test_two_steps_of_balancing_by_hand() -> None:
    """1, 2, 3, −6: θ = 2·(1 + 2 + 3)/4 = 3, and nothing exceeds it. 0, 0, 0, 8: θ = 4, then 4 + 2·4/4 = 6."""
    assert balance(IDENTITY, [column(1, 2, 3, -6)])[0].tolist() == [3]
    rare = column(0, 0, 0, 8)
    assert [balance(IDENTITY, [rare] * k)[0].item() for k in (1, 2, 3)] == [4, 6, 7]


def test_the_next_layer_sees_what_the_new_threshold_lets_through() -> None:
    """θ₁ = 4 after the batch, so the second layer sees min(8, 4) = 4 and no more: θ₂ = 2·4/4 = 2."""
    first, second = balance([*IDENTITY, *IDENTITY], [column(0, 0, 0, 8)])
    assert (first.item(), second.item()) == (4, 2)


def test_thresholds_approach_the_maximum_from_below() -> None:
    """While one of n values lies above, the distance shrinks by 1 − 2/n each time."""
    torch.manual_seed(1)
    x = torch.randn(64, 1, dtype=torch.float64)
    found = [balance(IDENTITY, [x] * k)[0].item() for k in (1, 30, 100, 300, 1000)]
    assert found == sorted(found)
    assert found[-2] < x.max().item()
    assert found[-1] == pytest.approx(x.max().item(), rel=1e-9)
    theta = balance(IDENTITY, [column(*[0] * 9, 1)] * 20)[0].item()
    assert theta == pytest.approx(1 - 0.8**20)


def test_a_threshold_may_start_above_the_maximum_and_stays_there() -> None:
    """2·mean of the first batch, where all activations are nearly alike."""
    assert balance(IDENTITY, [column(1, 1, 1)] * 5)[0].item() == 2


def test_neurons_that_are_never_active_get_the_smallest_threshold() -> None:
    for rule in (balance, maxima):
        assert rule(IDENTITY, [column(-1, -2)])[0].item() == SMALLEST


def test_against_plain_python() -> None:
    layers = random_layers(3, 6, 5, 4)
    batches = [torch.randn(7, 3, dtype=torch.float64) for _ in range(40)]
    expected = balanced(as_lists(layers), [b.tolist() for b in batches])
    for ours, slow in zip(balance(layers, batches), expected, strict=True):
        torch.testing.assert_close(ours, torch.tensor(slow, dtype=torch.float64))
    expected = largest(as_lists(layers), torch.cat(batches).tolist())
    for ours, slow in zip(maxima(layers, batches), expected, strict=True):
        torch.testing.assert_close(ours, torch.tensor(slow, dtype=torch.float64))


def test_balanced_thresholds_converge_to_the_maxima_layer_by_layer() -> None:
    layers = random_layers(3, 6, 5)
    x = torch.randn(50, 3, dtype=torch.float64)
    for ltb, top in zip(balance(layers, [x] * 2000), maxima(layers, [x]), strict=True):
        torch.testing.assert_close(torch.maximum(ltb, top), ltb)  # at least the maximum
        assert (ltb[top > SMALLEST] < 2 * top[top > SMALLEST]).all()


def test_batches() -> None:
    x = torch.arange(10)[:, None]
    assert [len(b) for b in one_pass(x, 0, 4, 0)] == [4, 4, 2]
    assert torch.cat(list(one_pass(x, 0, 4, 0))).equal(x)
    drawn = list(draws(x, 100, 8, 3))
    assert [len(b) for b in drawn] == [8] * 100
    assert set(torch.cat(drawn).flatten().tolist()) == set(range(10))
    assert torch.cat(drawn).equal(torch.cat(list(draws(x, 100, 8, 3))))
    assert not torch.cat(drawn).equal(torch.cat(list(draws(x, 100, 8, 4))))

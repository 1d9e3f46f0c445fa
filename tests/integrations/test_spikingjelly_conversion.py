"""Local threshold balancing against SpikingJelly's recipe: thresholds, spikes, outputs and delay."""

import math

import pytest
import torch
from torch import nn

from carebn.conversion import Simulation, convert
from carebn.conversion.delay import delay
from carebn.conversion.thresholds import balance, draws
from carebn.network import ANNQNetwork

ann2snn = pytest.importorskip("spikingjelly.activation_based.ann2snn")
functional = pytest.importorskip("spikingjelly.activation_based.functional")
delays = pytest.importorskip("spikingjelly.activation_based.ann2snn.delay")

ITERATIONS, BATCH = 200, 32


@pytest.fixture(scope="module")
def ann() -> ANNQNetwork:
    torch.manual_seed(0)
    return ANNQNetwork(6, 3, hidden=(40, 30)).double().eval().requires_grad_(False)


@pytest.fixture(scope="module")
def observations() -> torch.Tensor:
    return torch.randn(500, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def theirs(ann: ANNQNetwork, observations: torch.Tensor) -> nn.Module:
    batches = list(draws(observations, ITERATIONS, BATCH, 0))
    recipe = ann2snn.LocalThresholdBalancingRecipe(dataloader=batches)
    converter = ann2snn.FXConverter(recipe, device="cpu")
    return converter.convert(nn.Sequential(*ann.body, ann.head))


def scalers(model: nn.Module) -> list[torch.Tensor]:
    named = {name: module for name, module in model.named_modules() if name.endswith("scaler1")}
    return [named[name].scale.flatten() for name in sorted(named)]


def test_thresholds(ann: ANNQNetwork, observations: torch.Tensor, theirs: nn.Module) -> None:
    ours = convert(ann, observations, iterations=ITERATIONS, batch_size=BATCH)
    for layer, scale in zip(ours.body.parts(), scalers(theirs), strict=True):
        torch.testing.assert_close(layer.threshold, scale.double(), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(("steps", "start"), [(1, 0), (8, 0), (50, 0), (50, 9)])
def test_outputs(ann: ANNQNetwork, observations: torch.Tensor, theirs: nn.Module, steps: int, start: int) -> None:
    ours = convert(ann, observations, iterations=ITERATIONS, batch_size=BATCH)
    ours.simulation = Simulation(steps, start)
    functional.reset_net(theirs)
    with torch.no_grad():
        read = torch.stack([theirs(observations) for _ in range(steps)])[start:].mean(0)
    torch.testing.assert_close(ours(observations), read, rtol=1e-5, atol=1e-6)


def test_delay(ann: ANNQNetwork, observations: torch.Tensor, theirs: nn.Module) -> None:
    """They round up, as we do, and take the same first step where enough steps follow."""
    layers = [m for m in ann.body if isinstance(m, nn.Linear)]
    thresholds = balance(layers, draws(observations, ITERATIONS, BATCH, 0))
    ours = delay(layers, thresholds, observations)
    estimated = delays.estimate_delay_start(theirs, [observations], "cpu", time_steps=100)
    assert ours > 0
    assert estimated == math.ceil(ours)

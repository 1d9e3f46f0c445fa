"""A bare CaReBN(n) leaves the neurons of other libraries as lively as BatchNorm1d does, at their own thresholds.

Three layers each: what a norm takes away once it takes away three times.
"""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from carebn import CaReBN

STEPS, BATCH, WIDTH, LAYERS = 24, 16, 32, 3
BATCHES = 80  # until torch's moving average has forgotten its start


class Flattened(nn.BatchNorm1d):
    """torch's own, over time and batch."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.flatten(0, -2)).view_as(x)


def spikingjelly() -> Callable[[Tensor], Tensor]:
    neuron = pytest.importorskip("spikingjelly.activation_based.neuron")
    return neuron.LIFNode(step_mode="m")


def snntorch() -> Callable[[Tensor], Tensor]:
    cell = pytest.importorskip("snntorch").Leaky(beta=0.9)

    def run(currents: Tensor) -> Tensor:
        membrane, spikes = cell.reset_mem(), []
        for current in currents:
            spike, membrane = cell(current, membrane)
            spikes.append(spike)
        return torch.stack(spikes)

    return run


def norse() -> Callable[[Tensor], Tensor]:
    cell = pytest.importorskip("norse.torch").LIF()
    return lambda currents: cell(currents)[0]


def rates(norm: Callable[[int], nn.Module], neuron: Callable[[], Callable[[Tensor], Tensor]]) -> list[float]:
    """How often the neurons of each layer fire: in training, then with the statistics that it has left."""
    torch.manual_seed(0)
    linears = [nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)]
    norms = [norm(WIDTH) for _ in range(LAYERS)]
    found = []
    for training in (*[True] * BATCHES, False):
        x, found = torch.randn(STEPS, BATCH, WIDTH), found if not training else []
        for linear, module in zip(linears, norms, strict=True):
            x = neuron()(module.train(training)(linear(x)))
            found.append(float(x.mean()))
    return found


@pytest.mark.slow
@torch.no_grad()
@pytest.mark.parametrize("neuron", [spikingjelly, snntorch, norse])
def test_as_many_spikes_as_with_torchs_batch_norm(neuron: Callable[[], Callable[[Tensor], Tensor]]) -> None:
    ours, theirs = rates(CaReBN, neuron), rates(Flattened, neuron)
    assert min(theirs) > 0.01, "the reference itself is silent"
    assert ours == pytest.approx(theirs, rel=0.15), "other numbers of spikes"

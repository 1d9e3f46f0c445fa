"""CaReBN inside snnTorch networks: on the whole sequence before a loop over the neurons, and in the loop itself."""

import copy
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn

from carebn import CaReBN, polyak_

from .common import (
    CLASSES,
    HIDDEN,
    C,
    N,
    T,
    check_gradients,
    check_learns,
    check_modes,
    check_recalibration,
    check_state_dict,
    norms,
    recorded,
    same,
    sequence,
    statistics,
    train,
    updates,
)

snn = pytest.importorskip("snntorch")
surrogate = pytest.importorskip("snntorch.surrogate")
utils = pytest.importorskip("snntorch.utils")


@pytest.fixture(autouse=True)
def _forget_neurons() -> Iterator[None]:
    """snnTorch keeps every neuron ever made in a list of its class, and ``utils.reset`` clears all of them."""
    yield
    snn.SpikingNeuron.init()


class Whole(nn.Module):
    """Linear and norm on [T, N, C] at once, then a loop over the neuron: one update of the norms per pass."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(C, HIDDEN)
        self.norm1 = CaReBN(HIDDEN)
        self.lif1 = snn.Leaky(beta=0.75, threshold=0.5, reset_mechanism="zero", spike_grad=surrogate.fast_sigmoid())
        self.fc2 = nn.Linear(HIDDEN, HIDDEN)
        self.norm2 = CaReBN(HIDDEN)
        self.lif2 = snn.Synaptic(alpha=0.5, beta=0.75, threshold=0.5, spike_grad=surrogate.fast_sigmoid())
        self.out = nn.Linear(HIDDEN, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        mem = self.lif1.reset_mem()
        spikes = []
        for current in self.norm1(self.fc1(x)):
            spike, mem = self.lif1(current, mem)
            spikes.append(spike)
        syn, mem = self.lif2.reset_mem()
        second = []
        for current in self.norm2(self.fc2(torch.stack(spikes))):
            spike, syn, mem = self.lif2(current, syn, mem)
            second.append(spike)
        return self.out(torch.stack(second))


def whole() -> nn.Module:
    torch.manual_seed(0)
    return Whole()


def stepwise() -> nn.Module:
    """A plain Sequential with hidden state, called step by step: T updates of the norms per pass."""
    torch.manual_seed(0)
    options = {"threshold": 0.5, "init_hidden": True, "spike_grad": surrogate.fast_sigmoid()}
    return nn.Sequential(
        nn.Linear(C, HIDDEN),
        CaReBN(HIDDEN),
        snn.Leaky(beta=0.75, **options),
        nn.Linear(HIDDEN, HIDDEN),
        CaReBN(HIDDEN),
        snn.Synaptic(alpha=0.5, beta=0.75, **options),
        nn.Linear(HIDDEN, CLASSES),
    )


def run(net: nn.Module, x: Tensor) -> Tensor:
    utils.reset(net)
    return net(x) if isinstance(net, Whole) else torch.stack([net(step) for step in x])


NETWORKS = [pytest.param(make, per_pass, id=make.__name__) for make, per_pass in ((whole, 1), (stepwise, T))]
every_network = pytest.mark.parametrize(("make", "per_pass"), NETWORKS)


@every_network
def test_learns(make: Callable[[], nn.Module], per_pass: int) -> None:
    check_learns(make(), run)


@every_network
def test_gradients_flow(make: Callable[[], nn.Module], per_pass: int) -> None:
    check_gradients(make(), run)


@every_network
def test_training_and_inference(make: Callable[[], nn.Module], per_pass: int) -> None:
    check_modes(make(), run, per_pass)


@every_network
def test_state_dict_round_trip(make: Callable[[], nn.Module], per_pass: int) -> None:
    check_state_dict(make, run)


@every_network
def test_recalibration(make: Callable[[], nn.Module], per_pass: int) -> None:
    check_recalibration(make(), run)


@every_network
def test_reset_leaves_norms_alone(make: Callable[[], nn.Module], per_pass: int) -> None:
    net = make()
    train(net, run, steps=2)
    before = statistics(net)
    utils.reset(net)
    assert same(statistics(net), before)


def test_whole_sequence_is_one_call() -> None:
    net = whole()
    alone = copy.deepcopy(norms(net)[0])
    with torch.no_grad(), recorded(net) as calls:
        run(net, sequence())
        ((given, out),) = calls[0]
        assert given.shape == (T, N, HIDDEN)
        assert torch.equal(out, alone(given))
    assert same(statistics(nn.Sequential(alone)), statistics(net)[:1])
    assert updates(net) == [1, 1]


def test_target_network() -> None:
    """Copied before the first pass: snnTorch keeps its hidden state in the module."""
    online = whole()
    target = copy.deepcopy(online)
    train(online, run, steps=3)
    assert updates(target) == [0, 0]
    polyak_(target, online, 1.0)
    online.eval()
    target.eval()
    x = sequence(seed=1)
    with torch.no_grad():
        assert torch.equal(run(target, x), run(online, x))

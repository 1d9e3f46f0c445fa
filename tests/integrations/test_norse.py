"""CaReBN inside Norse networks: on whole sequences, and lifted or called step by step."""

import copy
from collections.abc import Callable

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

norse = pytest.importorskip("norse.torch")

FAST = norse.LIFParameters(  # per step of 1 ms: half the current and a quarter of the potential decay
    tau_syn_inv=torch.as_tensor(500.0), tau_mem_inv=torch.as_tensor(250.0), v_th=torch.as_tensor(0.25)
)
FAST_BOX = norse.LIFBoxParameters(tau_mem_inv=torch.as_tensor(250.0), v_th=torch.as_tensor(0.1))


def whole() -> nn.Module:
    """Every layer takes the sequence; the norms make one update per pass."""
    torch.manual_seed(0)
    return norse.SequentialState(
        nn.Linear(C, HIDDEN),
        CaReBN(HIDDEN),
        norse.LIF(FAST),
        nn.Linear(HIDDEN, HIDDEN),
        CaReBN(HIDDEN),
        norse.Lift(norse.LIFBoxCell(FAST_BOX)),
        _Spikes(),
        nn.Linear(HIDDEN, CLASSES),
    )


class _Spikes(nn.Module):
    """A lifted cell gives (spikes, state) without taking a state, so SequentialState passes the pair on."""

    def forward(self, pair: tuple[Tensor, object]) -> Tensor:
        return pair[0]


def lifted() -> nn.Module:
    """The norms are lifted over time: they see single steps, so they make T updates per pass."""
    torch.manual_seed(0)
    return norse.SequentialState(
        norse.Lift(nn.Linear(C, HIDDEN)),
        norse.Lift(CaReBN(HIDDEN)),
        norse.LIF(FAST),
        norse.Lift(nn.Linear(HIDDEN, HIDDEN)),
        norse.Lift(CaReBN(HIDDEN)),
        norse.LIF(FAST),
        nn.Linear(HIDDEN, CLASSES),
    )


def cells() -> nn.Module:
    """One step at a time in a loop of the user's, with the state handed on."""
    torch.manual_seed(0)
    return norse.SequentialState(
        nn.Linear(C, HIDDEN),
        CaReBN(HIDDEN),
        norse.LIFCell(FAST),
        nn.Linear(HIDDEN, HIDDEN),
        CaReBN(HIDDEN),
        norse.LIFBoxCell(FAST_BOX),
        nn.Linear(HIDDEN, CLASSES),
    )


def run(net: nn.Module, x: Tensor) -> Tensor:
    if not isinstance(net[2], norse.LIFCell):
        out, _ = net(x)
        return out
    state, steps = None, []
    for step in x:
        out, state = net(step, state)
        steps.append(out)
    return torch.stack(steps)


NETWORKS = [pytest.param(make, per_pass, id=make.__name__) for make, per_pass in ((whole, 1), (lifted, T), (cells, T))]
every_network = pytest.mark.parametrize(("make", "per_pass"), NETWORKS)


def test_norm_is_not_taken_for_stateful() -> None:
    assert whole().stateful_layers == [False, False, True, False, False, False, False, False]
    assert cells().stateful_layers == [False, False, True, False, False, True, False]
    assert not norse.Lift(CaReBN(HIDDEN)).is_stateful


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


def test_lifted_norm_makes_an_update_per_step() -> None:
    """Each from one step's samples: a lifted norm in training is T calls, not one on the sequence."""
    x = sequence()
    norm, stepped = CaReBN(C), CaReBN(C)
    with torch.no_grad():
        out = norse.Lift(norm)(x)
        expected = torch.stack([stepped(step) for step in x])
    assert torch.equal(out, expected)
    assert same(statistics(nn.Sequential(norm)), statistics(nn.Sequential(stepped)))
    assert int(norm.num_batches_tracked) == T


def test_lifting_does_not_matter_in_inference() -> None:
    x = sequence()
    norm = CaReBN(C)
    norm(x)
    norm.eval()
    with torch.no_grad():
        torch.testing.assert_close(norse.Lift(norm)(x), norm(x))


def test_target_network() -> None:
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

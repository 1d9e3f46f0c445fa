"""CaReBN inside SpikingJelly networks, step by step ('s') and whole sequences at once ('m')."""

import copy
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from carebn import CaReBN, polyak_, recalibrate

from .common import (
    CLASSES,
    HIDDEN,
    C,
    N,
    T,
    batch_normalised,
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

logger = pytest.importorskip("spikingjelly.logger").logger
functional = pytest.importorskip("spikingjelly.activation_based.functional")
layer = pytest.importorskip("spikingjelly.activation_based.layer")
neuron = pytest.importorskip("spikingjelly.activation_based.neuron")
surrogate = pytest.importorskip("spikingjelly.activation_based.surrogate")

MODES = ("s", "m")


def network(step_mode: str) -> nn.Module:
    torch.manual_seed(0)
    net = nn.Sequential(
        layer.Linear(C, HIDDEN),
        CaReBN(HIDDEN),
        neuron.CUBALIFNode(),
        layer.Linear(HIDDEN, HIDDEN),
        CaReBN(HIDDEN, v_threshold=1.0),
        neuron.LIFNode(surrogate_function=surrogate.ATan()),
        layer.Linear(HIDDEN, CLASSES),
    )
    functional.set_step_mode(net, step_mode)
    return net


def run(net: nn.Module, x: Tensor) -> Tensor:
    """One pass from a fresh state, in whichever mode the network is."""
    functional.reset_net(net)
    if net[0].step_mode == "m":
        return net(x)
    return torch.stack([net(step) for step in x])


@pytest.fixture
def complaints() -> Iterator[list[str]]:
    """What SpikingJelly writes to its log, which is off unless asked for."""
    messages: list[str] = []
    sink = logger.add(messages.append, level="WARNING")
    logger.enable("spikingjelly")
    yield messages
    logger.disable("spikingjelly")
    logger.remove(sink)


class _Resettable(nn.Identity):
    def reset(self) -> None: ...


def test_library_complains_of_other_modules_with_its_method_names(complaints: list[str]) -> None:
    functional.reset_net(nn.Sequential(_Resettable()))
    assert len(complaints) == 1  # so the silence in the test below means something


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("step_mode", MODES)
def test_library_leaves_norms_alone(step_mode: str, complaints: list[str]) -> None:
    net = network("s")
    functional.set_step_mode(net, step_mode)
    train(net, run, steps=2)
    before = statistics(net)
    functional.detach_net(net)
    assert same(statistics(net), before)
    functional.reset_net(net)
    assert same(statistics(net), before)
    assert not any(hasattr(norm, "step_mode") for norm in norms(net))
    assert complaints == []


@pytest.mark.parametrize("step_mode", MODES)
def test_learns(step_mode: str) -> None:
    check_learns(network(step_mode), run)


@pytest.mark.parametrize("step_mode", MODES)
def test_gradients_flow(step_mode: str) -> None:
    check_gradients(network(step_mode), run)


@pytest.mark.parametrize(("step_mode", "updates_per_pass"), [("s", T), ("m", 1)])
def test_training_and_inference(step_mode: str, updates_per_pass: int) -> None:
    """In 's' the norm sees single steps: T updates per pass, each from a T times smaller sample."""
    check_modes(network(step_mode), run, updates_per_pass)


def test_multi_step_is_one_call_on_the_sequence() -> None:
    net = network("m")
    alone = copy.deepcopy(norms(net)[0])
    x = sequence()
    with torch.no_grad(), recorded(net) as calls:
        run(net, x)
        ((given, out),) = calls[0]
        assert given.shape == (T, N, HIDDEN)
        assert torch.equal(given, net[0](x))
        assert torch.equal(out, alone(given))
    assert same(statistics(nn.Sequential(alone)), statistics(net)[:1])
    assert updates(net) == [1, 1]


def test_modes_agree_in_inference() -> None:
    multi, single = network("m"), network("s")
    train(multi, run, steps=5)
    single.load_state_dict(multi.state_dict())
    multi.eval()
    single.eval()
    x = sequence(seed=1)
    with torch.no_grad():
        torch.testing.assert_close(run(multi, x), run(single, x))


def test_features_are_last_even_if_as_many_as_samples() -> None:
    """Where plain nn.BatchNorm1d takes [T, N, C] with N == C for N channels and says nothing."""
    x = torch.randn(T, C, C) * torch.linspace(1, 3, C) + torch.linspace(-5, 5, C)
    norm, theirs = CaReBN(C), layer.BatchNorm1d(C, step_mode="m")
    theirs.load_state_dict({k: v for k, v in norm.state_dict().items() if k in theirs.state_dict()})
    out = norm(x)
    torch.testing.assert_close(out, theirs(x))
    torch.testing.assert_close(out, batch_normalised(norm, x))
    wrong = nn.BatchNorm1d(C)
    wrong.load_state_dict(theirs.state_dict())
    assert not torch.allclose(out, wrong.train()(x), atol=0.1)


@pytest.mark.parametrize("step_mode", MODES)
def test_state_dict_round_trip(step_mode: str) -> None:
    check_state_dict(lambda: network(step_mode), run)


def test_takes_over_from_library_batch_norm() -> None:
    """A network trained with SpikingJelly's own batch norm goes on with CaReBN in its place."""
    theirs = network("m")
    for index in (1, 4):
        theirs[index] = layer.BatchNorm1d(HIDDEN, step_mode="m")
    train(theirs, run, steps=3)
    ours = network("m")
    ours.load_state_dict(theirs.state_dict())
    theirs.eval()
    ours.eval()
    x = sequence(seed=1)
    with torch.no_grad():
        torch.testing.assert_close(run(ours, x), run(theirs, x))


@pytest.mark.parametrize("step_mode", MODES)
def test_recalibration(step_mode: str) -> None:
    check_recalibration(network(step_mode), run)


def test_recalibration_starts_every_batch_from_a_fresh_state() -> None:
    """``forward`` is where a network with hidden state is reset; then the order of the batches cannot matter."""
    batches = [sequence(8, seed=seed) for seed in (1, 2)]
    one_way, other_way, left_over = network("m"), network("m"), network("m")
    recalibrate(one_way, batches, forward=run)
    recalibrate(other_way, batches[::-1], forward=run)
    recalibrate(left_over, batches)  # the second batch finds the membranes as the first one left them
    for a, b in zip(norms(one_way), norms(other_way), strict=True):
        torch.testing.assert_close(a.running_mean, b.running_mean)
        torch.testing.assert_close(a.running_var, b.running_var)
    assert not torch.allclose(norms(one_way)[1].running_mean, norms(left_over)[1].running_mean)


def test_target_network() -> None:
    """Copied before the first pass (SpikingJelly's own state cannot be copied later), then following."""
    online = network("m")
    target = copy.deepcopy(online)
    train(online, run, steps=3)
    assert updates(target) == [0, 0]
    start = statistics(target)
    polyak_(target, online, 0.25)
    for was, now, ahead in zip(start, norms(target), norms(online), strict=True):
        torch.testing.assert_close(now.running_mean, 0.75 * was["running_mean"] + 0.25 * ahead.running_mean)
        torch.testing.assert_close(now.running_var, 0.75 * was["running_var"] + 0.25 * ahead.running_var)
        torch.testing.assert_close(now.error_var, was["error_var"])
    polyak_(target, online, 1.0)
    online.eval()
    target.eval()
    x = sequence(seed=1)
    with torch.no_grad():
        assert torch.equal(run(target, x), run(online, x))

"""``polyak_``: a target network follows parameters and moving statistics, and nothing else."""

from copy import deepcopy

import pytest
import torch
from torch import nn

from carebn import SpikingActor
from carebn.norm import make_norm, polyak_

from .helpers import NORM_NAMES, assert_unchanged, drifting_batches, snapshot, with_random_parameters

T, F = 4, 5


def network(name):
    torch.manual_seed(0)
    norm = nn.BatchNorm1d(F) if name == "foreign" else make_norm(name, F, T)
    shape = nn.Flatten(0, 1) if name == "foreign" else nn.Identity()
    return nn.Sequential(nn.Linear(F, F), shape, norm).double()


def learn(model, seed):
    """Other parameters and other statistics, error estimates included."""
    with_random_parameters(model, seed)
    for x in drifting_batches(seed, 4, T, F, (7,)):
        model(torch.tensor(x))
    return model


def follows(name, buffers):
    return name not in buffers or name.rpartition(".")[2] in ("running_mean", "running_var")


@pytest.mark.parametrize("tau", [0.0, 0.005, 0.3, 0.9])
@pytest.mark.parametrize("name", [*NORM_NAMES, "foreign"])
def test_parameters_and_statistics_move_by_tau(name, tau):
    online, target = learn(network(name), 1), learn(network(name), 2)
    before, source = snapshot(target), snapshot(online)
    addresses = {key: value.data_ptr() for key, value in target.state_dict().items()}
    polyak_(target, online, tau)
    buffers = dict(target.named_buffers())
    after = target.state_dict()
    assert {"0.weight", "0.bias", "2.weight", "2.running_mean", "2.running_var"} <= after.keys()
    for key, value in after.items():
        if follows(key, buffers):
            expected = (1 - tau) * before[key] + tau * source[key]
            torch.testing.assert_close(value, expected, rtol=1e-12, atol=1e-12)
        else:
            assert torch.equal(value, before[key]), f"{key} moved"
    assert addresses == {key: value.data_ptr() for key, value in after.items()}
    assert_unchanged(online, source)


@pytest.mark.parametrize("name", ["care", "ca"])
def test_error_estimates_stay(name):
    """They describe the online network's own estimates; both networks have some here."""
    online, target = learn(network(name), 1), learn(network(name), 2)
    before = target[2].error_mean.clone(), target[2].error_var.clone()
    assert not torch.equal(before[0], online[2].error_mean)
    for tau in (0.5, 1.0):
        polyak_(target, online, tau)
    assert torch.equal(target[2].error_mean, before[0])
    assert torch.equal(target[2].error_var, before[1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tau_one_copies_exactly(dtype):
    """Bit for bit, also from values of a very different size."""
    online, target = learn(network("care"), 1).to(dtype), network("care").to(dtype)
    with torch.no_grad():
        target[0].weight.fill_(1e20)
        target[2].running_var.fill_(-3e-20)
    polyak_(target, online, 1.0)
    for key in ("0.weight", "0.bias", "2.weight", "2.bias", "2.running_mean", "2.running_var"):
        assert torch.equal(target.state_dict()[key], online.state_dict()[key])


def test_tau_zero_changes_nothing():
    online, target = learn(network("care"), 1), learn(network("care"), 2)
    before = snapshot(target)
    polyak_(target, online, 0)
    assert_unchanged(target, before)


def test_a_loop_over_parameters_would_leave_the_statistics_behind():
    """The bug that ``polyak_`` is there for: the target would act with mean 0 and variance 1 for ever."""
    torch.manual_seed(0)
    online = SpikingActor(3, 2, hidden=(8,), time_steps=T)
    by_parameters, by_polyak = deepcopy(online), deepcopy(online)
    for _ in range(3):
        online(torch.randn(16, 3))
        with torch.no_grad():
            for ours, theirs in zip(by_parameters.parameters(), online.parameters(), strict=True):
                ours.lerp_(theirs, 1.0)
        polyak_(by_polyak, online, 1.0)
    for layer in by_parameters.layers:
        assert not layer.norm.running_mean.any()
        assert (layer.norm.running_var == 1).all()
    for layer, own in zip(by_polyak.layers, online.layers, strict=True):
        assert own.norm.running_mean.any()
        assert torch.equal(layer.norm.running_mean, own.norm.running_mean)
        assert torch.equal(layer.norm.running_var, own.norm.running_var)
    obs = torch.randn(64, 3)
    online.eval()
    assert torch.equal(by_polyak.eval()(obs), online(obs))
    assert not torch.equal(by_parameters.eval()(obs), online(obs))


def test_no_gradient_and_no_graph():
    online, target = learn(network("care"), 1), learn(network("care"), 2)
    polyak_(target, online, 0.5)
    assert all(parameter.is_leaf and parameter.requires_grad for parameter in target.parameters())
    assert all(parameter.grad is None for parameter in target.parameters())


@pytest.mark.parametrize("tau", [-0.1, 1.1, float("nan"), float("inf")])
def test_tau_out_of_range(tau):
    online, target = learn(network("care"), 1), learn(network("care"), 2)
    before = snapshot(target)
    with pytest.raises(ValueError, match=r"tau must lie in \[0, 1\]"):
        polyak_(target, online, tau)
    assert_unchanged(target, before)


def test_networks_with_different_parts():
    target, online = network("care"), network("none")
    before = snapshot(target)
    for pair in ((target, online), (online, target)):
        with pytest.raises(ValueError, match=r"differ in '2\.\w+'"):
            polyak_(*pair, 0.5)
    assert_unchanged(target, before)


def test_networks_of_different_size():
    """Nothing moves, not even the parts that would fit."""
    target = nn.Sequential(nn.Linear(3, 3), make_norm("care", 3))
    online = nn.Sequential(nn.Linear(3, 3), make_norm("care", 1))
    before = snapshot(target)
    with pytest.raises(ValueError, match=r"shape of '1\.weight': \(3,\) and \(1,\)"):
        polyak_(target, online, 0.5)
    assert_unchanged(target, before)


def test_nothing_is_needed_that_torch_keeps_to_itself(monkeypatch):
    online, target = learn(network("care"), 1), learn(network("care"), 2)
    expected = 0.7 * target[0].weight + 0.3 * online[0].weight
    for name in [name for name in dir(torch) if name.startswith(("_foreach", "_fused"))]:
        monkeypatch.delattr(torch, name)
    polyak_(target, online, 0.3)
    torch.testing.assert_close(target[0].weight, expected)

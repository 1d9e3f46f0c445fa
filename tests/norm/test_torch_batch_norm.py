"""CaRe-BN is a torch batch norm: tools that know ``_BatchNorm`` can use it, load it and fold it."""

import inspect
from copy import deepcopy

import pytest
import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval
from torch.optim.swa_utils import update_bn

from carebn.norm import BN, CaReBN, CaReBN2d, make_norm

from .helpers import NORM_NAMES, assert_unchanged, close, drifting_batches, random_norm, snapshot

T, F = 4, 5
TORCH_NAMES = ("care", "ca", "re", "bn")


def trained(name="care"):
    """In float64, after a few training batches."""
    module = random_norm(name, F, T)
    for x in drifting_batches(5, 4, T, F, (7, 9)):
        module(torch.tensor(x))
    return module


def sample(batch=11):
    return torch.tensor(drifting_batches(6, 1, T, F, (batch,))[0])


# --- what it is ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NORM_NAMES)
def test_only_maps_that_are_torchs_claim_to_be_a_torch_batch_norm(name):
    assert isinstance(make_norm(name, F, T), _BatchNorm) == (name in TORCH_NAMES)


@pytest.mark.parametrize("cls", [CaReBN, CaReBN2d])
def test_names_of_parameters_and_buffers(cls):
    module = cls(F)
    assert {name for name, _ in module.named_parameters()} == {"weight", "bias"}
    assert {name for name, _ in module.named_buffers()} == {
        "running_mean", "running_var", "num_batches_tracked", "error_mean", "error_var"
    }  # fmt: skip
    assert module.affine
    assert module.track_running_stats


@pytest.mark.parametrize("name", NORM_NAMES)
def test_nothing_that_spiking_libraries_would_call(name):
    """Their reset_net, detach_net and set_step_mode look for these by name."""
    module = make_norm(name, F, T)
    assert not hasattr(module, "reset")
    assert not hasattr(module, "detach")
    assert not hasattr(module, "step_mode")
    assert list(inspect.signature(module.forward).parameters) == ["x"]


def test_plain_batch_norm_equals_torch():
    """Bare ``bn`` is nn.BatchNorm1d over time and batch, moving statistics included."""
    ours, theirs = BN(F).double(), nn.BatchNorm1d(F).double()
    for x in drifting_batches(7, 6, T, F, (9, 14)):
        x = torch.tensor(x)
        close(ours(x).flatten(0, 1), theirs(x.flatten(0, 1)))
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    for name, value in theirs.state_dict().items():
        close(ours.state_dict()[name], value)


# --- from and into nn.BatchNorm --------------------------------------------------------------------------------------


def test_loads_a_torch_batch_norm_strictly():
    """The error estimates, which a torch batch norm does not have, start afresh."""
    theirs = nn.BatchNorm1d(F).double()
    nn.init.uniform_(theirs.weight)
    theirs(sample().flatten(0, 1))
    state = theirs.state_dict()
    ours = trained()
    assert ours.error_mean.all()
    ours.load_state_dict(state, strict=True)
    assert not ours.error_mean.any()
    assert not ours.error_var.any()
    assert "error_mean" not in state  # the caller's dictionary is the caller's
    assert int(ours.num_batches_tracked) == 1
    x = sample()
    close(ours.eval()(x).flatten(0, 1), theirs.eval()(x.flatten(0, 1)), 1e-12)


def test_loads_as_part_of_a_larger_model():
    theirs = nn.Sequential(nn.Linear(F, F), nn.BatchNorm1d(F))
    ours = nn.Sequential(nn.Linear(F, F), CaReBN(F))
    theirs(torch.randn(8, F))
    ours.load_state_dict(theirs.state_dict(), strict=True)
    x = torch.randn(6, F)
    torch.testing.assert_close(ours.eval()(x), theirs.eval()(x))


def test_missing_statistics_are_still_an_error():
    state = nn.BatchNorm1d(F).state_dict()
    del state["running_mean"]
    with pytest.raises(RuntimeError, match="running_mean"):
        CaReBN(F).load_state_dict(state)


def test_loads_into_a_torch_batch_norm():
    ours, theirs = trained().eval(), nn.BatchNorm1d(F).double().eval()
    report = theirs.load_state_dict(ours.state_dict(), strict=False)
    assert not report.missing_keys
    assert set(report.unexpected_keys) == {"error_mean", "error_var"}
    x = sample()
    close(theirs(x.flatten(0, 1)), ours(x).flatten(0, 1), 1e-12)


@pytest.mark.parametrize("name", TORCH_NAMES)
def test_to_batch_norm(name):
    """The same inference, to the precision of the module; and a copy, not a view."""
    ours = trained(name).eval()
    theirs = ours.to_batch_norm()
    assert type(theirs) is nn.BatchNorm1d
    assert not theirs.training
    assert theirs.eps == ours.eps
    assert theirs.weight.dtype == torch.float64
    x = sample()
    expected = ours(x).flatten(0, 1)
    close(theirs(x.flatten(0, 1)), expected, 1e-12)
    ours.running_mean.add_(1)
    close(theirs(x.flatten(0, 1)), expected, 1e-12)


def test_to_batch_norm_in_single_precision():
    ours = trained().float()
    assert ours.to_batch_norm().training
    ours.eval()
    x = sample().float()
    torch.testing.assert_close(ours.to_batch_norm()(x.flatten(0, 1)), ours(x).flatten(0, 1))


def test_to_batch_norm_of_images():
    ours = CaReBN2d(3)
    ours(torch.randn(4, 3, 5, 5))
    theirs = ours.eval().to_batch_norm()
    assert type(theirs) is nn.BatchNorm2d
    x = torch.randn(2, 3, 5, 5)
    torch.testing.assert_close(theirs(x), ours(x))


# --- folding, copying, saving ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TORCH_NAMES)
def test_folds_into_a_linear_layer(name):
    torch.manual_seed(0)
    linear, norm = nn.Linear(3, F).double().eval(), trained(name).eval()
    x = torch.randn(T, 6, 3, dtype=torch.float64)
    folded = fuse_linear_bn_eval(linear, norm)
    assert type(folded) is nn.Linear
    close(folded(x), norm(linear(x)), 1e-12)


def test_folds_into_a_convolution():
    torch.manual_seed(0)
    convolution, norm = nn.Conv2d(2, 3, 3), CaReBN2d(3)
    norm(convolution(torch.randn(4, 2, 6, 6)))
    x = torch.randn(2, 2, 6, 6)
    convolution.eval()
    norm.eval()
    torch.testing.assert_close(fuse_conv_bn_eval(convolution, norm)(x), norm(convolution(x)), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", NORM_NAMES)
def test_deepcopy_after_a_training_step(name):
    """As for a target network; the copy is independent."""
    module = random_norm(name, F, T)
    module(sample()).sum().backward()
    copy = deepcopy(module)
    before = snapshot(module)
    assert_unchanged(copy, before)
    copy(sample() + 1).sum().backward()
    assert_unchanged(module, before)
    assert int(copy.num_batches_tracked) == 2


@pytest.mark.parametrize("name", NORM_NAMES)
def test_state_dict_round_trip(name, tmp_path):
    """Through a file, error estimates included, so that training goes on exactly where it stopped."""
    module, restored = random_norm(name, F, T), random_norm(name, F, T, seed=9)
    for x in drifting_batches(5, 4, T, F, (7, 9)):
        module(torch.tensor(x))
    if name in ("care", "ca"):
        assert module.error_mean.all()
    torch.save(module.state_dict(), tmp_path / "norm.pt")
    restored.load_state_dict(torch.load(tmp_path / "norm.pt", weights_only=True))
    assert_unchanged(restored, snapshot(module))
    assert torch.equal(module(sample()), restored(sample()))
    assert_unchanged(restored, snapshot(module))


def test_reset_running_stats_and_reset_parameters():
    module = trained()
    weight = module.weight.detach().clone()
    module.reset_running_stats()
    assert torch.equal(module.weight, weight)
    fresh = CaReBN(F).double()
    for name, buffer in fresh.named_buffers():
        assert torch.equal(getattr(module, name), buffer)
    module(sample())
    module.reset_parameters()
    assert_unchanged(module, snapshot(fresh))


# --- cumulative average ----------------------------------------------------------------------------------------------


def test_update_bn_of_torch():
    """swa_utils resets, averages batch means and unbiased variances, and gives the momentum back."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, F), CaReBN(F)).double()
    reference = nn.Sequential(nn.Linear(3, F), nn.BatchNorm1d(F)).double()
    model(torch.randn(9, 3, dtype=torch.float64))
    reference.load_state_dict(model.state_dict(), strict=False)
    batches = [torch.randn(size, 3, dtype=torch.float64) + size for size in (4, 9, 6)]
    update_bn(batches, model)
    update_bn(batches, reference)
    close(model[1].running_mean, reference[1].running_mean)
    close(model[1].running_var, reference[1].running_var)
    products = [model[0](x).detach() for x in batches]
    close(model[1].running_mean, torch.stack([x.mean(0) for x in products]).mean(0))
    close(model[1].running_var, torch.stack([x.var(0) for x in products]).mean(0))
    assert model[1].momentum == 0.8
    assert int(model[1].num_batches_tracked) == 3


# --- images ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(6, 3, 4, 2), (5, 6, 3, 4, 2)])
def test_images_equal_features_last(shape):
    """Pixels are further samples like time steps; the confidence still counts images, six here."""
    torch.manual_seed(0)
    images, vectors = CaReBN2d(3).double(), CaReBN(3).double()

    def flatten(x):
        x = x if x.ndim == 5 else x[None]
        return x.permute(0, 3, 4, 1, 2).flatten(0, 2)  # [T·H·W, B, C]

    for i in range(4):
        x = (1 + i) * torch.randn(shape, dtype=torch.float64) + torch.arange(3.0)[:, None, None]
        a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
        grad = torch.randn(shape, dtype=torch.float64)
        y, expected = images(a), vectors(flatten(b))
        assert y.shape == shape
        close(flatten(y), expected)
        y.backward(grad)
        expected.backward(flatten(grad))
        close(a.grad, b.grad)
    for name in ("running_mean", "running_var", "error_mean", "error_var", "num_batches_tracked"):
        close(getattr(images, name), getattr(vectors, name))
    for name in ("weight", "bias"):
        close(getattr(images, name).grad, getattr(vectors, name).grad)
    images.eval()
    vectors.eval()
    close(flatten(images(x)), vectors(flatten(x)))


def test_images_with_wrong_channels_or_axes():
    module = CaReBN2d(3)
    before = snapshot(module)
    with pytest.raises(ValueError, match="3 features, got 4"):
        module(torch.randn(2, 4, 5, 3))
    with pytest.raises(ValueError, match=r"\[B, C, H, W\]"):
        module(torch.randn(3, 5, 5))
    with pytest.raises(ValueError, match="batch of at least two"):
        module(torch.randn(1, 3, 5, 5))
    with pytest.raises(ValueError, match="batch of at least two"):
        module(torch.randn(4, 1, 3, 5, 5))
    assert_unchanged(module, before)

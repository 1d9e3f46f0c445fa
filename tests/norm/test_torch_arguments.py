"""What ``nn.BatchNorm1d`` can be built with, and done to, works for CaRe-BN and its relatives too."""

import inspect
from copy import deepcopy

import pytest
import torch
from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval

from carebn.norm import BN, CaBN, CaReBN, CaReBN2d, ReBN, polyak_

from .helpers import assert_unchanged, close, snapshot

F = 5
KINDS = [CaReBN, CaBN, ReBN, BN]
OPTIONS = [
    {},
    {"affine": False},
    {"bias": False},
    {"track_running_stats": False},
    {"affine": False, "track_running_stats": False},
    {"eps": 0.1, "affine": False},
]


def batch(seed=0, size=9, dtype=torch.float64):
    return 3 + 2 * torch.randn(size, F, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def torchs(options, **more):
    """nn.BatchNorm1d with these options; ``bias`` is younger than the oldest torch that we run on."""
    options = dict(options)
    bias = options.pop("bias", True)
    module = nn.BatchNorm1d(F, **options, **more)
    if not bias:
        module.bias = None
    return module


def pair(kind, options):
    """Ours and torch's with the same numbers, neither at its start."""
    ours, theirs = kind(F, **options).double(), torchs(options).double()
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter.copy_(torch.rand(F, dtype=torch.float64) + 0.5)
        if ours.running_mean is not None:
            ours.running_mean.copy_(torch.rand(F))
            ours.running_var.copy_(torch.rand(F) + 0.5)
    theirs.load_state_dict(ours.state_dict(), strict=False)
    return ours, theirs


# --- building --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [*KINDS, CaReBN2d])
def test_bare_it_starts_as_torch_does(kind):
    module = kind(F)
    assert module.weight.tolist() == [1.0] * F
    assert module.bias.tolist() == [0.0] * F
    module = kind(F, v_threshold=0.8)
    assert module.weight.tolist() == pytest.approx([0.4] * F)
    assert module.bias.tolist() == pytest.approx([0.4] * F)
    with torch.no_grad():
        module.weight.zero_()
    module.reset_parameters()
    assert module.weight.tolist() == pytest.approx([0.4] * F)


@pytest.mark.parametrize("kind", KINDS)
def test_arguments_by_position_are_torchs(kind):
    names = list(inspect.signature(nn.BatchNorm1d.__init__).parameters)[1:8]
    assert list(inspect.signature(kind.__init__).parameters)[1:8] == names
    module = kind(F, 1e-3, 0.3, False, False)
    assert (module.eps, module.momentum, module.affine, module.track_running_stats) == (1e-3, 0.3, False, False)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", OPTIONS)
def test_the_same_tensors_as_torchs(kind, options):
    ours, theirs = kind(F, **options), torchs(options)
    extra = (
        {"error_mean", "error_var"} if issubclass(kind, CaReBN) and options.get("track_running_stats", True) else set()
    )
    assert ours.state_dict().keys() == theirs.state_dict().keys() | extra
    for name, value in theirs.state_dict().items():
        assert torch.equal(ours.state_dict()[name], value)
    for name, value in options.items():
        if name != "eps":
            assert f"{name}={value}" in repr(ours)
    for name in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked"):
        assert (getattr(ours, name) is None) == (getattr(theirs, name) is None)


def test_starts_of_ones_own():
    module = CaReBN(F, weight=0.3, bias=0, v_threshold=1.0)
    assert module.weight.tolist() == pytest.approx([0.3] * F)
    assert module.bias.tolist() == [0.0] * F
    assert CaReBN(F, bias=True).bias.tolist() == [0.0] * F


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"affine": False, "weight": 1.0}, "affine=False means no γ and no β"),
        ({"affine": False, "bias": 0}, "affine=False means no γ and no β"),
        ({"weight": False}, "weight is the number that γ starts at, got False"),
    ],
)
def test_contradictions_are_refused(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        CaReBN(F, **options)


@pytest.mark.parametrize("kind", KINDS)
def test_device_and_precision(kind):
    module = kind(F, dtype=torch.float64, device="cpu")
    assert {t.dtype for t in module.state_dict().values()} == {torch.float64, torch.int64}
    module = kind(F, device="meta")
    assert {t.device.type for t in module.state_dict().values()} == {"meta"}
    module = module.to_empty(device="cpu")
    module.reset_parameters()
    assert_unchanged(module, snapshot(kind(F)))
    module(batch(dtype=torch.float32))


# --- running ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("training", [True, False])
def test_forward_and_backward_are_torchs(kind, options, training):
    ours, theirs = (module.train(training) for module in pair(kind, options))
    a, b, pull = batch().requires_grad_(), batch().requires_grad_(), batch(1)
    y, expected = ours(a), theirs(b)
    close(y, expected)
    y.backward(pull)
    expected.backward(pull)
    close(a.grad, b.grad)
    for name, parameter in theirs.named_parameters():
        close(ours.get_parameter(name).grad, parameter.grad)


@pytest.mark.parametrize("kind", KINDS)
def test_statistics_that_are_not_to_follow(kind):
    """Switched off later, as in torch: training leaves them, inference uses them."""
    ours, theirs = pair(kind, {})
    ours.track_running_stats = theirs.track_running_stats = False
    before = snapshot(ours)
    close(ours(batch()), theirs(batch()))
    assert_unchanged(ours, before)
    close(ours.eval()(batch()), theirs.eval()(batch()))


def test_without_statistics_a_batch_of_one_is_refused_in_inference_too():
    module = CaReBN(F, track_running_stats=False).eval()
    with pytest.raises(
        ValueError, match=r"without moving statistics .* needs a batch of at least two, in eval\(\) too"
    ):
        module(torch.randn(1, F))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("whole", [True, False])
def test_half_precision(kind, dtype, whole):
    """In the whole module, or in the input alone: stored in half precision, computed in single, as torch does."""
    ours, theirs = (module.to(dtype if whole else torch.float32) for module in pair(kind, {}))
    for training in (True, False):
        x = batch(dtype=dtype)
        y, expected = ours.train(training)(x), theirs.train(training)(x)
        assert y.dtype == dtype
        step = torch.finfo(dtype).eps
        torch.testing.assert_close(y, expected, rtol=2 * step, atol=2 * step)
        ours.load_state_dict(theirs.state_dict(), strict=False)
    ours.train()(1000 * batch(dtype=dtype))
    assert all(torch.isfinite(buffer).all() for buffer in ours.buffers())


# --- tools -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [*KINDS, CaReBN2d])
@pytest.mark.parametrize("options", OPTIONS)
def test_to_batch_norm(kind, options):
    module = kind(F, **options).double().eval()
    plain = module.to_batch_norm()
    x = batch() if kind is not CaReBN2d else batch(size=9 * 4).view(9, 4, F, 1).transpose(1, 2)
    close(plain(x), module(x))
    extra = {"error_mean", "error_var"}
    assert plain.state_dict().keys() == module.state_dict().keys() - extra
    assert (plain.weight is None) == (module.weight is None)
    assert (plain.bias is None) == (module.bias is None)
    assert not plain.training


@pytest.mark.parametrize("options", OPTIONS)
def test_folding_works_where_torchs_does(options):
    linear, x = nn.Linear(3, F).double().eval(), torch.randn(6, 3, dtype=torch.float64)
    ours, theirs = (module.eval() for module in pair(CaReBN, options))
    try:
        expected = fuse_linear_bn_eval(linear, theirs)(x)
    except (AssertionError, TypeError) as error:
        with pytest.raises(type(error)):
            fuse_linear_bn_eval(linear, ours)
    else:
        close(fuse_linear_bn_eval(linear, ours)(x), expected)


def test_a_convolution_takes_in_a_norm_without_weights():
    convolution, norm = nn.Conv2d(2, 3, 3).eval(), CaReBN2d(3, affine=False)
    x = torch.randn(4, 2, 6, 6)
    norm(convolution(x))
    torch.testing.assert_close(
        fuse_conv_bn_eval(convolution, norm.eval())(x), norm(convolution(x)), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("options", OPTIONS)
def test_copies_files_and_targets(options, tmp_path):
    module = CaReBN(F, **options).double()
    target = deepcopy(module)
    module(batch()).sum()
    polyak_(target, module, 0.25)
    if module.running_mean is not None:
        close(target.running_mean, module.running_mean / 4)
    torch.save(module.state_dict(), tmp_path / "norm.pt")
    other = CaReBN(F, **options).double()
    other.load_state_dict(torch.load(tmp_path / "norm.pt", weights_only=True))
    assert_unchanged(other, snapshot(module))


@pytest.mark.parametrize("kind", [CaReBN, BN])
def test_assigned_from_torchs_into_a_module_without_memory(kind):
    theirs = nn.BatchNorm1d(F).double()
    theirs(batch())
    ours = kind(F, device="meta")
    ours.load_state_dict(theirs.state_dict(), assign=True)
    assert {t.device.type for t in ours.state_dict().values()} == {"cpu"}
    close(ours.eval()(batch(1)), theirs.eval()(batch(1)))
    ours.train()(batch(2))


def test_error_estimates_start_afresh_only_with_statistics_of_a_plain_batch_norm():
    module = CaReBN(F).double()
    module(batch())
    before = snapshot(module)
    module.load_state_dict({}, strict=False)
    assert_unchanged(module, before)
    with pytest.raises(RuntimeError, match="error_var"):
        module.load_state_dict({name: value for name, value in before.items() if name != "error_var"})


@pytest.mark.parametrize("kind", [*KINDS, CaReBN2d])
def test_a_synchronised_batch_norm_is_not_made_of_it(kind):
    """It would average the moving statistics, and normalise another axis."""
    sentence = f"neither the moving statistics nor the layout of {kind.__name__}.*to_batch_norm"
    for model in (kind(F), nn.Sequential(nn.Linear(3, F), nn.Sequential(kind(F)))):
        with pytest.raises(ValueError, match=sentence):
            nn.SyncBatchNorm.convert_sync_batchnorm(model)
    converted = nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(kind(F).to_batch_norm()))
    assert type(converted[0]) is nn.SyncBatchNorm
    assert list(kind(F).children()) == []
    assert list(kind(F).named_children()) == []

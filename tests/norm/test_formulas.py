"""Every normaliser against its slow reference: outputs, gradients, moving statistics, inference."""

from contextlib import nullcontext

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from carebn.kernels import pure
from carebn.norm import CaReBN, make_norm

from .helpers import (
    MOMENTUM,
    NORM_NAMES,
    STEP_NAMES,
    affine_of,
    close,
    drifting_batches,
    random_norm,
    with_random_parameters,
)
from .reference import Moving, eval_output, gradients, train_output

V_THRESHOLD, ALPHA = 0.8, 0.7
POOLED_NAMES = tuple(name for name in NORM_NAMES if name not in STEP_NAMES)
PATHS = {"compiled": nullcontext, "torch": pure}  # moving statistics are updated by a kernel, or by torch operations

any_norm = pytest.mark.parametrize("name", NORM_NAMES)
either_path = pytest.mark.parametrize("path", PATHS)


def options_of(name):
    return {"alpha": ALPHA} if name == "tdbn" else {}


def build(name, features, time_steps, seed=0, **options):
    return random_norm(name, features, time_steps, seed, v_threshold=V_THRESHOLD, **options_of(name), **options)


def reference_affine(name, module):
    return affine_of(module, factor=ALPHA * V_THRESHOLD if name == "tdbn" else 1.0)


def backward(module, x, grad):
    """y and the gradients of Σ grad·y, keyed like the reference's."""
    x = x.clone().requires_grad_()
    y = module(x)
    (y * grad).sum().backward()
    return y, {"x": x.grad} | {key: parameter.grad for key, parameter in module.named_parameters()}


@any_norm
@settings(max_examples=25, deadline=None, derandomize=True)
@given(time_steps=st.integers(1, 8), batch=st.integers(2, 40), features=st.integers(1, 20), seed=st.integers(0, 2**16))
def test_output_and_gradients_of_training(name, time_steps, batch, features, seed):
    [x] = drifting_batches(seed, 1, time_steps, features, (batch,))
    grad = np.random.default_rng(seed + 1).normal(size=x.shape)
    module = build(name, features, time_steps, seed)
    y, got = backward(module, torch.tensor(x), torch.tensor(grad))
    affine = reference_affine(name, module)
    close(y, train_output(name, x, affine), 1e-9)
    expected = gradients(name, x, affine, grad)
    assert got.keys() == expected.keys()
    for key, value in expected.items():
        close(got[key], value, 1e-8)


@any_norm
@either_path
@settings(max_examples=6, deadline=None, derandomize=True)
@given(time_steps=st.integers(1, 8), batch=st.integers(2, 40), features=st.integers(1, 20), seed=st.integers(0, 2**16))
def test_moving_statistics_after_fifty_drifting_batches(name, path, time_steps, batch, features, seed):
    """With batches of two sizes, so that a confidence or an unbiasing that is fixed to the first one shows."""
    module = build(name, features, time_steps, seed)
    moving = Moving(name, time_steps, features, MOMENTUM[name])
    batches = drifting_batches(seed, 50, time_steps, features, (batch, batch + 3))
    with PATHS[path]():
        for x in batches:
            module(torch.tensor(x))
            moving.update(x)
    close(module.running_mean, moving.mean, 1e-9)
    close(module.running_var, moving.var, 1e-9)
    assert int(module.num_batches_tracked) == 50
    if name in ("care", "ca"):
        close(module.error_mean, moving.error_mean, 1e-9)
        close(module.error_var, moving.error_var, 1e-9)
    module.eval()
    x = batches[-1] * 1.3 + 0.4
    affine = reference_affine(name, module)
    close(module(torch.tensor(x)), eval_output(name, x, affine, moving.mean, moving.var), 1e-9)
    assert int(module.num_batches_tracked) == 50


@any_norm
def test_gradients_of_inference(name):
    """Moving statistics are constants: the gradient to the input is the scale and nothing else."""
    [x] = drifting_batches(3, 1, 4, 5, (9,))
    module = build(name, 5, 4)
    module(torch.tensor(x))
    module.eval()
    grad = np.random.default_rng(4).normal(size=x.shape)
    _, got = backward(module, torch.tensor(x), torch.tensor(grad))
    affine = reference_affine(name, module)
    mean, var = module.running_mean.numpy(), module.running_var.numpy()
    origin = eval_output(name, np.zeros_like(x), affine, mean, var)
    scale = eval_output(name, np.ones_like(x), affine, mean, var) - origin
    close(got["x"], grad * scale, 1e-9)


@any_norm
@either_path
@pytest.mark.parametrize("shape", [(5, 32, 7), (1, 64, 3), (8, 16, 20)])
def test_single_precision(name, path, shape):
    """The same in float32, to the digits that it has."""
    time_steps, batch, features = shape
    batches = drifting_batches(11, 50, time_steps, features, (batch,))
    rounded = [torch.tensor(x, dtype=torch.float32) for x in batches]
    module = with_random_parameters(
        make_norm(name, features, time_steps, v_threshold=V_THRESHOLD, **options_of(name)), 5
    )
    affine = reference_affine(name, module)
    grad = np.random.default_rng(6).normal(size=shape).astype(np.float32)
    moving = Moving(name, time_steps, features, MOMENTUM[name])
    with PATHS[path]():
        y, got = backward(module, rounded[0], torch.tensor(grad))
        for x in rounded[1:]:
            module(x)
    for x in rounded:
        moving.update(x.double().numpy())
    first = rounded[0].double().numpy()
    close(y, train_output(name, first, affine), 2e-5)
    for key, value in gradients(name, first, affine, grad.astype(np.float64)).items():
        close(got[key], value, 5e-5)
    close(module.running_mean, moving.mean, 2e-5)
    close(module.running_var, moving.var, 2e-5)
    if name in ("care", "ca"):
        close(module.error_mean, moving.error_mean, 2e-4)
        close(module.error_var, moving.error_var, 2e-4)
    module.eval()
    close(module(rounded[3]), eval_output(name, rounded[3].double().numpy(), affine, moving.mean, moving.var), 5e-5)


@any_norm
def test_single_precision_with_a_mean_far_above_the_spread(name):
    """A thousand to one costs three digits, as it does torch's own batch norm, and not more."""
    [x] = drifting_batches(11, 1, 5, 7, (64,))
    x = torch.tensor((x - x.mean((0, 1))) / x.std((0, 1)) + 1000, dtype=torch.float32)
    module = with_random_parameters(make_norm(name, 7, 5, v_threshold=V_THRESHOLD, **options_of(name)), 5)
    affine = reference_affine(name, module)
    grad = np.random.default_rng(6).normal(size=x.shape).astype(np.float32)
    y, got = backward(module, x, torch.tensor(grad))
    wide = x.double().numpy()
    close(y, train_output(name, wide, affine), 3e-4)
    for key, value in gradients(name, wide, affine, grad.astype(np.float64)).items():
        close(got[key], value, 2e-3)


@pytest.mark.parametrize("name", POOLED_NAMES)
def test_two_dimensional_input_is_one_time_step(name):
    [x] = drifting_batches(8, 1, 1, 6, (13,))
    flat, sequence = build(name, 6, 1), build(name, 6, 1)
    y = flat(torch.tensor(x[0]))
    assert torch.equal(y, sequence(torch.tensor(x))[0])
    assert torch.equal(flat.running_mean, sequence.running_mean)
    assert torch.equal(flat.running_var, sequence.running_var)
    close(y, train_output(name, x, reference_affine(name, flat))[0])


@pytest.mark.parametrize("name", POOLED_NAMES)
def test_pooled_statistics_do_not_see_the_order_of_time(name):
    [x] = drifting_batches(8, 1, 4, 6, (13,))
    module = build(name, 6, 4)
    close(module(torch.tensor(x)).flip(0), module(torch.tensor(x[::-1].copy())))


def test_tab_ends_in_pooled_and_starts_in_per_step_statistics():
    """At the last step it is tdBN's statistics, at the first BNTT's."""
    [x] = drifting_batches(8, 1, 4, 6, (13,))
    module = make_norm("tab", 6, 4, momentum=1.0).double()
    module(torch.tensor(x))
    close(module.running_mean[-1], x.mean((0, 1)))
    close(module.running_mean[0], x[0].mean(0))


def test_bntt_with_the_optional_offset():
    """β_t is not in the published form, but is needed for a start in common with the others."""
    [x] = drifting_batches(8, 1, 4, 6, (13,))
    module = build("bntt", 6, 4, bias=0.3)
    grad = np.random.default_rng(4).normal(size=x.shape)
    y, got = backward(module, torch.tensor(x), torch.tensor(grad))
    affine = affine_of(module)
    close(y, train_output("bntt", x, affine))
    expected = gradients("bntt", x, affine, grad)
    assert got.keys() == expected.keys() == {"x", "weight", "bias"}
    for key, value in expected.items():
        close(got[key], value)


@any_norm
def test_the_input_is_left_alone(name):
    [x] = drifting_batches(8, 1, 4, 6, (13,))
    module, given = build(name, 6, 4), torch.tensor(x)
    module(given)
    module.eval()(given)
    assert np.array_equal(given.numpy(), x)


@any_norm
def test_statistics_are_updated_in_place(name):
    """Whoever holds a reference to a buffer (a target network, an optimiser) keeps the right one."""
    module = build(name, 6, 4)
    before = {key: buffer.data_ptr() for key, buffer in module.named_buffers()}
    module(torch.tensor(drifting_batches(8, 1, 4, 6, (13,))[0]))
    assert before == {key: buffer.data_ptr() for key, buffer in module.named_buffers()}


@any_norm
def test_inference_changes_nothing(name):
    module = build(name, 6, 4).eval()
    before = {key: value.clone() for key, value in module.state_dict().items()}
    module(torch.tensor(drifting_batches(8, 1, 4, 6, (13,))[0]))
    assert all(torch.equal(value, before[key]) for key, value in module.state_dict().items())


@any_norm
def test_cumulative_average_without_momentum(name):
    """momentum=None means the plain average over all batches, as in torch, for every normaliser."""
    module = build(name, 3, 4, momentum=None)
    moving = Moving(name, 4, 3, None)
    for x in drifting_batches(2, 7, 4, 3, (5, 8)):
        module(torch.tensor(x))
        moving.update(x)
    close(module.running_mean, moving.mean)
    close(module.running_var, moving.var)
    if name in ("care", "ca"):
        assert not module.error_mean.any()
        assert not module.error_var.any()


@either_path
def test_confidence_by_hand(path):
    """One feature, samples 0, 4 | 2, 2 in two steps of a batch of two: mean 2, variance 2, N = 2 and not 4."""
    module = CaReBN(1).double()
    x = torch.tensor([[[0.0], [4.0]], [[2.0], [2.0]]], dtype=torch.float64)
    with PATHS[path]():
        module(x)
        # D = 0.8·2² = 3.2, R = 2/2, K = 3.2/4.2;  D = 0.8·1² = 0.8, R = 2·2²/1, K = 0.8/8.8
        close(module.error_mean, np.array([3.2]), 1e-14)
        close(module.running_mean, np.array([2 * 3.2 / 4.2]), 1e-14)
        close(module.error_var, np.array([0.8]), 1e-14)
        close(module.running_var, np.array([1 + 0.8 / 8.8]), 1e-14)
        module(x)
    gap = 2 - 2 * 3.2 / 4.2
    close(module.error_mean, np.array([0.2 * 3.2 + 0.8 * gap**2]), 1e-14)


@either_path
def test_momentum_of_the_authors_code(path):
    module = CaReBN(3, momentum=0.2).double()
    moving = Moving("care", 4, 3, 0.2)
    with PATHS[path]():
        for x in drifting_batches(2, 9, 4, 3, (5,)):
            module(torch.tensor(x))
            moving.update(x)
    close(module.running_mean, moving.mean)
    close(module.error_var, moving.error_var)


@either_path
@pytest.mark.parametrize("name", ["care", "ca"])
def test_confidence_is_never_zero_by_zero(name, path):
    """A feature that is always zero has D = R = 0 for the mean from the start; a constant one gets there."""
    module = make_norm(name, 2).double()
    x = torch.zeros(3, 4, 2, dtype=torch.float64)
    x[..., 1] = 5.0
    with PATHS[path]():
        for _ in range(60):
            module(x)
    assert module.running_mean.tolist() == [0.0, 5.0]  # no noise: the batch is believed at once
    assert module.running_var.tolist() == [0.0, 0.0]
    assert torch.isfinite(module.error_mean).all()


def test_initial_state():
    module = CaReBN(3, v_threshold=0.8)
    assert module.running_mean.tolist() == [0, 0, 0]
    assert module.running_var.tolist() == [1, 1, 1]
    assert module.error_mean.tolist() == [0, 0, 0]
    assert module.error_var.tolist() == [0, 0, 0]
    assert module.weight.tolist() == pytest.approx([0.4] * 3)
    assert module.bias.tolist() == pytest.approx([0.4] * 3)
    assert (module.momentum, module.eps) == (0.8, 1e-5)

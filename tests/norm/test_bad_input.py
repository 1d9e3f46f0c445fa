"""Input that cannot be normalised: one clear ValueError, and not a bit of state changed."""

import pytest
import torch

from carebn.norm import make_norm

from .helpers import NORM_NAMES, STEP_NAMES, assert_unchanged, drifting_batches, snapshot, with_random_parameters

T, B, F = 4, 6, 3
POOLED_NAMES = tuple(name for name in NORM_NAMES if name not in STEP_NAMES)
any_norm = pytest.mark.parametrize("name", NORM_NAMES)
either_mode = pytest.mark.parametrize("training", [True, False], ids=["training", "inference"])


def trained(name):
    module = with_random_parameters(make_norm(name, F, T), 1)
    for x in drifting_batches(5, 3, T, F, (7,)):
        module(torch.tensor(x, dtype=torch.float32))
    return module


def refuse(module, x, message):
    before = snapshot(module)
    with pytest.raises(ValueError, match=message):
        module(x)
    assert_unchanged(module, before)


@any_norm
@either_mode
@pytest.mark.parametrize("features", [1, F - 1, F + 1])
def test_wrong_number_of_features(name, training, features):
    """One feature as well: it would broadcast silently."""
    module = trained(name).train(training)
    refuse(module, torch.randn(T, B, features), f"{type(module).__name__} was built for {F} features, got {features}")


@pytest.mark.parametrize("name", POOLED_NAMES)
@either_mode
def test_wrong_number_of_features_without_time(name, training):
    refuse(trained(name).train(training), torch.randn(B, F + 1), f"built for {F} features, got {F + 1}")


@any_norm
@either_mode
@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.bool])
def test_integers(name, training, dtype):
    refuse(trained(name).train(training), torch.ones(T, B, F, dtype=dtype), "floating-point input, got torch")


@any_norm
@pytest.mark.parametrize("shape", [(T, 0, F), (0, B, F)])
def test_empty(name, shape):
    refuse(trained(name), torch.empty(shape), "empty input")


@any_norm
def test_an_empty_batch_in_inference_gives_an_empty_answer(name):
    """As torch's own batch norms do; no time steps at all are a mistake."""
    assert trained(name).eval()(torch.empty(T, 0, F)).shape == (T, 0, F)
    refuse(trained(name).eval(), torch.empty(0, B, F), "empty input")


@pytest.mark.parametrize("name", POOLED_NAMES)
def test_empty_without_time(name):
    refuse(trained(name), torch.empty(0, F), "empty input")
    assert trained(name).eval()(torch.empty(0, F)).shape == (0, F)


@any_norm
def test_batch_of_one_with_time(name):
    refuse(trained(name), torch.randn(T, 1, F), "needs a batch of at least two in training")


@pytest.mark.parametrize("name", POOLED_NAMES)
def test_batch_of_one_without_time(name):
    refuse(trained(name), torch.randn(1, F), "needs a batch of at least two in training")


@any_norm
def test_batch_of_one_in_inference_is_fine(name):
    """That is how an agent acts."""
    module = trained(name).eval()
    assert module(torch.randn(T, 1, F)).shape == (T, 1, F)
    if name in POOLED_NAMES:
        assert module(torch.randn(1, F)).shape == (1, F)


@pytest.mark.parametrize("name", STEP_NAMES)
@either_mode
@pytest.mark.parametrize("steps", [1, T - 1, T + 1])
def test_wrong_number_of_time_steps(name, training, steps):
    refuse(trained(name).train(training), torch.randn(steps, B, F), f"built for {T} time steps")


@pytest.mark.parametrize("name", STEP_NAMES)
@either_mode
@pytest.mark.parametrize("rows", [B, T])
def test_no_time_axis(name, training, rows):
    """Also where the batch happens to be as large as the number of steps."""
    refuse(trained(name).train(training), torch.randn(rows, F), r"\[T, B, F\]|built for 4 time steps")


@any_norm
@either_mode
@pytest.mark.parametrize("shape", [(), (F,)])
def test_too_few_axes(name, training, shape):
    refuse(trained(name).train(training), torch.randn(shape), "expects input of shape")


@any_norm
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_non_finite_training_input(name, value, dtype):
    """A single bad number, or both infinities, must not poison the moving statistics for ever."""
    module = trained(name).to(dtype)
    x = torch.randn(T, B, F, dtype=dtype)
    x[1, 2, 0] = value
    refuse(module, x, "NaN or infinity in a training batch; its moving statistics are unchanged")
    x[2, 3, 0] = -value
    refuse(module, x, "NaN or infinity in a training batch")
    if name in POOLED_NAMES:
        refuse(module, x[1], "NaN or infinity in a training batch")


@any_norm
def test_it_goes_on_after_a_refusal(name):
    module, untouched = trained(name), trained(name)
    refuse(module, torch.full((T, B, F), float("nan")), "NaN or infinity")
    x = torch.randn(T, B, F)
    assert torch.equal(module(x), untouched(x))
    assert_unchanged(module, snapshot(untouched))

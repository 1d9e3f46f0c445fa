"""tdBN, TEBN and BNTT equal the classes of SpikingJelly, which were written by somebody else."""

import pytest
import torch

from carebn.norm import BN, BNTT, TDBN, TEBN

from .helpers import close, drifting_batches, with_random_parameters

pytest.importorskip("spikingjelly")
from spikingjelly.activation_based import functional, layer

T, F = 5, 6
ALPHA, V_THRESHOLD = 0.7, 0.8


def copy_(target, source, factor=1.0):
    with torch.no_grad():
        target.copy_(source * factor)


def tdbn_pair(threshold_in_weight):
    ours = with_random_parameters(
        TDBN(F, v_threshold=V_THRESHOLD, alpha=ALPHA, threshold_in_weight=threshold_in_weight).double(), 1
    )
    theirs = layer.ThresholdDependentBatchNorm1d(ALPHA, V_THRESHOLD, F).double()
    copy_(theirs.weight, ours.weight, 1.0 if threshold_in_weight else ALPHA * V_THRESHOLD)
    copy_(theirs.bias, ours.bias)
    return ours, theirs, lambda name: getattr(theirs, name)


def tebn_pair():
    ours = with_random_parameters(TEBN(F, T).double(), 1)
    theirs = layer.TemporalEffectiveBatchNorm1d(T, F).double()
    copy_(theirs.weight, ours.weight)
    copy_(theirs.bias, ours.bias)
    copy_(theirs.scale, ours.step_scale)
    return ours, theirs, lambda name: getattr(theirs, name)


def bntt_pair():
    ours = with_random_parameters(BNTT(F, T).double(), 1)
    theirs = layer.BatchNormThroughTime1d(T, F, step_mode="m").double()
    for t, step in enumerate(theirs.bn_list):
        copy_(step.weight, ours.weight[t])
    return ours, theirs, lambda name: torch.stack([getattr(step, name) for step in theirs.bn_list])


def bn_pair():
    ours = with_random_parameters(BN(F).double(), 1)
    theirs = layer.BatchNorm1d(F, step_mode="m").double()
    theirs.load_state_dict(ours.state_dict())
    return ours, theirs, lambda name: getattr(theirs, name)


PAIRS = {
    "tdbn": lambda: tdbn_pair(False),
    "tdbn, threshold in weight": lambda: tdbn_pair(True),
    "tebn": tebn_pair,
    "bntt": bntt_pair,
    "bn": bn_pair,
}


@pytest.mark.parametrize("pair", PAIRS)
def test_training_and_inference(pair):
    ours, theirs, their_buffer = PAIRS[pair]()
    generator = torch.Generator().manual_seed(0)
    batches = [torch.tensor(x) for x in drifting_batches(7, 6, T, F, (9, 14))]
    for x in batches:
        mine, other = x.clone().requires_grad_(), x.clone().requires_grad_()
        grad = torch.randn(x.shape, generator=generator, dtype=x.dtype)
        functional.reset_net(theirs)
        y, expected = ours(mine), theirs(other)
        close(y, expected)
        y.backward(grad)
        expected.backward(grad)
        close(mine.grad, other.grad)
        close(ours.running_mean, their_buffer("running_mean"))
        close(ours.running_var, their_buffer("running_var"))
    ours.eval()
    theirs.eval()
    functional.reset_net(theirs)
    close(ours(batches[0]), theirs(batches[0]))


def test_parameter_gradients_of_tebn_and_tdbn():
    x = torch.tensor(drifting_batches(7, 1, T, F, (9,))[0])
    grad = torch.randn(x.shape, generator=torch.Generator().manual_seed(0), dtype=x.dtype)
    for pair in (tebn_pair(), tdbn_pair(True)):
        ours, theirs, _ = pair
        ours(x).backward(grad)
        theirs(x).backward(grad)
        close(ours.weight.grad, theirs.weight.grad)
        close(ours.bias.grad, theirs.bias.grad)
        if isinstance(ours, TEBN):
            close(ours.step_scale.grad, theirs.scale.grad)


def test_starting_points_are_the_published_ones():
    """Before any training both libraries compute the same function."""
    x = torch.tensor(drifting_batches(7, 1, T, F, (9,))[0])
    for ours, theirs in (
        (TDBN(F, v_threshold=V_THRESHOLD, alpha=ALPHA), layer.ThresholdDependentBatchNorm1d(ALPHA, V_THRESHOLD, F)),
        (TEBN(F, T), layer.TemporalEffectiveBatchNorm1d(T, F)),
        (BNTT(F, T), layer.BatchNormThroughTime1d(T, F, step_mode="m")),
    ):
        close(ours.double()(x), theirs.double()(x), 1e-6)  # the start is stored in single precision

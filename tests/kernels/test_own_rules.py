"""Normalisers with rules of their own, which may look at anything: in training torch asks them, in its order and
precision, unless they say that they are functions."""

from contextlib import nullcontext

import pytest
import torch
from kernel_cases import OBS, assert_same, make_actor, trained
from torch import nn

from carebn.kernels import explain, pure
from carebn.network import SpikingLayer
from carebn.norm import BN, recalibrate

ROWS = pytest.mark.parametrize("rows", [len(OBS), 9], ids=["stack", "layers"])


class OwnUpdate(BN):
    """Written for float32, as the statistics are."""

    def update(self, mean, var, batch, samples):
        self.running_mean.lerp_(mean, 0.1)
        self.running_var.lerp_(var, 0.1)


class Mixing(BN):
    def __init__(self, features, **options):
        super().__init__(features, **options)
        self.mix = nn.Parameter(torch.eye(features) * 0.9)

    def combine(self, mean, var):
        return mean, var @ self.mix


class InPlace(BN):
    def scale_offset(self, var):
        return self.weight * var.add_(self.eps).rsqrt_(), self.bias


class WarmUp(BN):
    """γ grows over the first ten batches."""

    def scale_offset(self, var):
        scale, offset = super().scale_offset(var)
        return scale * min(1.0, int(self.num_batches_tracked) / 10), offset


class Renorm(BN):
    def scale_offset(self, var):
        scale, offset = super().scale_offset(var)
        return scale * (var.detach() / self.running_var).sqrt().clamp(0.1, 10), offset


class Homeostasis(BN):
    """Whose statistics move the threshold of the neuron behind it."""

    def observe(self, mean, var, batch, samples):
        super().observe(mean, var, batch, samples)
        self.behind[0].v_threshold = 0.5 + float(self.running_mean.abs().mean())


class Lenient(BN):
    def refuse_non_finite(self):
        pass


class Unmoved(BN):
    def observe(self, *given):
        pass


class MovesThreshold(BN):
    def update(self, mean, var, batch, samples):
        super().update(mean, var, batch, samples)
        self.behind[0].v_threshold = 0.5 + float(self.running_mean.abs().mean())


class ClampsScale(BN):
    def update(self, mean, var, batch, samples):
        super().update(mean, var, batch, samples)
        self.weight.data.clamp_(0.8, 2.0)
        self.eps = 0.3


class WritesToItsArguments(BN):
    def update(self, mean, var, batch, samples):
        self.running_var.lerp_(var.mul_(samples / (samples - 1)), 0.1)
        self.running_mean.lerp_(mean.mul_(0.5), 0.1)


class Assigns(BN):
    def update(self, mean, var, batch, samples):
        self.running_mean = 0.9 * self.running_mean + 0.1 * mean


class Counts(BN):
    calls = 0

    def scale_offset(self, var):
        self.calls += 1
        scale, offset = super().scale_offset(var)
        return scale / (1 + 0.1 * self.calls), offset


class Remembers(BN):
    def __init__(self, features, **options):
        super().__init__(features, **options)
        self.register_buffer("smooth", torch.ones(features))

    def combine(self, mean, var):
        if self.training:
            self.smooth.lerp_(var.detach(), 0.5)
        return mean, var

    def scale_offset(self, var):
        scale, offset = super().scale_offset(var)
        return scale, offset + self.smooth * 0.01


class Noisy(BN):
    def scale_offset(self, var):
        scale, offset = super().scale_offset(var)
        return scale * (1 + 0.1 * torch.randn_like(scale)), offset


class MeanOnly(BN):
    """Mean-only batch normalisation (Salimans & Kingma, 2016): no gradient goes to its scale."""

    def scale_offset(self, var):
        return torch.ones_like(var), self.bias


class StopsAtVariance(BN):
    def scale_offset(self, var):
        scale, offset = super().scale_offset(var.detach())
        return scale.detach(), offset


class Constant(BN):
    def combine(self, mean, var):
        return torch.zeros_like(mean), torch.ones_like(var)

    def scale_offset(self, var):
        return torch.ones_like(var), torch.zeros_like(var)


OWN = [
    *(OwnUpdate, Mixing, InPlace, WarmUp, Renorm, Homeostasis, Lenient, Unmoved, MovesThreshold, ClampsScale),
    *(WritesToItsArguments, Assigns, Counts, Remembers, Noisy, MeanOnly, StopsAtVariance, Constant),
]
FUNCTIONS = [MeanOnly, StopsAtVariance, Constant]


def function(kind):
    return type(kind.__name__, (kind,), {"rules_are_functions": True})


def with_norms(kind):
    actor = make_actor(norm="bn")
    for layer in actor.layers:
        layer.norm = kind(layer.norm.num_features, v_threshold=0.5)
        layer.norm.behind = (layer.neuron,)
    return actor


def assert_trains_alike(kind, rows):
    results = []
    for path in (nullcontext, pure):
        actor = with_norms(kind)
        torch.manual_seed(0)
        with path():
            results.append(trained(actor, OBS[:rows]))
    assert_same(*results)


@ROWS
@pytest.mark.parametrize("kind", OWN)
def test_rules_of_one_s_own(kind, rows):
    assert_trains_alike(kind, rows)


@ROWS
@pytest.mark.parametrize("kind", FUNCTIONS)
def test_functions_keep_the_compiled_layer(kind, rows):
    assert_trains_alike(function(kind), rows)
    for norm, wanted in ((kind, "pure"), (function(kind), "layer")):
        paths = [path for name, path, _ in explain(with_norms(norm), OBS[:rows]) if name[:-1] == "layers."]
        assert paths == [wanted] * 3
        assert explain(with_norms(norm), OBS[:rows])[-1][1] == "act"  # in training mode too: it learns nothing


def test_a_moving_rule_that_is_a_function_keeps_the_stack():
    class Half(BN):
        rules_are_functions = True

        def update(self, mean, var, batch, samples):
            self.running_mean += 0.5 * (mean - self.running_mean).to(self.running_mean.dtype)

    assert explain(with_norms(Half), OBS)[0][:2] == ("(network)", "stack")
    assert_trains_alike(Half, len(OBS))


@pytest.mark.parametrize("kind", [OwnUpdate, WarmUp, Renorm])
def test_they_are_re_calibrated(kind):
    ours, theirs = with_norms(kind), with_norms(kind)
    recalibrate(ours, [OBS, OBS * 0.5])
    with pure():
        recalibrate(theirs, [OBS, OBS * 0.5])
    assert_same(list(ours.state_dict().values()), list(theirs.state_dict().values()))


@ROWS
@pytest.mark.parametrize("kind", [Lenient, Unmoved])
def test_what_they_do_with_nan(kind, rows):
    """BN itself refuses it."""
    ours, theirs = with_norms(kind), with_norms(kind)
    for actor in (ours, theirs):
        actor.layers[0].linear.bias.data[0] = torch.nan
    with torch.no_grad():
        ours(OBS[:rows])
        with pure():
            theirs(OBS[:rows])
    for name, value in ours.state_dict().items():
        torch.testing.assert_close(value, theirs.state_dict()[name], equal_nan=True, msg=name)


def _gain_in_a_closure(gain):
    class Shared(BN):
        def scale_offset(self, var):
            scale, offset = super().scale_offset(var)
            return scale * gain, offset

    return Shared(8)


def _gain_in_a_list(gain):
    class Shared(BN):
        def combine(self, mean, var):
            return mean, var * self.gains[0]

    norm = Shared(8)
    norm.gains = [gain]
    return norm


def _gain_as_scale(gain):
    class Shared(BN):
        def scale_offset(self, var):
            return gain.expand_as(var), self.bias

    return Shared(8)


@pytest.mark.parametrize("make", [_gain_in_a_closure, _gain_in_a_list, _gain_as_scale])
@pytest.mark.parametrize("claims", [True, False])
def test_a_parameter_of_somebody_else_gets_its_gradient(make, claims):
    """Also where the class says what is not so."""
    x, weights = (torch.rand(5, 16, 6) > 0.5).float(), torch.randn(5, 16, 8)
    gradients = []
    for path in (nullcontext, pure):
        torch.manual_seed(0)
        gain = nn.Parameter(torch.tensor(1.2))
        layer = SpikingLayer(6, 8)
        layer.norm = make(gain)
        type(layer.norm).rules_are_functions = claims
        with path():
            (layer(x) * weights).sum().backward()
        assert gain.grad is not None
        gradients.append([gain.grad])
    assert_same(*gradients)


def test_a_batch_that_is_not_for_the_compiled_layer_is_seen_once():
    class Enormous(BN):
        rules_are_functions = True

        def scale_offset(self, var):
            scale, offset = super().scale_offset(var)
            return scale, offset + 1e6

    ours, theirs = with_norms(Enormous), with_norms(Enormous)
    ours(OBS)
    with pure():
        theirs(OBS)
    assert int(ours.layers[0].norm.num_batches_tracked) == 1
    assert_same(list(ours.state_dict().values()), list(theirs.state_dict().values()))


def test_statistics_that_are_told_by_hand():
    for given in (
        (torch.zeros(()), torch.ones(()), 8, 40),
        (torch.randn(4), torch.rand(4), 8.0, 40.0),
        (torch.randn(4), torch.rand(4), 2, 1),
    ):
        norms, errors = (BN(4), BN(4)), []
        for norm, path in zip(norms, (torch.no_grad, pure), strict=True):
            with path():
                try:
                    norm.observe(*given)
                except ZeroDivisionError as error:
                    errors.append(str(error))
        assert len(errors) in (0, 2)
        assert_same(*(list(norm.state_dict().values()) for norm in norms))


def test_a_rule_of_one_s_own_trains_as_long_as_it_is_asked():
    actor = with_norms(WarmUp)
    for _ in range(3):
        first = trained(actor)
        with pure():
            assert_same(first, trained(actor))
        actor(OBS)

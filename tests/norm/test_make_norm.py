"""``make_norm``: names, options, starting points."""

import pytest
import torch

from carebn.norm import (
    BN,
    BNTT,
    NORMS,
    TAB,
    TDBN,
    TEBN,
    CaBN,
    CaReBN,
    NoNorm,
    ReBN,
    make_norm,
)

from .helpers import NORM_NAMES, STEP_NAMES

T, F = 4, 3
CLASSES = {
    "care": CaReBN,
    "ca": CaBN,
    "re": ReBN,
    "bn": BN,
    "tdbn": TDBN,
    "bntt": BNTT,
    "tebn": TEBN,
    "tab": TAB,
    "none": NoNorm,
}


def effective_map(module):
    """Scale and shift per unit of x̂ at fresh statistics (mean 0, variance 1), seen from outside."""
    module = module.double().eval()
    zero = torch.zeros(T, 1, F, dtype=torch.float64)
    shift = module(zero)
    scale = (module(zero + 1) - shift) * (1 + 1e-5) ** 0.5
    return scale.detach(), shift.detach()


def everywhere(value):
    return torch.full((T, 1, F), value, dtype=torch.float64)


def test_the_papers_nine_are_there():
    assert set(NORMS) >= set(CLASSES)
    assert len(CLASSES) == 9


@pytest.mark.parametrize("name", CLASSES)
def test_names(name):
    assert type(make_norm(name, F, T)) is CLASSES[name]


@pytest.mark.parametrize("name", NORM_NAMES)
def test_which_ones_an_agent_recalibrates(name):
    """``ca`` is ``care`` without, ``re`` is ``bn`` with."""
    assert make_norm(name, F, T).recalibrates == (name in ("care", "re"))
    assert not make_norm("none", F).recalibrates


@pytest.mark.parametrize("v_threshold", [0.5, 0.8, 1.0])
@pytest.mark.parametrize("name", NORM_NAMES)
def test_a_common_start_is_half_the_threshold(name, v_threshold):
    """In effect, wherever a normaliser keeps its factors."""
    scale, shift = effective_map(make_norm(name, F, T, v_threshold=v_threshold, init="care"))
    torch.testing.assert_close(scale, everywhere(v_threshold / 2), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(shift, everywhere(v_threshold / 2), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", NORM_NAMES)
def test_without_a_threshold_each_starts_as_torch_does(name):
    for module in (make_norm(name, F, T), CLASSES[name](F, *([T] if name in STEP_NAMES else []))):
        scale, shift = effective_map(module)
        torch.testing.assert_close(scale, everywhere(1.0), rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(shift, everywhere(0.0), rtol=1e-6, atol=1e-6)


def test_a_common_start_needs_a_threshold():
    with pytest.raises(ValueError, match="init='care' starts at half the threshold of the neurons: give v_threshold"):
        make_norm("bn", F, init="care")


def test_a_common_start_of_what_has_no_weights():
    assert make_norm("care", F, v_threshold=0.8, init="care", affine=False).weight is None
    module = make_norm("care", F, v_threshold=0.8, init="care", bias=False)
    assert module.weight.tolist() == pytest.approx([0.4] * F)
    assert module.bias is None


def test_a_common_start_of_every_kind_of_tdbn():
    for options in ({"alpha": 0.7}, {"threshold_in_weight": True}, {"alpha": 0.7, "threshold_in_weight": True}):
        scale, shift = effective_map(make_norm("tdbn", F, T, v_threshold=0.8, init="care", **options))
        torch.testing.assert_close(scale, everywhere(0.4), rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(shift, everywhere(0.4), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "scale", "shift"),
    [
        ("care", 0.4, 0.4),
        ("ca", 0.4, 0.4),
        ("re", 0.4, 0.4),
        ("bn", 0.4, 0.4),
        ("tdbn", 0.8, 0.0),
        ("bntt", 1.0, 0.0),
        ("tebn", 1.0, 0.0),
        ("tab", 1.0, 0.0),
    ],
)
def test_published_starts(name, scale, shift):
    """The default, for a threshold of 0.8."""
    got_scale, got_shift = effective_map(make_norm(name, F, T, v_threshold=0.8))
    torch.testing.assert_close(got_scale, everywhere(scale), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(got_shift, everywhere(shift), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("care", {"weight": (F,), "bias": (F,)}),
        ("tdbn", {"weight": (F,), "bias": (F,)}),
        ("bntt", {"weight": (T, F)}),
        ("tebn", {"weight": (F,), "bias": (F,), "step_scale": (T,)}),
        ("tab", {"weight": (T, F), "bias": (T, F), "step_scale": (T,)}),
        ("none", {}),
    ],
)
def test_what_is_learned(name, shapes):
    module = make_norm(name, F, T)
    assert {key: tuple(parameter.shape) for key, parameter in module.named_parameters()} == shapes


def test_the_threshold_of_tdbn_is_a_constant_or_in_the_weight():
    outside = make_norm("tdbn", F, v_threshold=0.8, alpha=0.5)
    inside = make_norm("tdbn", F, v_threshold=0.8, alpha=0.5, threshold_in_weight=True)
    assert outside.weight.tolist() == [1.0] * F
    assert inside.weight.tolist() == pytest.approx([0.4] * F)


@pytest.mark.parametrize("name", NORM_NAMES)
def test_options_reach_the_class(name):
    module = make_norm(name, F, T, momentum=0.3, eps=1e-3)
    assert (module.momentum, module.eps) == (0.3, 1e-3)
    assert make_norm(name, F, T).eps == 1e-5
    if name in STEP_NAMES:
        assert module.time_steps == T


@pytest.mark.parametrize("name", NORM_NAMES)
def test_whole_numbers_are_numbers(name):
    """weight=1, bias=0 is how people write torch's start."""
    scale, shift = effective_map(make_norm(name, F, T, weight=1, bias=0))
    torch.testing.assert_close(scale, everywhere(1.0))
    torch.testing.assert_close(shift, everywhere(0.0))


@pytest.mark.parametrize("name", NORM_NAMES)
@pytest.mark.parametrize("init", ["own", "care"])
def test_a_whole_threshold_is_a_number(name, init):
    make_norm(name, F, T, v_threshold=1, init=init)


def test_whole_numbers_in_the_weight_of_tdbn():
    assert make_norm("tdbn", F, v_threshold=1, alpha=1, threshold_in_weight=True).weight.tolist() == [1.0] * F


def test_no_normaliser_passes_its_input_on():
    x = torch.randn(T, 2, F)
    assert torch.equal(make_norm("none", F, T)(x), x)


@pytest.mark.parametrize(
    ("wrong", "right"), [("crae", "care"), ("tdbm", "tdbn"), ("BNTT", "bntt"), ("tebnn", "tebn"), ("non", "none")]
)
def test_an_unknown_name_suggests_the_nearest(wrong, right):
    with pytest.raises(ValueError, match=f"unknown normaliser '{wrong}': did you mean '{right}'"):
        make_norm(wrong, F)


def test_an_unknown_name_lists_all():
    with pytest.raises(ValueError, match="unknown normaliser 'layernorm'") as error:
        make_norm("layernorm", F)
    assert all(name in str(error.value) for name in CLASSES)


@pytest.mark.parametrize("name", NORM_NAMES)
def test_an_unknown_option_suggests_the_nearest(name):
    with pytest.raises(ValueError, match=f"option of normaliser '{name}' 'momemtum': did you mean 'momentum'"):
        make_norm(name, F, momemtum=0.1)


def test_none_has_no_options():
    with pytest.raises(ValueError, match="'none' has no option 'momentum'"):
        make_norm("none", F, momentum=0.1)


def test_unknown_init():
    with pytest.raises(ValueError, match="unknown init 'cares': did you mean 'care'"):
        make_norm("tebn", F, init="cares")


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("features", [0, -2])
def test_at_least_one_feature(name, features):
    with pytest.raises(ValueError, match="at least one feature"):
        make_norm(name, features)


@pytest.mark.parametrize("name", STEP_NAMES)
def test_at_least_one_time_step(name):
    with pytest.raises(ValueError, match="at least one time step"):
        make_norm(name, F, 0)

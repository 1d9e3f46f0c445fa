"""Whole spiking layers: product, norm and scan in one go against the same layer on the pure-torch path.

All in float64, where the two may differ by rounding only, so that spikes must agree in every case.
"""

import copy

import pytest
import torch
from kernel_cases import (
    ALL_NEURONS,
    ALL_NORMS,
    KINDS_OF_NORM,
    NORMALISERS,
    assert_near,
    assert_same_run,
    evaluate,
    kernels_called,
    make_layer,
    random,
    random_spikes,
)

from carebn.kernels import pure
from carebn.network import SpikingLayer
from carebn.neuron import make_neuron

LINEAR_BIAS = "linear.bias"


def trained(layer, steps=5):
    """After a few batches, so that the moving statistics are nobody's starting values; then in inference mode."""
    with pure():
        for seed in range(3):
            layer(random_spikes(steps, 9, 6, seed=seed))
    return layer.eval()


def assert_bias_gradient_vanishes(fused_run, pure_run):
    """A bias in front of a norm that subtracts the mean has no effect: exactly none compiled, rounding noise pure.

    Adam would turn the noise into full steps, so exactly zero matters.
    """
    assert (fused_run[1][LINEAR_BIAS] == 0).all()
    assert pure_run[1][LINEAR_BIAS].abs().max() < 1e-12 * pure_run[1]["linear.weight"].abs().max()


@pytest.mark.parametrize("neuron", ALL_NEURONS)
@pytest.mark.parametrize("norm", NORMALISERS)
def test_training(norm, neuron):
    """Spikes, gradients of input, weight and norm parameters, moving statistics and their count."""
    layer = make_layer(norm, neuron)
    x = random_spikes(5, 11, 6)
    fused_run, pure_run = (evaluate(layer, x, compiled=c) for c in (True, False))
    assert_same_run(fused_run, pure_run, skip=[LINEAR_BIAS])
    assert_bias_gradient_vanishes(fused_run, pure_run)
    assert fused_run[2]["norm.num_batches_tracked"] == 1
    assert not torch.equal(fused_run[2]["norm.running_mean"], layer.norm.running_mean)


@pytest.mark.parametrize("neuron", ALL_NEURONS)
def test_training_without_a_norm(neuron):
    layer = make_layer("none", neuron)
    x = random(5, 11, 6)
    assert_same_run(evaluate(layer, x, compiled=True), evaluate(layer, x, compiled=False))


@pytest.mark.parametrize("neuron", ALL_NEURONS)
@pytest.mark.parametrize("norm", ALL_NORMS)
def test_inference(norm, neuron):
    """Gradients too, the bias among them (an agent may differentiate a policy in inference mode), and no update."""
    layer = trained(make_layer(norm, neuron))
    x = random_spikes(5, 11, 6, seed=5)
    fused_run, pure_run = (evaluate(layer, x, compiled=c) for c in (True, False))
    assert_same_run(fused_run, pure_run)
    assert all(torch.equal(v, fused_run[2][k]) for k, v in layer.state_dict().items())
    assert fused_run[1][LINEAR_BIAS].abs().max() > 0


@pytest.mark.parametrize("norm", KINDS_OF_NORM)
def test_several_training_batches_in_a_row(norm):
    """Moving statistics feed on themselves: after ten batches of changing size and scale they must still agree."""
    compiled_layer = make_layer(norm, "clif")
    pure_layer = copy.deepcopy(compiled_layer)
    for seed in range(10):
        x = random(5, 2 + seed, 6, seed=seed) * (1 + seed)
        compiled_layer(x)
        with pure():
            pure_layer(x)
    theirs = pure_layer.state_dict()
    for name, value in compiled_layer.state_dict().items():
        assert_near(value.double(), theirs[name].double(), 1e-10)


@pytest.mark.parametrize(
    ("norm", "options"),
    [
        ("care", {"momentum": 0.2}),
        ("care", {"momentum": None}),
        ("care", {"eps": 0.5}),
        ("bn", {"momentum": None}),
        ("bn", {"momentum": 0.7, "eps": 1e-3, "weight": 1.0, "bias": 0.0}),
        ("tdbn", {"alpha": 2.0, "threshold_in_weight": True}),
        ("bntt", {"bias": 0.1, "momentum": None}),
        ("tab", {"init": "care"}),
        ("tebn", {"init": "care", "eps": 0.1}),
    ],
)
def test_norm_options(norm, options):
    layer = make_layer(norm, "clif", **options)
    x = random_spikes(5, 11, 6)
    for training in (True, False):
        layer.train(training)
        runs = [evaluate(layer, x, compiled=c) for c in (True, False)]
        assert_same_run(*runs, skip=[LINEAR_BIAS] if training else [])


@pytest.mark.parametrize("T", [1, 5])
@pytest.mark.parametrize("norm", KINDS_OF_NORM)
def test_other_sizes(norm, T):
    """Sizes around the kernels' 16 blocks of rows and 256 features at a time."""
    for B, F in [(2, 1), (3, 257), (16, 7), (17, 300)]:
        layer = make_layer(norm, "clif", outputs=F, steps=T)
        x = random(T, B, 6, seed=B + F)
        assert_same_run(
            evaluate(layer, x, compiled=True),
            evaluate(layer, x, compiled=False),
            rel=1e-8,  # with a batch of two the gradient through the statistics nearly cancels
            skip=[] if norm == "none" else [LINEAR_BIAS],
        )


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("neuron", ["clif", "dn"])
@pytest.mark.parametrize("norm", KINDS_OF_NORM)
def test_input_that_is_constant_in_time(norm, neuron, training):
    """[1, B, F] is the same as [T, B, F] with every step equal, but for the work; its gradient is the sum over t."""
    layer = (make_layer(norm, neuron) if training else trained(make_layer(norm, neuron))).train(training)
    x = random(1, 11, 6)
    once, once_pure = (evaluate(layer, x, compiled=c) for c in (True, False))
    expanded = evaluate(layer, x.expand(5, -1, -1), compiled=True)
    expanded[1]["x"] = expanded[1]["x"].sum(0, keepdim=True)
    assert once[0].shape == (5, 11, 13)
    skip = [LINEAR_BIAS] if training and norm != "none" else []
    assert_same_run(once, once_pure, skip=skip)
    assert_same_run(once, expanded, skip=skip)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("norm", KINDS_OF_NORM)
@pytest.mark.parametrize("steps", [1, 5])
def test_gradient_to_the_stimulation(norm, training, steps):
    """Each encoder spike has derivative one with respect to A: the gradient is the sum over t, compiled or pure.

    An input of one step, constant in time, must send it just the same.
    """
    layer = (make_layer(norm, "clif") if training else trained(make_layer(norm, "clif"))).train(training)
    spikes, stimulation = random_spikes(steps, 11, 6), random(11, 6).sigmoid()
    fused_run, pure_run = (evaluate(layer, spikes, stimulation=stimulation, compiled=c) for c in (True, False))
    skip = [LINEAR_BIAS] if training and norm != "none" else []
    # In inference the compiled path does not spend a product on the gradient of spikes that come from an encoder.
    assert_same_run(fused_run, pure_run, skip=[*skip, "x"])
    assert_near(fused_run[1]["stimulation"], pure_run[1]["x"].sum(0), 1e-10)
    assert fused_run[1]["stimulation"].abs().max() > 0


@pytest.mark.parametrize("norm", KINDS_OF_NORM)
def test_the_stimulation_moves_nothing_forwards(norm):
    """It only says where the gradient goes; without gradients it is not looked at."""
    layer = trained(make_layer(norm, "clif"))
    spikes, stimulation = random_spikes(5, 11, 6), random(11, 6)
    with torch.no_grad():
        assert torch.equal(layer(spikes, stimulation), layer(spikes))
    assert torch.equal(layer(spikes, stimulation.requires_grad_()).detach(), layer(spikes).detach())


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("norm", KINDS_OF_NORM)
def test_gradient_that_is_constant_in_time(norm, training):
    """A sum over t sends a gradient of stride zero, which the kernels read once: the same bits as written out."""
    layer = make_layer(norm, "clif").train(training)
    x = random_spikes(5, 11, 6)
    weights = random(11, 13)
    constant = evaluate(layer, x, compiled=True, weights=weights[None].expand(5, -1, -1).contiguous())
    twin = copy.deepcopy(layer)
    y = x.clone().requires_grad_()
    (twin(y).sum(0) * weights).sum().backward()
    assert torch.equal(y.grad, constant[1]["x"])
    for name, parameter in twin.named_parameters():
        assert torch.equal(parameter.grad, constant[1][name]), name


@pytest.mark.parametrize("norm", KINDS_OF_NORM)
def test_float32(norm):
    """The precision that everybody uses, against float64 on the pure path.

    Weights are multiples of 1/1024 and inputs are spikes, so that the products are exact in any order of adding, and
    no machine's rounding flips a spike.
    """
    layer = make_layer(norm, "clif", dtype=torch.float32)
    with torch.no_grad():
        for parameter in layer.linear.parameters():
            parameter.copy_((parameter * 1024).round() / 1024)
    x = random_spikes(5, 33, 6, dtype=torch.float32)
    narrow = evaluate(layer, x, compiled=True)
    wide = evaluate(copy.deepcopy(layer).double(), x.double(), compiled=False)
    assert narrow[0].dtype == torch.float32
    assert torch.equal(narrow[0].double(), wide[0])
    for name, gradient in wide[1].items():
        if name != LINEAR_BIAS or norm == "none":
            assert_near(narrow[1][name], gradient.float(), 2e-5)
    for name, value in wide[2].items():
        assert_near(narrow[2][name].double(), value.double(), 1e-5)


@pytest.mark.parametrize("norm", NORMALISERS)
def test_large_mean_in_float32(norm):
    """Batch moments must not be differences of large squares: mean 1000, deviation 1."""
    layer = make_layer(norm, "lif", dtype=torch.float32)
    with torch.no_grad():
        layer.linear.weight.zero_()
        layer.linear.weight[:6] = torch.eye(6)  # products are the input itself, without rounding
        layer.linear.weight[6:12] = torch.eye(6)
        layer.linear.bias.zero_()
    x = random(5, 200, 6, dtype=torch.float32) + 1000
    _, _, state = evaluate(layer, x, compiled=True)
    _, _, wide = evaluate(copy.deepcopy(layer).double(), x.double(), compiled=False)
    assert_near(state["norm.running_var"].double(), wide["norm.running_var"], 1e-5)
    assert_near(state["norm.running_mean"].double(), wide["norm.running_mean"], 1e-6)


@pytest.mark.parametrize("norm", ["care", "bn"])
def test_mixed_precision_of_layer_and_norm(norm):
    """A float64 layer in front of a float32 norm takes another compiled path; it must not read the wrong width."""
    layer = make_layer(norm, "clif")
    layer.norm.float()
    x = random_spikes(5, 11, 6)
    fused_run, pure_run = (evaluate(layer, x, compiled=c) for c in (True, False))
    assert_same_run(fused_run, pure_run, rel=1e-5, skip=[LINEAR_BIAS])


@pytest.mark.parametrize("broken", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("norm", NORMALISERS)
def test_non_finite_input_is_refused_and_changes_nothing(norm, dtype, broken):
    """One bad batch must not poison the moving statistics; the layer goes on as if it had never come."""
    layer = make_layer(norm, "clif", dtype=dtype)
    layer(random(5, 9, 6, dtype=dtype))
    twin = copy.deepcopy(layer)
    before = {name: value.clone() for name, value in layer.state_dict().items()}
    x = random(5, 9, 6, dtype=dtype)
    x[3, 7, 2] = broken
    with pytest.raises(ValueError, match="NaN or infinity"):
        layer(x)
    after = layer.state_dict()
    assert before.keys() == after.keys()
    for name, value in before.items():
        assert torch.equal(after[name], value), name
    clean = random(5, 9, 6, seed=8, dtype=dtype)
    assert torch.equal(layer(clean), twin(clean))


@pytest.mark.parametrize("norm", NORMALISERS)
def test_a_batch_of_one_is_refused_in_training(norm):
    layer = make_layer(norm, "clif")
    with pytest.raises(ValueError, match="at least two"):
        layer(random(5, 1, 6))
    with pure(), pytest.raises(ValueError, match="at least two"):
        layer(random(5, 1, 6))
    assert layer.norm.num_batches_tracked == 0
    assert layer.eval()(random(5, 1, 6)).shape == (5, 1, 13)


@pytest.mark.parametrize("shape", [(5, 6), (5, 4, 3, 6)])
@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("training", [True, False])
def test_input_without_time_or_batch_is_refused(shape, compiled, training):
    """Anything but [T, B, F] would be taken for something else: no path may answer it."""
    layer = make_layer("care", "clif").train(training)
    with pytest.raises((ValueError, RuntimeError)):
        evaluate(layer, random(*shape), compiled=compiled)


@pytest.mark.parametrize("norm", KINDS_OF_NORM)
def test_frozen_parameters(norm):
    """Freezing some parameters is ordinary fine-tuning: the others get the gradient they always got."""
    layer = make_layer(norm, "clif")
    x = random_spikes(5, 11, 6)
    expected = evaluate(layer, x, compiled=True)[1]
    for frozen in ("norm", "linear", "all"):
        part = copy.deepcopy(layer)
        (part if frozen == "all" else part.get_submodule(frozen)).requires_grad_(False)
        y = x.clone().requires_grad_()
        spikes = part(y)
        (spikes * random(*spikes.shape, seed=99)).sum().backward()
        assert_near(y.grad, expected["x"], 1e-12)
        for name, parameter in part.named_parameters():
            if parameter.requires_grad:
                assert_near(parameter.grad, expected[name], 1e-12)
            else:
                assert parameter.grad is None


@pytest.mark.parametrize("norm", ["care", "tdbn", "none"])
@pytest.mark.parametrize("training", [True, False])
def test_linear_without_bias(norm, training):
    """A user may exchange the product in front; the compiled path must cope as the pure one does."""
    layer = make_layer(norm, "clif").train(training)
    weight = layer.linear.weight
    layer.linear = torch.nn.Linear(6, 13, bias=False, dtype=torch.float64)
    layer.linear.weight = weight
    x = random_spikes(5, 11, 6)
    stimulation = random(11, 6).sigmoid()
    fused_run, pure_run = (evaluate(layer, x, stimulation=stimulation, compiled=c) for c in (True, False))
    assert_same_run(fused_run, pure_run, skip=["x"])


def test_no_gradient_wanted():
    layer = make_layer("care", "clif")
    x = random_spikes(5, 11, 6)
    with torch.no_grad():
        spikes = copy.deepcopy(layer)(x)
    assert not spikes.requires_grad
    assert torch.equal(spikes, layer(x).detach())


@pytest.mark.parametrize(
    ("norm", "kernels"),
    [
        ("care", ["moments", "update_moving", "fire", "fire_backward", "norm_backward"]),
        ("tdbn", ["moments", "fire", "fire_backward", "norm_backward"]),
        ("none", ["fire", "fire_backward"]),
    ],
)
def test_which_kernels_run(norm, kernels):
    """Otherwise these tests would compare the pure path with itself."""
    with kernels_called() as calls:
        evaluate(make_layer(norm, "clif"), random_spikes(5, 11, 6), compiled=True)
        assert calls == kernels
        evaluate(make_layer(norm, "clif"), random_spikes(5, 11, 6), compiled=False)
        assert calls == kernels


@pytest.mark.parametrize("name", ALL_NEURONS)
def test_a_layer_without_norm_is_linear_and_neuron(name):
    layer = SpikingLayer(6, 13, norm="none", neuron=name)
    x = random(5, 4, 6, dtype=torch.float32)
    expected = make_neuron(name).scan(torch.nn.functional.linear(x, layer.linear.weight, layer.linear.bias))
    assert torch.equal(layer(x), expected)

"""Where a compiled kernel cannot do what was asked it steps aside, or says so."""

import copy

import pytest
import torch
from kernel_cases import (
    ALL_NEURONS,
    ALL_NORMS,
    assert_near,
    assert_same_run,
    evaluate,
    make_layer,
    random,
    random_spikes,
)
from torch.nn.utils import parametrizations, prune

from carebn.kernels import pure
from carebn.network import PopulationEncoder, SpikingActor
from carebn.neuron import LIF, make_neuron


def loss(spikes):
    return (spikes * random(*spikes.shape, seed=99, dtype=spikes.dtype)).sum()


# --- second derivatives ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("norm", ALL_NORMS)
def test_second_derivatives_are_refused_with_a_way_out(norm, training):
    """A kernel's gradient is a number without a history: silently wrong penalties would be worse than an error."""
    layer = make_layer(norm, "clif").train(training)
    x = random(5, 11, 6).requires_grad_()
    with pytest.raises(RuntimeError, match=r"create_graph=True.*carebn\.kernels\.pure"):
        torch.autograd.grad(loss(layer(x)), x, create_graph=True)


@pytest.mark.parametrize("name", ALL_NEURONS)
def test_second_derivatives_of_a_neuron_are_refused(name):
    x = random(5, 4, 6).requires_grad_()
    with pytest.raises(RuntimeError, match=r"create_graph=True"):
        torch.autograd.grad(loss(make_neuron(name)(x)), x, create_graph=True)


def test_second_derivatives_of_an_encoder_are_refused():
    encoder = PopulationEncoder(3)
    with pytest.raises(RuntimeError, match=r"create_graph=True"):
        torch.autograd.grad(loss(encoder(random(4, 3, dtype=torch.float32))), encoder.mean, create_graph=True)


def test_second_derivative_inside_pure_by_hand():
    """One step, L = S: dL/dx = k·y·(1 − y) with y = σ(k·(x − 0.5)), so d²L/dx² = k²·y·(1 − y)·(1 − 2y)."""
    x = torch.tensor([[0.3, 0.5, 0.9]], dtype=torch.float64, requires_grad=True)
    with pure():
        (first,) = torch.autograd.grad(make_neuron("lif", surrogate="sigmoid")(x).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x)
    y = torch.sigmoid(4 * (x.detach() - 0.5))
    torch.testing.assert_close(first.detach(), 4 * y * (1 - y), rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(second, 16 * y * (1 - y) * (1 - 2 * y), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("norm", ALL_NORMS)
def test_second_derivatives_of_a_layer_inside_pure(norm, training):
    """A gradient penalty: the first gradient is the usual one, and the penalty reaches the weights."""
    layer = make_layer(norm, "clif").train(training)
    x = random(5, 11, 6)
    expected = evaluate(layer, x, compiled=True)[1]["x"]
    x.requires_grad_()
    with pure():
        (gradient,) = torch.autograd.grad(loss(layer(x)), x, create_graph=True)
        gradient.square().sum().backward()
    assert_near(gradient.detach(), expected, 1e-10)
    assert torch.isfinite(layer.linear.weight.grad).all()
    assert layer.linear.weight.grad.abs().max() > 0


def test_an_actor_refuses_and_works_inside_pure():
    torch.manual_seed(0)
    actor = SpikingActor(3, 2, hidden=(8,))
    obs = random(4, 3, dtype=torch.float32).requires_grad_()
    with pytest.raises(RuntimeError, match=r"create_graph=True"):
        torch.autograd.grad(actor(obs).sum(), obs, create_graph=True)
    with pure():
        (gradient,) = torch.autograd.grad(actor(obs).sum(), obs, create_graph=True)
        gradient.square().sum().backward()
    assert torch.isfinite(obs.grad).all()
    assert obs.grad.abs().max() > 0


# --- hooks -----------------------------------------------------------------------------------------------------------

HOOKS = {
    "forward": lambda module, hook: module.register_forward_hook(hook),
    "forward with keywords": lambda module, hook: module.register_forward_hook(hook, with_kwargs=True),
    "before forward": lambda module, hook: module.register_forward_pre_hook(hook),
    "backward": lambda module, hook: module.register_full_backward_hook(hook),
    "before backward": lambda module, hook: module.register_full_backward_pre_hook(hook),
}


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("part", ["norm", "neuron", "linear"])
@pytest.mark.parametrize("kind", HOOKS)
def test_hooks_on_the_parts_of_a_layer_are_called(part, kind, training):
    """Activations are studied by hooks; the fused path makes no such calls, so it must step aside for a listener."""
    layer = make_layer("care", "clif").train(training)
    x = random_spikes(5, 11, 6)
    expected = evaluate(layer, x, compiled=True)
    calls = []
    handle = HOOKS[kind](layer.get_submodule(part), lambda *arguments: calls.append(arguments[0]))
    watched = copy.deepcopy(layer)
    y = x.clone().requires_grad_()
    spikes = watched(y)
    loss(spikes).backward()
    assert len(calls) == 1
    assert torch.equal(spikes, expected[0])
    assert_near(y.grad, expected[1]["x"], 1e-10)
    handle.remove()
    layer(x)
    assert len(calls) == 1


def test_a_hook_can_change_what_passes():
    """Ablations do this: the hook's answer counts."""
    layer = make_layer("care", "clif")
    layer.norm.register_forward_hook(lambda module, inputs, output: torch.zeros_like(output))
    assert (layer(random_spikes(5, 11, 6)) == 0).all()


def test_a_hook_sees_what_the_neuron_gets():
    layer = make_layer("care", "clif")
    seen = []
    layer.norm.register_forward_hook(lambda module, inputs, output: seen.append((inputs[0], output)))
    layer.neuron.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    x = random_spikes(5, 11, 6)
    spikes = layer(x)
    (products, normalised), current = seen
    torch.testing.assert_close(products, torch.nn.functional.linear(x, layer.linear.weight, layer.linear.bias))
    assert torch.equal(current, normalised)
    assert torch.equal(layer.neuron.scan(current), spikes)


def test_hooks_on_the_layer_itself_need_no_step_aside():
    layer = make_layer("care", "clif")
    calls = []
    layer.register_forward_hook(lambda *arguments: calls.append(1))
    layer(random_spikes(5, 11, 6))
    assert calls == [1]


# --- a weight that is computed ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("norm", ["care", "tdbn", "none"])
def test_parametrised_weight(norm):
    """Weight normalisation by torch's parametrisations: the gradient reaches the parameters behind the weight."""
    layer = make_layer(norm, "clif")
    parametrizations.weight_norm(layer.linear)
    x = random_spikes(5, 11, 6)
    skip = [] if norm == "none" else ["linear.bias"]
    assert_same_run(evaluate(layer, x, compiled=True), evaluate(layer, x, compiled=False), skip=skip)


@pytest.mark.parametrize("norm", ["care", "tdbn", "none"])
def test_pruned_weight_follows_its_original(norm):
    """Pruning recomputes the weight in a hook of the product; a path that skips the hook trains on stale weights."""
    layer = make_layer(norm, "clif")
    prune.l1_unstructured(layer.linear, "weight", 0.5)
    x = random_spikes(5, 11, 6)
    loss(layer(x)).backward()
    with torch.no_grad():
        layer.linear.weight_orig.neg_()
    fused_spikes = layer(x)
    loss(fused_spikes).backward()
    with pure():
        assert torch.equal(fused_spikes, layer(x))


# --- other precisions and transformations ----------------------------------------------------------------------------


@pytest.mark.usefixtures("bfloat16_products")
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("norm", ["care", "tdbn", "none"])
def test_autocast(norm, training):
    """Under autocast torch makes the products in bfloat16, for which there is no kernel: the pure path serves."""
    layer = make_layer(norm, "clif", dtype=torch.float32).train(training)
    x = random_spikes(5, 11, 6, dtype=torch.float32)
    outputs = []
    for compiled in (True, False):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            outputs.append(evaluate(layer, x, compiled=compiled))
    (spikes, gradients, _), (expected, expected_gradients, _) = outputs
    assert (spikes == expected).double().mean() > 0.95  # bfloat16 rounds some to the other side
    assert gradients.keys() == expected_gradients.keys()
    assert all(torch.isfinite(g).all() for g in gradients.values())


@pytest.mark.usefixtures("bfloat16_products")
@pytest.mark.parametrize("norm", ALL_NORMS)
def test_a_whole_layer_in_half_precision(norm):
    layer = make_layer(norm, "clif", dtype=torch.bfloat16)
    x = random_spikes(5, 11, 6, dtype=torch.bfloat16)
    spikes = layer(x)
    loss(spikes).backward()
    assert spikes.dtype == torch.bfloat16
    assert torch.isfinite(layer.linear.weight.grad).all()


def test_functional_gradient():
    """``torch.func.grad`` gets the same gradient as ``backward``."""
    x = random(5, 4, 6)
    y = x.clone().requires_grad_()
    loss(LIF()(y)).backward()
    assert_near(torch.func.grad(lambda x: loss(LIF()(x)))(x), y.grad, 1e-11)


def test_vmap_over_a_neuron():
    """An ensemble by ``torch.vmap``: each member gets what it would get alone."""
    x = random(3, 5, 4, 6)
    assert torch.equal(torch.vmap(LIF())(x), torch.stack([LIF()(part) for part in x]))

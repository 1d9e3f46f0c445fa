"""What happens between a forward pass and its backward pass, and gradients of an unusual kind."""

import copy
from contextlib import nullcontext

import pytest
import torch
from kernel_cases import OBS, assert_same, kernels_called, make_actor

from carebn.gradients import plain_gradient
from carebn.kernels import pure
from carebn.network import PopulationEncoder, SpikingLayer, SpikingQNetwork
from carebn.neuron import CLIF, DN, LIF, Triangle
from carebn.norm import recalibrate

ROWS = pytest.mark.parametrize("rows", [len(OBS), 9], ids=["stack", "layers"])


def gradients(actor, rows, between, training=True):
    """Those of a copy, with something done to it before the backward pass."""
    actor = copy.deepcopy(actor).train(training)
    parameters = dict(actor.named_parameters())
    loss = actor(OBS[:rows]).square().sum()
    between(actor)
    loss.backward()
    return [p.grad for name, p in parameters.items() if p.grad is not None and not name.endswith("linear.bias")]


def assert_same_gradients(actor, rows, between, training=True):
    ours = gradients(actor, rows, between, training)
    with pure():
        theirs = gradients(actor, rows, between, training)
    assert any(gradient.any() for gradient in theirs)
    assert_same(ours, theirs)


def each(name, value, part):
    return lambda actor: [setattr(getattr(layer, part), name, value) for layer in actor.layers]


CHANGES = {
    "eps": each("eps", 1.0, "norm"),
    "threshold": each("v_threshold", 0.1, "neuron"),
    "decay": each("decay", 0.1, "neuron"),
    "surrogate": each("surrogate", Triangle(0.3), "neuron"),
    "no bias": each("bias", None, "linear"),
    "mode": lambda actor: actor.eval(),
    "time steps": lambda actor: setattr(actor.encoder, "time_steps", 2),
}


@ROWS
@pytest.mark.parametrize("change", CHANGES)
def test_constants_that_change_before_the_backward_pass(change, rows):
    assert_same_gradients(make_actor(norm="bn"), rows, CHANGES[change])


MOVES = {
    "a training pass": lambda actor: actor.train()(OBS),
    "re-calibration": lambda actor: recalibrate(actor, [OBS]),
    "a new start": lambda actor: [layer.norm.reset_running_stats() for layer in actor.layers],
    "a state that is loaded": lambda actor: actor.load_state_dict(
        {name: value * 2 for name, value in actor.state_dict().items() if "running" in name}, strict=False
    ),
}


@pytest.mark.parametrize("norm", ["bn", "care", "tdbn", "bntt", "tebn", "tab"])
@pytest.mark.parametrize("move", MOVES)
def test_moving_statistics_that_move_before_the_backward_pass(move, norm):
    """The pass was with what they were; the pure path keeps none of them."""
    assert_same_gradients(make_actor(norm=norm), 9, MOVES[move], training=False)


@ROWS
@pytest.mark.usefixtures("bfloat16_products")
@pytest.mark.parametrize("norm", ["care", "none", "tebn"])
def test_a_backward_pass_inside_autocast(norm, rows):
    actor = make_actor(norm=norm)
    outside = gradients(actor, rows, lambda actor: None)
    parameters = dict(actor.named_parameters())
    loss = actor(OBS[:rows]).square().sum()
    with torch.autocast("cpu"):
        loss.backward()
    inside = [p.grad for name, p in parameters.items() if not name.endswith("linear.bias")]
    for ours, theirs in zip(inside, outside, strict=True):  # torch's own parts round to bfloat16
        torch.testing.assert_close(ours, theirs, rtol=0.05, atol=0.05 * theirs.abs().max().item())


def _neuron(kind):
    x = torch.randn(5, 3, 4, requires_grad=True)
    return kind()(x), x


def _layer():
    layer = SpikingLayer(6, 4)
    return layer(torch.rand(5, 8, 6)), layer.linear.weight


def _encoder():
    encoder = PopulationEncoder(4)
    return encoder.stimulation(OBS), encoder.mean


def _actor(**options):
    actor = make_actor(**options)
    return actor(OBS), actor.layers[0].linear.weight


def _q_network():
    network = SpikingQNetwork(4, 3, hidden=(40,))
    return network(OBS), network.layers[0].linear.weight


GIVES = {
    "LIF": lambda: _neuron(LIF),
    "CLIF": lambda: _neuron(CLIF),
    "DN": lambda: _neuron(DN),
    "a layer": _layer,
    "an encoder": _encoder,
    "an actor": _actor,
    "an actor, layer by layer": lambda: _actor(norm="tab"),
    "an actor with another read-out": lambda: _actor(readout="max-membrane"),
    "a Q-network": _q_network,
}


@pytest.mark.parametrize("what", GIVES)
def test_a_gradient_of_zeros_that_has_no_memory(what):
    """The gradient of torch.sgn is one; to read it was a segmentation fault."""
    result, parameter = GIVES[what]()
    torch.sgn(result).sum().backward()
    assert not parameter.grad.any()


@pytest.mark.parametrize("path", [nullcontext, pure])
def test_constant_features_are_left_to_torch(path):
    """Less its mean such a feature is exactly zero. With the paper's β, half the threshold, an integrate-and-fire
    neuron then comes to lie on its threshold: rounded, it would fire."""

    def potential(dtype):
        actor = make_actor(norm="bn", neuron=LIF(decay=1.0), hidden=())
        with torch.no_grad():
            actor.encoder.std[0] = 1e3  # these always fire
            actor.layers[0].linear.weight[:, 10:] = 0
            return actor.to(dtype).potential(OBS.to(dtype)), actor.state_dict()

    with pure():
        exact, statistics = potential(torch.float64)
    with path(), kernels_called() as names:
        ours, state = potential(torch.float32)
    assert ("packed_layer" in names) == (path is nullcontext)
    torch.testing.assert_close(ours.double(), exact, rtol=0, atol=1e-6)
    assert_same([value.double() for value in state.values()], [value.double() for value in statistics.values()])


def test_an_enormous_scale():
    actors = make_actor(norm="bn"), make_actor(norm="bn")
    for actor, path in zip(actors, (nullcontext, pure), strict=True):
        actor.layers[1].norm.weight.data[0] = 1e38
        with path():
            actor(OBS).sum().backward()
    for name, value in actors[0].state_dict().items():
        torch.testing.assert_close(value, actors[1].state_dict()[name], equal_nan=True, msg=name)
    assert int(actors[0].layers[0].norm.num_batches_tracked) == 4  # three to make it, and this one: seen once


class Wrapped(torch.Tensor):
    """Numbers that lie elsewhere."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, function, types, arguments=(), options=None):
        plain = [each.inner if isinstance(each, cls) else each for each in arguments]
        return function(*plain, **(options or {}))


def test_a_gradient_that_is_no_plain_tensor_is_refused():
    """Its address is no sign of zeros."""
    with torch.no_grad(), pytest.raises(RuntimeError, match="a plain tensor as a gradient, got Wrapped; run the model"):
        plain_gradient(Wrapped(torch.ones(3, 4)))


def test_a_plan_made_in_inference_mode_is_not_kept():
    with torch.inference_mode():
        actor = make_actor().train()
        actor(OBS)
    with torch.no_grad(), pytest.raises(RuntimeError, match="Inplace update to inference tensor"):
        actor(OBS)

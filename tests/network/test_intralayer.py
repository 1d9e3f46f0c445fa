"""Connections inside the output populations, against numbers worked by hand and a slow version without the package."""

import copy
import math

import numpy as np
import pytest
import torch

from carebn import router
from carebn.network import IntralayerSpikingLayer, PopulationConnections, SpikingActor
from carebn.network.intralayer import CONNECTIONS
from carebn.norm import polyak_

POPULATION, GROUPS, T = 4, 3, 6
any_mode = pytest.mark.parametrize("mode", CONNECTIONS)


def layer_of(mode="intra", neuron="clif", norm="none", seed=0, inputs=5):
    torch.manual_seed(seed)
    return IntralayerSpikingLayer(
        inputs, GROUPS * POPULATION, population=POPULATION, connections=mode, neuron=neuron, norm=norm, time_steps=T
    ).double()


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_by_hand():
    """Two CLIF neurons, constant input 0.45 and 0.1, M = [[−2, 0.4], [0.5, 0.5]], m = (0.1, −0.05).

    t   x = input + M·S + m                c = c/2 + x            h = 0.75·v + c           S
    0   (0.55, 0.05): m counts already     (0.55, 0.05)           (0.55, 0.05)             (1, 0)
    1   (0.45−2+0.1, 0.1+0.5−0.05)         (−1.175, 0.575)        (−1.175, 0.6125)         (0, 1)
    2   (0.95, 0.55)                       (0.3625, 0.8375)       (−0.51875, 0.8375)       (0, 1)
    3   (0.95, 0.55)                       (1.13125, 0.96875)     (0.7421875, 0.96875)     (1, 1)

    Without m at t = 0 the first neuron would get 0.45 and stay silent there.
    """
    layer = IntralayerSpikingLayer(1, 2, population=2, norm="none", neuron="clif", time_steps=4).double()
    with torch.no_grad():
        layer.linear.weight.zero_()
        layer.linear.bias.copy_(torch.tensor([0.45, 0.1]))
        layer.connections.weight.copy_(torch.tensor([[[-2.0, 0.4], [0.5, 0.5]]]))
        layer.connections.bias.copy_(torch.tensor([[0.1, -0.05]]))
    spikes = layer(torch.zeros(4, 1, 1, dtype=torch.float64))
    assert spikes[:, 0].tolist() == [[1, 0], [0, 1], [0, 1], [1, 1]]


def dense(connections):
    """The connections as one matrix [N, N] and one bias [N], in numpy, from the parameters' meaning."""
    size = GROUPS * POPULATION
    matrix, bias = np.zeros((size, size)), np.zeros(size)
    kind = CONNECTIONS[connections.mode]
    for g in range(GROUPS):
        for i in range(POPULATION):
            for j in range(POPULATION):
                allowed = kind.to_self if i == j else kind.lateral
                if allowed:
                    w = connections.weight.detach().numpy()
                    value = w[g, i, j] if w.ndim == 3 else w[g, i]
                    matrix[g * POPULATION + i, g * POPULATION + j] = value
            if kind.bias:
                bias[g * POPULATION + i] = connections.bias[g, i].item()
    return matrix, bias


def slow_spikes(layer, x, neuron):
    """One sample and one step at a time."""
    matrix, bias = dense(layer.connections)
    w, b = layer.linear.weight.detach().numpy(), layer.linear.bias.detach().numpy()
    out = np.zeros((T, x.shape[1], len(bias)))
    for sample in range(x.shape[1]):
        c, v, s = np.zeros(len(bias)), np.zeros(len(bias)), np.zeros(len(bias))
        for t in range(T):
            c = (0.5 if neuron == "clif" else 0.0) * c + w @ x[t, sample] + b + matrix @ s + bias
            h = 0.75 * v + c
            s = (h > 0.5).astype(float)
            v = np.where(s > 0, 0.0, h)
            out[t, sample] = s
    return out


@pytest.mark.parametrize("neuron", ["clif", "lif"])
@any_mode
def test_against_a_slow_version(mode, neuron):
    layer = layer_of(mode, neuron)
    x = random(T, 7, 5)
    spikes = layer(x).detach().numpy()
    np.testing.assert_array_equal(spikes, slow_spikes(layer, x.numpy(), neuron))
    assert 0.05 < spikes.mean() < 0.95
    plain = copy.deepcopy(layer)
    for parameter in plain.connections.parameters():
        torch.nn.init.zeros_(parameter)
    assert (spikes != plain(x).detach().numpy()).any()  # the connections matter here


class Step(torch.autograd.Function):
    """The rectangle of half-width 0.5, written anew."""

    @staticmethod
    def forward(ctx, h):
        ctx.save_for_backward(h)
        return (h > 0.5).to(h.dtype)

    @staticmethod
    def backward(ctx, grad):
        (h,) = ctx.saved_tensors
        return grad * ((h >= 0) & (h <= 1))


@any_mode
def test_gradients_against_autograd_of_dense_matrices(mode):
    """To weights, biases, connections and input; nothing goes where a mode has no connection."""
    layer = layer_of(mode, seed=2)
    x, grad = random(T, 7, 5, seed=3).requires_grad_(), random(T, 7, GROUPS * POPULATION, seed=4)
    layer(x).backward(grad)

    matrix, bias = (torch.from_numpy(a).requires_grad_() for a in dense(layer.connections))
    weight, offset = (p.detach().clone().requires_grad_() for p in (layer.linear.weight, layer.linear.bias))
    x2 = x.detach().clone().requires_grad_()
    c = v = s = torch.zeros(7, GROUPS * POPULATION, dtype=torch.float64)
    total = 0.0
    for t in range(T):
        c = 0.5 * c + x2[t] @ weight.t() + offset + s @ matrix.t() + bias
        h = 0.75 * v + c
        s = Step.apply(h)
        v = h * (1 - s)
        total = total + (s * grad[t]).sum()
    total.backward()
    torch.testing.assert_close(layer.linear.weight.grad, weight.grad, rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(layer.linear.bias.grad, offset.grad, rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(x.grad, x2.grad, rtol=1e-9, atol=1e-11)
    kind = CONNECTIONS[mode]
    blocks = torch.stack([matrix.grad[g * 4 : g * 4 + 4, g * 4 : g * 4 + 4] for g in range(GROUPS)])
    if kind.lateral:
        expected = blocks if kind.to_self else blocks * (1 - torch.eye(4, dtype=torch.float64))
        torch.testing.assert_close(layer.connections.weight.grad, expected, rtol=1e-9, atol=1e-11)
    elif kind.to_self:
        own = blocks.diagonal(dim1=1, dim2=2)
        torch.testing.assert_close(layer.connections.weight.grad, own, rtol=1e-9, atol=1e-11)
    if kind.bias:
        torch.testing.assert_close(layer.connections.bias.grad.flatten(), bias.grad, rtol=1e-9, atol=1e-11)
    assert weight.grad.abs().max() > 0


@any_mode
def test_the_smooth_part_by_finite_differences(mode):
    torch.manual_seed(0)
    connections = PopulationConnections(GROUPS, POPULATION, mode).double()
    spikes = random(2, GROUPS * POPULATION).requires_grad_()
    names = [name for name, _ in connections.named_parameters()]

    def call(spikes, *values):
        return torch.func.functional_call(connections, dict(zip(names, values, strict=True)), (spikes,))

    parameters = [p.detach().clone().requires_grad_() for p in connections.parameters()]
    assert torch.autograd.gradcheck(call, (spikes, *parameters))


def test_what_each_mode_holds():
    shapes = {
        mode: {n: tuple(p.shape) for n, p in PopulationConnections(3, 4, mode).named_parameters()}
        for mode in CONNECTIONS
    }
    assert shapes == {
        "intra": {"weight": (3, 4, 4), "bias": (3, 4)},
        "no-bias": {"weight": (3, 4, 4)},
        "no-self": {"weight": (3, 4, 4), "bias": (3, 4)},
        "no-lateral": {"weight": (3, 4), "bias": (3, 4)},
        "bias": {"bias": (3, 4)},
        "self": {"weight": (3, 4)},
        "lateral": {"weight": (3, 4, 4)},
    }


def test_starts():
    """Uniform within 1/√10 for full connections, standard normal for one weight a neuron."""
    torch.manual_seed(0)
    full, single = PopulationConnections(300, 10), PopulationConnections(300, 10, "no-lateral")
    bound = 1 / math.sqrt(10)
    for parameter in full.parameters():
        assert 0.95 * bound < parameter.abs().max() <= bound
    for parameter in single.parameters():
        assert parameter.std().item() == pytest.approx(1, rel=0.1)


@pytest.mark.parametrize("mode", ["no-self", "lateral"])
def test_a_neuron_without_a_connection_to_itself_never_gets_one(mode):
    """Not by the optimiser, not by a target that follows."""
    layer = layer_of(mode)
    target = copy.deepcopy(layer)
    optimiser = torch.optim.Adam(layer.parameters(), lr=0.1)
    for seed in range(3):
        optimiser.zero_grad()
        layer(random(T, 7, 5, seed=seed)).sum().backward()
        optimiser.step()
        polyak_(target, layer, 0.5)
    for one in (layer, target):
        assert (one.connections.weight.diagonal(dim1=1, dim2=2) == 0).all()
    assert not torch.equal(target.connections.weight, layer_of(mode).connections.weight)


@pytest.mark.parametrize("norm", ["none", "care", "bntt"])
@pytest.mark.parametrize("neuron", ["lif", "clif", "dn"])
def test_in_an_actor_on_the_output_populations_only(norm, neuron):
    torch.manual_seed(0)
    actor = SpikingActor(3, 2, hidden=(32, 32), norm=norm, neuron=neuron, intralayer="intra")
    *hidden, last = actor.layers
    assert isinstance(last, IntralayerSpikingLayer)
    assert not any(isinstance(layer, IntralayerSpikingLayer) for layer in hidden)
    assert last.connections.weight.shape == (2, 10, 10)
    assert isinstance(router.plan_acting(actor), str)
    actor(random(64, 3).float()).square().sum().backward()
    for name, parameter in actor.named_parameters():
        assert torch.isfinite(parameter.grad).all(), name
    assert last.connections.weight.grad.abs().max() > 0
    assert actor.eval()(torch.zeros(1, 3)).shape == (1, 2)


def test_the_norm_comes_before_the_connections():
    """What the populations tell each other is not normalised: moving statistics are those of W·s + b alone."""
    layer = layer_of(norm="bn")
    x = random(T, 50, 5)
    layer(x)
    z = layer.linear(x).flatten(0, 1)
    torch.testing.assert_close(layer.norm.running_mean, (0.1 * z.mean(0)).detach())


def test_an_unknown_mode_is_answered_with_the_nearest():
    with pytest.raises(ValueError, match="did you mean 'no-self'"):
        PopulationConnections(2, 3, "noself")


def test_a_sequence_without_time_is_refused():
    with pytest.raises(ValueError, match=r"\[T, B, features\]"):
        layer_of()(torch.zeros(7, 5, dtype=torch.float64))

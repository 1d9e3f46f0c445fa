"""torch.compile of the pure path: the same outputs, gradients and moving statistics as eager, in one graph."""

import copy
import shutil

import pytest
import torch
from kernel_cases import assert_near, random

from carebn.kernels import pure
from carebn.network import SpikingActor, SpikingLayer

pytestmark = pytest.mark.slow

has_compiler = shutil.which("g++") or shutil.which("c++")
BACKENDS = [
    "aot_eager",
    pytest.param("inductor", marks=pytest.mark.skipif(not has_compiler, reason="no C++ compiler on the path")),
]


def make(kind, steps):
    torch.manual_seed(0)
    if kind == "layer":
        return SpikingLayer(6, 7, norm="care", neuron="clif", time_steps=steps).double(), random(steps, 9, 6)
    return SpikingActor(3, 2, hidden=(8,), time_steps=steps).double(), random(9, 3)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("kind", ["layer", "actor"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_compiled_equals_eager(kind, backend, training):
    """``fullgraph``: a break in the graph would be an error here, and cost the speed that compiling is for."""
    model, x = make(kind, steps=5 if backend == "aot_eager" else 2)  # inductor takes long over every step
    if not training:
        with pure():
            model(random(*x.shape, seed=1))
    model.train(training)
    eager = copy.deepcopy(model)
    torch._dynamo.reset()
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    results = []
    for run, context in ((compiled, None), (eager, pure())):
        y = x.clone().requires_grad_()
        if context is None:
            out = run(y)
        else:
            with context:
                out = run(y)
        weights = random(*out.shape, seed=2)
        (out * weights).sum().backward()
        results.append((out.detach(), y.grad))
    (out, grad), (expected, expected_grad) = results
    assert expected.std() > 0
    assert_near(out, expected, 1e-12)
    assert_near(grad, expected_grad, 1e-9)
    theirs = dict(eager.named_parameters())
    for name, parameter in model.named_parameters():
        if training and name.endswith("linear.bias"):
            assert parameter.grad.abs().max() < 1e-9  # cancels in the norm: nothing but rounding
        else:
            assert_near(parameter.grad, theirs[name].grad, 1e-9)
    theirs = eager.state_dict()
    for name, value in model.state_dict().items():
        assert_near(value.double(), theirs[name].double(), 1e-12)
    if training:
        assert all(v == 1 for k, v in model.state_dict().items() if k.endswith("num_batches_tracked"))
    torch._dynamo.reset()


def test_eager_still_uses_kernels_after_a_compilation():
    """Compiling must not switch anything off for good."""
    model, x = make("layer", 5)
    twin = copy.deepcopy(model)
    torch._dynamo.reset()
    torch.compile(copy.deepcopy(model), backend="aot_eager")(x)
    torch._dynamo.reset()
    out = model(x)
    out.sum().backward()
    assert (model.linear.bias.grad == 0).all()  # exactly zero is the mark of the fused path
    with pure():
        assert torch.equal(twin(x), out)

"""Networks changed behind the back of a plan, and inputs that nobody expects: still the result of the pure path.

``test_router`` has what was once found wrong; this file looks for more of the same families.
"""

import copy
import os
import pickle
import subprocess
import sys
import threading
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from kernel_cases import (
    OBS,
    assert_acts_as_pure,
    assert_same,
    assert_trains_as_pure,
    kernels_called,
    make_actor,
    trained,
)
from torch import nn

from carebn.algorithm import DDPG, DDPGOptions
from carebn.kernels import explain, firing_rates, pure
from carebn.network import Critic, SpikingActor, SpikingLayer, SpikingQNetwork
from carebn.network.inference import FastActor
from carebn.neuron import CLIF, LIF, Rectangle, Surrogate, make_neuron
from carebn.norm import BN, CaReBN


def prepared(**options):
    """An actor, and its acting path with a plan."""
    actor = make_actor(**options)
    fast = FastActor(actor)
    with kernels_called() as names:
        fast(OBS[:2].numpy())
    assert names == ["act"]
    return actor, fast


# --- code that changes after the plan was made -----------------------------------------------------------------------


def subclass(module, **methods):
    module.__class__ = type(f"Own{type(module).__name__}", (type(module),), methods)


def later_start(self, current):
    return type(state := CLIF.initial_state(self, current))(*(part + 0.3 for part in state))


NEW_CLASSES = {
    "a neuron, first layer": lambda a: subclass(a.layers[0].neuron, initial_state=later_start),
    "a neuron, last layer": lambda a: subclass(a.layers[-1].neuron, initial_state=later_start),
    "a norm": lambda a: subclass(a.layers[1].norm, forward=lambda self, x: CaReBN.forward(self, x) + 0.2),
    "a linear": lambda a: subclass(a.layers[2].linear, forward=lambda self, x: nn.Linear.forward(self, x) * 2),
    "a layer": lambda a: subclass(a.layers[1], forward=lambda self, *x: 1 - SpikingLayer.forward(self, *x)),
    "the list": lambda a: subclass(a.layers, __iter__=lambda self: iter([self[0], self[1], Inverted(self[2])])),
    "the decoder": lambda a: subclass(a.decoder, reads_counts=False),
    "the bounds": lambda a: subclass(a.bounds, clip=lambda self, x: x * 0.5),
    "the encoder": lambda a: subclass(a.encoder, stimulation=lambda self, x: 0.5 * torch.sigmoid(x).repeat(1, 10)),
    "the actor": lambda a: subclass(a, potential=lambda self, *x: SpikingActor.potential(self, *x) + 0.25),
}


class Inverted:
    def __init__(self, layer):
        self.layer = layer

    def __call__(self, *x):
        return 1 - self.layer(*x)


@pytest.mark.parametrize("what", NEW_CLASSES)
def test_a_class_that_changes_after_the_plan_was_made(what):
    actor, fast = prepared()
    NEW_CLASSES[what](actor)
    assert_acts_as_pure(actor, fast)
    if what != "the list":
        assert_trains_as_pure(actor)


@pytest.mark.parametrize("owner", [nn.Module, nn.Linear, Surrogate, CLIF])
def test_another_way_of_calling(owner, monkeypatch):
    """Replaced on a class that everything inherits from, after the plan was made."""
    actor, fast = prepared()
    call = owner.__call__

    def other(self, *x, **options):
        return call(self, *x, **options) * (0.5 if isinstance(self, (nn.Linear, Surrogate, CLIF)) else 1.0)

    monkeypatch.setattr(owner, "__call__", other)
    assert_acts_as_pure(actor, fast)
    assert_trains_as_pure(actor)


class Drifting(LIF):
    """A constant that is computed from something that changes in place."""

    def __init__(self):
        nn.Module.__init__(self)
        self.v_threshold, self.surrogate = 0.5, Rectangle()
        self.raw = torch.tensor([0.75])

    @property
    def decay(self):
        return float(self.raw[0])

    @decay.setter
    def decay(self, value):
        self.raw[0] = value


def test_a_constant_that_is_computed():
    actor = make_actor(neuron=Drifting())
    fast = FastActor(actor)
    assert_acts_as_pure(actor, fast)
    for layer in actor.layers:
        layer.neuron.raw[0] = 0.1
    assert_acts_as_pure(actor, fast)
    assert_trains_as_pure(actor)


@pytest.mark.parametrize("size", [0.1, float("inf"), float("nan"), torch.tensor(0.2), np.float64(0.2), "wide"])
def test_a_surrogate_that_was_tampered_with(size):
    neuron = make_neuron("clif")
    object.__setattr__(neuron.surrogate, "size", size)

    def gradient():
        x = (torch.randn(5, 30, 3, generator=torch.Generator().manual_seed(1))).requires_grad_()
        neuron(x).sum().backward()
        return x.grad

    try:
        with pure():
            theirs = gradient()
    except Exception as error:
        with pytest.raises(type(error)):
            gradient()
    else:
        torch.testing.assert_close(gradient(), theirs, equal_nan=True)


class OwnForward(CaReBN):
    def forward(self, x):
        return super().forward(x) + 0.2


def test_a_swapped_norm_acts_with_its_moving_statistics():
    """Also one that was put in after the acting path was prepared, and that no kernel knows."""
    actor, fast = prepared()
    actor.layers[1].norm = OwnForward(24)
    before = copy.deepcopy(actor.state_dict())
    assert_acts_as_pure(actor, fast)
    for name, value in actor.state_dict().items():
        assert torch.equal(value, before[name]), name
    assert actor.layers[1].norm.training


# --- memory that changes after the plan was made ---------------------------------------------------------------------


def attach(module, name):
    """The tensor as a plain attribute in place of the parameter."""
    parameter = module._parameters.pop(name)
    setattr(module, name, parameter.detach().clone())


def test_plain_tensors_whose_memory_is_exchanged():
    actor = make_actor()
    attach(actor.layers[1].linear, "weight")
    attach(actor.encoder, "mean")
    fast = FastActor(actor)
    assert_acts_as_pure(actor, fast)
    actor.layers[1].linear.weight.data = torch.randn(24, 40)
    assert_acts_as_pure(actor, fast)
    actor.encoder.mean.set_((actor.encoder.mean * 0.5).repeat(2, 1)[:4])
    assert_acts_as_pure(actor, fast)


MEMORY = {
    "data": lambda p: setattr(p, "data", torch.randn_like(p)),
    "strided data": lambda p: setattr(p, "data", torch.randn(*reversed(p.shape)).t() if p.ndim == 2 else p.data),
    "set_": lambda p: p.data.set_(torch.randn_like(p)),
    "swapped": lambda p: torch.utils.swap_tensors(p, nn.Parameter(torch.randn_like(p))),
    "shared memory": lambda p: p.share_memory_(),
    "frozen": lambda p: p.requires_grad_(False),
    "through numpy": lambda p: np.negative(p.detach().numpy(), out=p.detach().numpy()),
    "a subclass": lambda p: setattr(p, "__class__", type("OwnParameter", (nn.Parameter,), {})),
    "negated lazily": lambda p: setattr(p, "data", torch._neg_view(p.data)),
}


@pytest.mark.parametrize("where", ["layers.1.linear.weight", "layers.0.norm.weight", "encoder.mean", "decoder.weight"])
@pytest.mark.parametrize("how", MEMORY)
def test_a_parameter_with_other_memory(how, where):
    actor, fast = prepared()
    try:
        MEMORY[how](actor.get_parameter(where))
    except (TypeError, RuntimeError) as error:
        pytest.skip(f"torch does not do it: {error}")
    assert_acts_as_pure(actor, fast)
    try:
        with pure():
            trained(actor)
    except (TypeError, RuntimeError) as error:
        pytest.skip(f"torch does not train it: {error}")
    assert_trains_as_pure(actor)


@pytest.mark.parametrize("how", ["data", "numpy"])
def test_populations_that_change_without_a_new_version(how):
    actor, fast = prepared()
    if how == "data":
        actor.decoder.belongs.data.mul_(0.5)
    else:
        np.multiply(actor.decoder.belongs.numpy(), 0.5, out=actor.decoder.belongs.numpy())
    assert_acts_as_pure(actor, fast)


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_decoder_with_a_weight_that_is_no_number(number):
    """The module multiplies it by zero for every output that it does not belong to."""
    actor, fast = prepared()
    with torch.no_grad():
        actor.decoder.weight[0, 0] = number
    assert_acts_as_pure(actor, fast)


def test_bounds_with_a_noted_sign():
    actor, fast = prepared()
    actor.bounds._buffers["low"] = torch._neg_view(-actor.bounds.low)
    assert_acts_as_pure(actor, fast)
    assert_acts_as_pure(actor, lambda obs: DDPG(actor, Critic(4, 2, hidden=(2,)), DDPGOptions()).act(obs, None))


def test_bounds_that_need_a_gradient():
    actor = make_actor()
    for name in ("middle", "reach"):
        getattr(actor.bounds, name).requires_grad_()
    assert_acts_as_pure(actor)
    assert_acts_as_pure(actor, lambda obs: DDPG(actor, Critic(4, 2, hidden=(2,)), DDPGOptions()).act(obs, None))
    assert_trains_as_pure(actor)


def test_an_actor_that_was_built_in_inference_mode():
    with torch.inference_mode():
        actor = make_actor()
    obs = OBS[:9].numpy()
    with torch.no_grad(), pure():
        theirs = copy.deepcopy(actor).eval()(OBS[:9]).numpy()
    np.testing.assert_allclose(FastActor(actor)(obs), theirs, rtol=1e-4, atol=1e-4)


def copied(fast):
    return copy.deepcopy(fast)


def pickled(fast):
    return pickle.loads(pickle.dumps(fast))


@pytest.mark.parametrize("make", [copied, pickled, copy.copy])
def test_a_copy_of_a_prepared_path_acts_as_its_own_actor(make):
    actor, fast = prepared()
    other = make(fast)
    assert other._plan is None  # its tables are addresses of tensors that are not the copy's
    with torch.no_grad():
        for layer in other.actor.layers:
            layer.linear.weight.mul_(-1)
    assert_acts_as_pure(other.actor, other)
    assert_acts_as_pure(actor, fast)


def test_actors_that_share_layers():
    one, fast = prepared()
    two = make_actor(seed=3)
    two.layers = one.layers
    other = FastActor(two)
    assert_acts_as_pure(two, other)
    one.layers[1].norm = BN(24)
    assert_acts_as_pure(two, other)
    assert_acts_as_pure(one, fast)
    shallow = copy.copy(one)
    shallow.layers[0].neuron.v_threshold = 0.2
    assert_acts_as_pure(one, fast)
    assert_acts_as_pure(shallow)


# --- options that change ---------------------------------------------------------------------------------------------

OPTIONS = {
    "fewer steps": lambda a: setattr(a.encoder, "time_steps", 3),
    "one step": lambda a: setattr(a.encoder, "time_steps", 1),
    "more steps": lambda a: setattr(a.encoder, "time_steps", 40),
    "a layer's own steps": lambda a: setattr(a.layers[1], "time_steps", 2),
    "poisson": lambda a: setattr(a.encoder, "coding", "analogue"),
    "rate": lambda a: setattr(a.decoder, "readout", "rate"),
    "max-membrane": lambda a: setattr(a.decoder, "readout", "max-membrane"),
    "raw": lambda a: setattr(a.encoder, "observation", "raw"),
    "tanh": lambda a: setattr(a.encoder, "observation", "tanh"),
    "no zscore": lambda a: setattr(a.encoder, "zscore", None),
    "another zscore": lambda a: setattr(a.encoder, "zscore", nn.Tanh()),
    "a zscore that widens": lambda a: setattr(a.encoder, "zscore", Widening()),
    "threshold": lambda a: setattr(a.encoder, "threshold", 0.4),
    "eps": lambda a: setattr(a.layers[1].norm, "eps", 0.3),
    "tensor eps": lambda a: setattr(a.layers[1].norm, "eps", torch.tensor(0.3)),
    "numpy eps": lambda a: setattr(a.layers[1].norm, "eps", np.float32(0.3)),
    "tensor threshold": lambda a: setattr(a.layers[1].neuron, "v_threshold", torch.tensor(0.3)),
    "counted updates": lambda a: a.layers[1].norm.num_batches_tracked.fill_(7),
    "momentum": lambda a: setattr(a.layers[1].norm, "momentum", 0.3),
    "no momentum": lambda a: setattr(a.layers[1].norm, "momentum", None),
    "frozen norm": lambda a: a.layers[1].norm.eval(),
    "a buffer named as a constant": lambda a: (
        delattr(a.layers[1].neuron, "decay"),
        a.layers[1].neuron.register_buffer("decay", torch.tensor(0.3)),
    ),
}


class Widening(nn.Module):
    def forward(self, x):
        return x.double()


@pytest.mark.parametrize("observation", ["tanh", "zscore"])
@pytest.mark.parametrize("what", OPTIONS)
@pytest.mark.parametrize("norm", ["care", "tebn"])
def test_options_that_change_after_the_plan_was_made(what, observation, norm):
    actor, fast = prepared(norm=norm, encoder_options={"observation": observation})
    try:
        OPTIONS[what](actor)
    except AttributeError:
        pytest.skip("no such option here")
    for run in (
        lambda: trained(actor),
        lambda: trained(actor, OBS.repeat(3, 1)),
        lambda: [torch.from_numpy(fast(OBS[:40].numpy()))],
        lambda: [torch.from_numpy(fast(OBS[:1].numpy()))],
    ):
        ours = run_or_error(run)
        with pure():
            theirs = run_or_error(run)
        if isinstance(theirs, Exception):
            assert type(ours) is type(theirs)
        else:
            assert_same(ours, theirs)


# --- modes of torch --------------------------------------------------------------------------------------------------


@pytest.fixture
def settings_back():
    yield
    torch.use_deterministic_algorithms(False)
    torch.set_flush_denormal(False)
    torch.__future__.set_swap_module_params_on_conversion(False)
    torch.autograd.set_detect_anomaly(False)


SETTINGS = {
    "deterministic": lambda: torch.use_deterministic_algorithms(True),
    "flushing": lambda: torch.set_flush_denormal(True),
    "swapping": lambda: torch.__future__.set_swap_module_params_on_conversion(True),
    "anomaly": lambda: torch.autograd.set_detect_anomaly(True),
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_settings_of_torch(setting, settings_back):
    actor, fast = prepared()
    SETTINGS[setting]()
    actor.double().float()
    assert_acts_as_pure(actor, fast)
    assert_trains_as_pure(actor)


def test_what_is_kept_for_the_backward_pass_is_seen_by_hooks():
    """Somebody who stores it elsewhere, or in fewer bits, gets all of it."""
    actor = make_actor()

    def halved():
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t * 0.5 if t.is_floating_point() else t, lambda t: t):
            return trained(actor)

    ours = halved()
    with pure():
        theirs = halved()
    assert_same(ours, theirs)


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointed_training(reentrant):
    from torch.utils.checkpoint import checkpoint

    def step(actor):
        actor = copy.deepcopy(actor)
        obs = OBS.clone().requires_grad_()
        action = checkpoint(actor, obs, use_reentrant=reentrant)
        action.square().sum().backward()
        return [action.detach(), obs.grad, *(p.grad for p in actor.parameters()), *actor.state_dict().values()]

    actor = make_actor()
    ours = step(actor)
    with pure():
        theirs = step(actor)
    assert_same(ours, theirs)


def test_hooks_on_every_parameter():
    def step(actor):
        actor, heard = copy.deepcopy(actor), []
        for name, p in actor.named_parameters():
            p.register_hook(lambda g, name=name: heard.append(name))
        action = actor(OBS)
        action.square().sum().backward()
        return heard, [action.detach(), *(p.grad for p in actor.parameters())]

    actor = make_actor()
    ours = step(actor)
    with pure():
        theirs = step(actor)
    assert sorted(ours[0]) == sorted(theirs[0])
    assert_same(ours[1], theirs[1])


def test_gradients_of_many_losses_at_once():
    """torch asks for them with stand-ins that have no memory: one sentence, not a fault of ours."""
    actor = make_actor()
    action = actor(OBS)
    with pytest.raises(RuntimeError, match=r"carebn\.kernels\.pure"):
        torch.autograd.grad(
            action, list(actor.parameters()), torch.randn(3, *action.shape), is_grads_batched=True, allow_unused=True
        )


def test_training_in_several_python_threads():
    actors = [make_actor(seed=i) for i in range(4)]
    expected = [trained(actor) for actor in actors]
    found = [None] * 4

    def work(i):
        found[i] = [trained(actors[i]) for _ in range(3)]

    workers = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for ours, theirs in zip(found, expected, strict=True):
        for results in ours:
            assert all(torch.equal(a, b) for a, b in zip(results, theirs, strict=True))


# --- observations ----------------------------------------------------------------------------------------------------


def as_seen(obs):
    return np.asarray(obs, dtype=np.float32)


def read_only(obs):
    obs = obs.copy()
    obs.flags.writeable = False
    return obs


ARRAYS = {
    "float64": lambda x: x.astype(np.float64),
    "float16": lambda x: x.astype(np.float16),
    "the other byte order": lambda x: x.astype(">f4"),
    "integers": lambda x: (10 * x).astype(np.int16),
    "unsigned": lambda x: (10 * np.abs(x)).astype(np.uint16),
    "booleans": lambda x: x > 0,
    "objects": lambda x: x.astype(object),
    "read-only": read_only,
    "backwards": lambda x: x[::-1],
    "columns backwards": lambda x: np.ascontiguousarray(x[:, ::-1])[:, ::-1],
    "Fortran": np.asfortranarray,
    "every other": lambda x: np.repeat(x, 2, axis=0)[::2],
    "repeated": lambda x: np.broadcast_to(x[:1], x.shape),
    "a matrix": np.asmatrix,
    "unaligned": lambda x: np.frombuffer(b"." + x.tobytes(), np.uint8)[1:].view(np.float32).reshape(x.shape),
    "denormal": lambda x: x * np.float32(1e-41),
    "huge": lambda x: np.clip(x * 1e38, -3.4e38, 3.4e38).astype(np.float32),
    "one": lambda x: x[:1],
    "one, backwards": lambda x: x[:1][::-1],
    "none": lambda x: x[:0],
    "none of another size": lambda x: x[:0, :2],
    "none without a batch": lambda x: x[0, :0],
    "another size": lambda x: x[:, :2],
    "flat": lambda x: x[0],
    "deep": lambda x: x[None],
    "too large for float32": lambda x: x.astype(np.float64) * 1e300,
}


@pytest.mark.filterwarnings("error:The given NumPy array is not writable", "ignore:overflow")
@pytest.mark.parametrize("observation", ["tanh", "raw", "zscore"])
@pytest.mark.parametrize("kind", ARRAYS)
def test_arrays_of_every_kind(kind, observation):
    _, fast = prepared(encoder_options={"observation": observation})
    obs = ARRAYS[kind](OBS[:40].numpy().copy())
    ours = run_or_error(lambda: fast(obs))
    with pure():
        theirs = run_or_error(lambda: fast(obs))
    if kind.startswith(("none ", "another", "flat", "deep", "too large")):
        assert type(ours) is type(theirs) is ValueError
        assert str(ours) == str(theirs)
        return
    assert ours.shape == theirs.shape
    assert ours.dtype == theirs.dtype == np.float32
    assert (~np.isclose(ours, theirs, rtol=1e-4, atol=1e-4)).any(1).sum() <= 1


def negative(x):
    """The same numbers as a view whose sign torch has only noted, as in the imaginary part of a conjugate."""
    return torch._neg_view(-x)


TENSORS = {
    "a noted sign": negative,
    "expanded": lambda x: x[..., :1].expand_as(x),
    "transposed": lambda x: x.transpose(-1, -2).contiguous().transpose(-1, -2),
    "every other": lambda x: torch.stack([x, x + 1], -1)[..., 0],
    "offset": lambda x: torch.cat([torch.zeros(1), x.flatten()])[1:].view(x.shape),
    "a parameter": nn.Parameter,
}
NETWORKS = {
    "actor": lambda: (make_actor(encoder_options={"observation": "raw"}), OBS),
    "small batch": lambda: (make_actor(encoder_options={"observation": "raw"}), OBS[:9]),
    "Q-network": lambda: (SpikingQNetwork(4, 3, hidden=(70, 40)), OBS),
    "layer": lambda: (SpikingLayer(70, 20), (torch.rand(5, 110, 70) > 0.5).float()),
    "neuron": lambda: (make_neuron("clif"), torch.randn(5, 20, 7)),
    "norm": lambda: (CaReBN(7), torch.randn(5, 20, 7)),
}


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("kind", TENSORS)
def test_tensors_of_every_kind(kind, network):
    torch.manual_seed(0)
    network, x = NETWORKS[network]()

    def step():
        module = copy.deepcopy(network)
        given = TENSORS[kind](x)
        out = module(given)
        if out.requires_grad:
            out.backward(negative(torch.linspace(-1, 1, out.numel()).view_as(out)))
        grads = [p.grad for p in module.parameters() if p.grad is not None]
        return [out.detach(), *grads, *module.state_dict().values()]

    ours = step()
    with pure():
        theirs = step()
    assert_same(ours, theirs)


# --- an empty batch --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("norm", ["care", "tdbn", "bntt", "tebn", "tab", "none"])
@pytest.mark.parametrize("readout", ["membrane", "max-membrane"])
def test_an_empty_batch_is_answered_with_no_actions(norm, readout):
    """As torch's own modules do in inference: by acting and by the module, compiled and pure."""
    actor = make_actor(norm=norm, readout=readout)
    fast = FastActor(actor)
    for context in (pure(), torch.enable_grad()):
        with context:
            assert fast(np.zeros((0, 4), np.float32)).shape == (0, 2)
            assert copy.deepcopy(actor).eval()(OBS[:0]).shape == (0, 2)
            with pytest.raises(ValueError, match=r"expected observations of shape \[B, 4\]"):
                fast(np.zeros((0, 3), np.float32))
    assert SpikingQNetwork(4, 3, norm=norm, hidden=(7,)).eval()(OBS[:0]).shape == (0, 3)


def test_an_empty_batch_is_nothing_to_learn_from():
    for context in (pure(), torch.enable_grad()):
        with context, pytest.raises(ValueError, match="empty input"):
            make_actor()(OBS[:0])


# --- numbers at the edge ---------------------------------------------------------------------------------------------

ODD_NUMBERS = [float("nan"), float("inf"), -float("inf"), 1e-41, -0.0]
HOLDERS = ["layers.0.linear.weight", "layers.1.linear.weight", "layers.1.linear.bias", "layers.0.norm.weight",
           "layers.1.norm.bias", "encoder.mean", "encoder.std", "decoder.weight", "decoder.bias"]  # fmt: skip


def run_or_error(run):
    try:
        return run()
    except Exception as error:
        return error


@pytest.mark.parametrize("number", ODD_NUMBERS)
@pytest.mark.parametrize("norm", ["none", "care", "tebn"])
def test_numbers_that_are_no_weights(number, norm):
    """One weight of an input that never or seldom fires: a dense product makes 0·NaN of it, and so do we."""
    for where in HOLDERS:
        for mode in (True, False):
            for obs in (OBS, OBS[:9]):
                actor = make_actor(norm=norm).train(mode)
                try:
                    tensor = actor.get_parameter(where)
                except AttributeError:
                    continue
                with torch.no_grad():
                    tensor.view(-1)[0] = number
                ours = run_or_error(lambda actor=actor, obs=obs: numbers_of(actor, obs))
                with pure():
                    theirs = run_or_error(lambda actor=actor, obs=obs: numbers_of(actor, obs))
                if isinstance(theirs, Exception):
                    assert type(ours) is type(theirs), (where, mode, ours)
                else:
                    assert not isinstance(ours, Exception), (where, mode, ours)
                    for name, value in theirs.items():
                        assert torch.equal(torch.isfinite(ours[name]), torch.isfinite(value)), (where, mode, name)


def numbers_of(actor, obs):
    """Action, gradients and state by name, without gradients of biases that cancel: kernels do not compute them."""
    actor = copy.deepcopy(actor)
    action = actor(obs)
    action.square().sum().backward()
    gradients = {
        f"gradient of {name}": p.grad
        for name, p in actor.named_parameters()
        if p.grad is not None and not name.endswith("linear.bias")
    }
    return {"action": action.detach(), **gradients, **actor.state_dict()}


@pytest.mark.parametrize("grad", [float("nan"), float("inf")])
@pytest.mark.parametrize("obs", [OBS, OBS[:9]])
def test_a_loss_that_is_not_finite_spoils_the_same_gradients(grad, obs):
    def step():
        actor = make_actor()
        with torch.no_grad():
            actor.encoder.std[0] = 1e-3  # receptive fields that nothing excites: inputs that never fire
        action = actor(obs)
        weights = torch.ones_like(action)
        weights[0, 0] = grad
        return torch.autograd.grad((action * weights).sum(), list(actor.parameters()), allow_unused=True)

    ours = step()
    with pure():
        theirs = step()
    for name, a, b in zip((n for n, _ in make_actor().named_parameters()), ours, theirs, strict=True):
        if not name.endswith("linear.bias"):  # which cancels, so that kernels do not compute it
            assert torch.equal(torch.isfinite(a), torch.isfinite(b)), name


@pytest.mark.parametrize("eps", [0.0, 1e-12, 1e-8])
def test_an_epsilon_too_small_for_a_map_that_is_multiplied_out(eps):
    """A constant feature is β exactly: z·scale + (β − mean·scale) with a scale of 1e6 would be rounding alone."""
    actor = make_actor(norm_options={"eps": eps})
    with torch.no_grad():
        actor.encoder.std[0] = 1e3  # receptive fields that always fire
        actor.layers[0].linear.weight[:, 10:] = 0
        for layer in actor.layers:
            layer.norm.running_var.zero_()
    for obs in (OBS, OBS[:9]):
        for mode in (True, False):
            actor.train(mode)
            ours = run_or_error(lambda obs=obs: trained(actor, obs)[0])
            with pure():
                theirs = run_or_error(lambda obs=obs: trained(actor, obs)[0])
            torch.testing.assert_close(ours, theirs, equal_nan=True)
    if eps:
        assert "eps" in explain(actor, OBS)[0][2]


@pytest.mark.parametrize(("steps", "widths"), [(1, (1,)), (16, (1, 1)), (16, (17,)), (1, (65, 3))])
@pytest.mark.parametrize("norm", ["care", "none", "tdbn"])
def test_sizes_at_the_edge(steps, widths, norm):
    actor = make_actor(time_steps=steps, hidden=widths, norm=norm, population=1)
    for obs, mode in ((OBS, True), (OBS[:5], True), (OBS.repeat(3, 1), True), (OBS[:1], False)):
        actor.train(mode)
        ours = numbers_of(actor, obs)
        with pure():
            theirs = numbers_of(actor, obs)
        assert_same(list(ours.values()), list(theirs.values()))
    assert_acts_as_pure(actor)


@pytest.mark.parametrize("norm", ["bn", "care", "bntt", "tdbn", "none"])
def test_a_threshold_of_zero(norm):
    """A neuron that hears nothing has a potential of exactly zero, which does not fire; nearly zero might."""
    actor = make_actor(norm=norm, neuron=LIF(v_threshold=0.0))
    with torch.no_grad():
        actor.encoder.std[0] = 1e3  # receptive fields that always fire, so that features hardly vary
        actor.layers[0].linear.weight[:, 10:] = 0
    for obs in (OBS, OBS[:9]):
        assert any("threshold" in reason for _, _, reason in explain(actor, obs))
        assert_trains_as_pure(actor, obs)
    assert_acts_as_pure(actor.eval())


@pytest.mark.parametrize("norm", ["bn", "bntt", "tebn"])
def test_features_that_do_not_vary_at_the_edge_of_a_surrogate(norm):
    """Less its mean, such a feature is exactly zero: on the edge of the rectangle, where rounding would decide whether
    a gradient of 1/√eps goes through."""
    for seed in range(20):
        torch.manual_seed(seed)
        network = SpikingQNetwork(3, 2, norm=norm, hidden=(16,), time_steps=1)
        obs = torch.full((4, 3), 0.3)
        gradients = []
        for way in (nullcontext(), pure()):
            x = obs.clone().requires_grad_()
            with way:
                (copy.deepcopy(network)(x) * torch.arange(8.0).view(4, 2)).sum().backward()
            gradients.append(x.grad)
        torch.testing.assert_close(*gradients, rtol=1e-3, atol=1e-3)


# --- memory that was taken away, calls that are redirected, constants that are computed ------------------------------


@pytest.mark.parametrize("left", [0, 512])
def test_a_weight_whose_memory_was_taken_away_is_refused(left):
    """As sharding and offloading do it: too little is left for its shape. Both paths say so."""
    for prepare in (lambda actor: FastActor(actor), lambda actor: actor):
        actor = make_actor()
        network = prepare(actor)
        obs = OBS[:2].numpy() if network is not actor else OBS
        network(obs)
        actor.layers[1].linear.weight.untyped_storage().resize_(left)
        with pytest.raises(RuntimeError, match="storage"):
            network(obs)
        with pure(), pytest.raises(RuntimeError, match="storage"):
            network(obs)


def redirect(module, monkeypatch):
    call = module._call_impl
    module._call_impl = lambda *x, **k: call(*x, **k) * 0.5


def redirect_all(module, monkeypatch):
    call = nn.Module._call_impl
    halved = lambda self, *x, **k: call(self, *x, **k) * (0.5 if isinstance(self, nn.Linear) else 1)  # noqa: E731
    monkeypatch.setattr(nn.Module, "_call_impl", halved)
    monkeypatch.setattr(nn.Module, "_wrapped_call_impl", halved)


def compile_it(module, monkeypatch):
    module._compiled_call_impl = lambda *x: module._call_impl(*x) * 0.5


@pytest.mark.parametrize("way", [redirect, redirect_all, compile_it])
@pytest.mark.parametrize("where", ["layers.1.linear", "layers.0.norm", "layers.2.neuron", "layers.1"])
def test_a_module_whose_call_goes_elsewhere(where, way, monkeypatch):
    actor, fast = prepared()
    actor.train()(OBS)
    way(actor.get_submodule(where), monkeypatch)
    for rows in (len(OBS), 9):
        state = copy.deepcopy(actor.state_dict())
        ours = actor(OBS[:rows])
        actor.load_state_dict(state)
        with pure():
            torch.testing.assert_close(ours, actor(OBS[:rows]), rtol=1e-3, atol=1e-4)
    actor.eval()
    with pure(), torch.no_grad():
        theirs = actor(OBS[:9]).numpy()
    np.testing.assert_allclose(fast(OBS[:9].numpy()), theirs, rtol=1e-3, atol=1e-4)


def test_another_linear_function(monkeypatch):
    """As counters of operations and quantisers put it there."""
    actor, fast = prepared()
    linear = torch.nn.functional.linear
    monkeypatch.setattr(torch.nn.functional, "linear", lambda x, w, b=None: linear(x, w * 0.5, b))
    assert_trains_as_pure(actor)
    assert_acts_as_pure(actor, fast)


class Reads:
    """A descriptor that has nothing but an answer."""

    answer = 0.75

    def __get__(self, owner, kind):
        return self.answer


@pytest.mark.parametrize("where", ["the class itself", "a subclass"])
def test_constants_that_are_computed_by_a_descriptor(where, monkeypatch):
    monkeypatch.setattr(Reads, "answer", 0.75)
    actor, fast = prepared()
    actor(OBS)
    if where == "the class itself":
        monkeypatch.setattr(CLIF, "decay", property(lambda self: Reads.answer), raising=False)
    else:
        for layer in actor.layers:
            subclass(layer.neuron, decay=Reads())
            del layer.neuron.decay
    for answer in (0.75, 0.1, 0.9):
        Reads.answer = answer
        assert_trains_as_pure(actor)
        assert_acts_as_pure(actor, fast)


@pytest.mark.parametrize("value", [True, np.float64(0.5)])
def test_a_threshold_that_is_no_plain_number(value):
    actor = make_actor()
    for layer in actor.layers:
        layer.neuron.v_threshold = value
    try:
        with pure():
            actor(OBS)
    except RuntimeError as error:
        with pytest.raises(RuntimeError, match=str(error)[:20].replace("(", r"\(")):
            actor(OBS)
    else:
        assert_trains_as_pure(actor)


def test_an_encoder_whose_spikes_subtract_infinity():
    actor = make_actor()
    actor.encoder.subtract = np.inf
    with pure():
        theirs = actor(OBS)
    torch.testing.assert_close(actor(OBS), theirs, equal_nan=True)
    assert np.isnan(FastActor(actor)(OBS[:3].numpy())).all() == bool(theirs[:3].isnan().all())


def test_time_steps_of_numpy_and_of_torch():
    usual = FastActor(SpikingActor(4, 2, hidden=(40,)))(OBS[:3].numpy())
    for steps in (np.int64(5), torch.tensor(5)):
        actor = SpikingActor(4, 2, hidden=(40,))
        actor.encoder.time_steps = steps
        assert FastActor(actor)(OBS[:3].numpy()).dtype == usual.dtype == np.float32


@pytest.mark.filterwarnings("error")
def test_an_enormous_read_out_acts_without_a_warning():
    actor = make_actor()
    with torch.no_grad():
        actor.decoder.weight.fill_(3e37)
    assert_acts_as_pure(actor)


def test_two_layers_that_share_statistics_one_of_which_learns():
    """The second has those that the first has just moved."""
    actor = make_actor(hidden=(40, 40))
    second = copy.copy(actor.layers[0].norm)
    second.training = False
    actor.layers[1].norm = second
    twin = make_actor(hidden=(40, 40))
    twin.layers[1].norm = copy.copy(twin.layers[0].norm)
    twin.layers[1].norm.training = False
    with torch.no_grad():
        ours = actor(OBS)
        with pure():
            torch.testing.assert_close(ours, twin(OBS), rtol=1e-3, atol=1e-4)


def test_statistics_made_in_inference_mode_are_not_moved_outside():
    with torch.inference_mode():
        actor = make_actor()
    for path in (nullcontext, pure):
        with path(), torch.no_grad(), pytest.raises(RuntimeError, match="Inplace update to inference tensor"):
            actor.train()(OBS)


def test_rates_under_a_global_hook():
    """What a hook puts in, nobody has sent."""
    actor = make_actor()
    with firing_rates(actor) as usual, torch.no_grad():
        actor(OBS)
    hook = nn.modules.module.register_module_forward_pre_hook(
        lambda module, given: (given[0] * 0, *given[1:]) if isinstance(module, SpikingLayer) else None
    )
    try:
        with firing_rates(actor) as heard, torch.no_grad():
            actor(OBS)
    finally:
        hook.remove()
    assert float(heard.rates[0]) == pytest.approx(float(usual.rates[0]))


@pytest.mark.slow
def test_where_numba_is_told_to_compile_nothing(tmp_path):
    """Somebody debugs functions of theirs."""
    code = (
        "import torch, carebn.network as n; from carebn.kernels import explain; a = n.SpikingActor(4, 2, hidden=(8,));"
        "x = torch.randn(60, 4); a(x).sum().backward(); print(explain(a, x));"
        "from carebn.network.inference import FastActor; print(FastActor(a)(x[:2].numpy()).shape)"
    )
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1", "NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert "numba compiles nothing, by NUMBA_DISABLE_JIT" in done.stdout
    assert done.stdout.endswith("(2, 2)\n")

"""A plan of the stack that is used again is what the router would find out afresh, whatever has changed since."""

import copy
import pickle

import pytest
import torch
from kernel_cases import OBS, assert_trains_as_pure, make_actor
from torch import nn
from torch.nn.utils import parametrizations, prune

from carebn.introspection import Noted
from carebn.network import SpikingActor
from carebn.neuron import CLIF, Rectangle
from carebn.norm import CaReBN
from carebn.norm.base import MomentRecorder
from carebn.router import plan_stack


def described(plan):
    """What a plan says, with tensors as the objects that they are."""
    if isinstance(plan, str):
        return plan
    said = [(id(p.weight), id(p.bias), p.spec, id(p.norm)) for p in plan]
    rules = [p.rule and (p.rule.rule, p.rule.momentum, list(map(id, p.rule.errors))) for p in plan]
    return said, rules, [p.given and [t.tolist() for t in p.given] for p in plan]


def asked(actor):
    return described(plan_stack(actor, actor.encoder.stimulation(OBS)))


def asked_afresh(actor):
    remembered = vars(actor).pop("_remembered")
    try:
        return asked(actor)
    finally:
        actor._remembered = remembered


def planned(training=True):
    actor = make_actor().train(training)
    with torch.set_grad_enabled(training):
        assert not isinstance(asked(actor), str)
    assert actor._remembered._known
    return actor


def own_class(module, **attributes):
    module.__class__ = type(f"Own{type(module).__name__}", (type(module),), attributes)


def set_data(tensor, data):
    tensor.data = data


def rename(held):
    name, value = held.popitem()
    held[f"{name}_of_old"] = value


def frozen_size(surrogate, size):
    object.__setattr__(surrogate, "size", size)


def strided(tensor):
    return torch.stack([tensor.detach()] * 2, -1)[..., 0]


CHANGES = {
    "a hook of a layer": lambda a: a.layers[0].register_forward_hook(lambda *_: None),
    "a hook of a norm": lambda a: a.layers[2].norm.register_forward_pre_hook(lambda *_: None),
    "a backward hook of a linear": lambda a: a.layers[1].linear.register_full_backward_hook(lambda *_: None),
    "a hook of the decoder": lambda a: a.decoder.register_forward_hook(lambda *_: None),
    "a hook of the encoder, which does not matter": lambda a: a.encoder.register_forward_hook(lambda *_: None),
    "a hook on a norm's weight": lambda a: a.layers[1].norm.weight.register_hook(lambda g: g * 2),
    "a hook on a weight, which does not matter": lambda a: a.layers[1].linear.weight.register_hook(lambda g: g * 2),
    "a subclass of a neuron": lambda a: own_class(a.layers[0].neuron, step=CLIF.initial_state),
    "a subclass of a norm": lambda a: own_class(a.layers[0].norm, scale_offset=lambda self, var: (var, var)),
    "a subclass of a norm that observes": lambda a: own_class(a.layers[0].norm, observe=lambda self, *_: None),
    "a subclass of a linear": lambda a: own_class(a.layers[2].linear),
    "a subclass of the list": lambda a: own_class(a.layers, __iter__=lambda self: iter([self[0], self[2]])),
    "a forward of one's own": lambda a: setattr(a.layers[1].norm, "forward", lambda x: x),
    "an observe of one's own": lambda a: setattr(a.layers[1].norm, "observe", lambda *_: None),
    "another norm": lambda a: setattr(a.layers[0], "norm", CaReBN(a.layers[0].norm.num_features)),
    "another weight": lambda a: setattr(a.layers[0].linear, "weight", nn.Parameter(a.layers[0].linear.weight * 2)),
    "no bias": lambda a: setattr(a.layers[0].linear, "bias", None),
    "one layer fewer": lambda a: a.layers.pop(1),
    "layers in another order": lambda a: setattr(a, "layers", nn.ModuleList([a.layers[1], a.layers[0], a.layers[2]])),
    "a weight in another precision": lambda a: set_data(a.layers[0].linear.weight, a.layers[0].linear.weight.double()),
    "a weight with strides": lambda a: set_data(a.layers[0].linear.weight, strided(a.layers[0].linear.weight)),
    # the same memory, read in another way
    "a transposed weight": lambda a: set_data(a.layers[1].linear.weight, a.layers[1].linear.weight.data.t()),
    "a bias of one number": lambda a: set_data(
        a.layers[0].norm.bias, a.layers[0].norm.bias.data.as_strided(a.layers[0].norm.bias.shape, (0,))
    ),
    "statistics of another type": lambda a: set_data(
        a.layers[0].norm.running_var, a.layers[0].norm.running_var.view(torch.int32)
    ),
    "a matrix for a bias": lambda a: set_data(a.layers[0].linear.bias, a.layers[0].linear.bias.data[None]),
    "a smaller bias": lambda a: set_data(a.layers[0].linear.bias, a.layers[0].linear.bias.detach()[:3].clone()),
    "a weight that is not there": lambda a: a.layers[0].linear.to("meta"),
    "statistics that share memory": lambda a: set_data(a.layers[0].norm.running_mean, a.layers[0].norm.running_var),
    "statistics that share a parameter's": lambda a: set_data(
        a.layers[0].norm.running_mean, a.layers[0].norm.bias.data
    ),
    "errors with strides": lambda a: set_data(a.layers[0].norm.error_var, strided(a.layers[0].norm.error_var)),
    "a count of another type": lambda a: set_data(a.layers[0].norm.num_batches_tracked, torch.tensor(3.0)),
    "a buffer more": lambda a: a.layers[0].norm.register_buffer("more", torch.zeros(3, dtype=torch.float64)),
    "a parameter more": lambda a: a.layers[0].norm.register_parameter("more", nn.Parameter(torch.zeros(7))),
    "a plain tensor more": lambda a: setattr(a.layers[0].norm, "more", torch.zeros(1)),
    "a module more": lambda a: a.layers[0].norm.add_module("more", nn.Identity()),
    "a buffer of another name": lambda a: rename(a.layers[0].norm._buffers),
    "a learned constant": lambda a: setattr(a.layers[0].neuron, "decay", nn.Parameter(torch.tensor(0.5))),
    "another threshold": lambda a: setattr(a.layers[0].neuron, "v_threshold", 0.75),
    "a threshold of zero": lambda a: setattr(a.layers[0].neuron, "v_threshold", 0.0),
    "another surrogate": lambda a: setattr(a.layers[0].neuron, "surrogate", Rectangle(0.25)),
    "a surrogate that was tampered with": lambda a: frozen_size(a.layers[0].neuron.surrogate, 0.125),
    "a surrogate's class": lambda a: setattr(
        a.layers[0].neuron, "surrogate", type("Own", (Rectangle,), {"slope": lambda self, x: x})()
    ),
    "another epsilon": lambda a: setattr(a.layers[0].norm, "eps", 1e-30),
    "another momentum": lambda a: setattr(a.layers[0].norm, "momentum", 0.5),
    "a momentum of None": lambda a: setattr(a.layers[0].norm, "momentum", None),
    "statistics that are not to follow": lambda a: setattr(a.layers[0].norm, "track_running_stats", False),
    "a recorder": lambda a: setattr(a.layers[0].norm, "_recorder", MomentRecorder()),
    "another coding": lambda a: setattr(a.encoder, "coding", "poisson"),
    "another read-out": lambda a: setattr(a.decoder, "readout", "max-membrane"),
    "an encoder's threshold of zero": lambda a: setattr(a.encoder, "threshold", 0.0),
    "an encoder's threshold that is a tensor": lambda a: setattr(a.encoder, "threshold", torch.tensor(0.9)),
    "time steps of one": lambda a: setattr(a.encoder, "time_steps", 1),
    "a norm in the other mode": lambda a: a.layers[1].norm.train(not a.layers[1].norm.training),
    "all in the other mode": lambda a: a.train(not a.training),
    "a weight that is no number": lambda a: a.layers[1].linear.weight.data.fill_(torch.nan),
    "a norm's weight that is no number": lambda a: a.layers[1].norm.weight.data.fill_(torch.nan),
    "a moving mean that is no number": lambda a: a.layers[1].norm.running_mean.fill_(torch.inf),
    "numbers in place, as training does": lambda a: [p.data.mul_(0.5) for p in a.parameters()],
    "pruning": lambda a: prune.l1_unstructured(a.layers[1].linear, "weight", 0.5),
    "weight norm": lambda a: parametrizations.weight_norm(a.layers[1].linear),
    "other attributes altogether": lambda a: setattr(
        a.layers[0].neuron, "__dict__", {**vars(a.layers[0].neuron), "decay": 0.25}
    ),
}


@pytest.mark.parametrize("training", [True, False], ids=["training", "moving statistics"])
@pytest.mark.parametrize("what", CHANGES)
def test_a_change_after_the_plan_was_made(what, training):
    actor = planned(training)
    CHANGES[what](actor)
    for grad in (True, False):
        with torch.set_grad_enabled(grad):
            try:
                expected = asked_afresh(actor)
            except (ValueError, AttributeError, RuntimeError) as error:
                with pytest.raises(type(error)):
                    asked(actor)
            else:
                assert asked(actor) == expected
                assert asked(actor) == expected


@pytest.mark.parametrize(
    ("where", "name", "value"),
    [
        (lambda a: a.layers[0].norm, "observe", lambda self, *_: None),
        (lambda a: a.layers[0].norm, "kernel_rule", lambda self: None),
        (lambda a: a.layers[0].norm, "weight", property(lambda self: torch.ones(3))),
        (lambda a: a.layers[0].neuron, "step", lambda self, *_: None),
        (lambda a: a.layers[0].neuron.surrogate, "kernel_number", 1),
        (lambda a: a.layers[0].linear, "forward", lambda self, x: x),
        (lambda a: a.layers[0], "__call__", lambda self, x: x),
        (lambda a: a.decoder, "read", lambda self, *x: x),
        (lambda a: a.encoder, "spikes", lambda self, *x: x),
    ],
)
def test_a_class_that_is_patched_after_the_plan_was_made(where, name, value, monkeypatch):
    actor = planned()
    monkeypatch.setattr(type(where(actor)), name, value, raising=False)
    assert asked(actor) == asked_afresh(actor)


def test_a_constant_of_a_class_that_changes_after_the_plan_was_made():
    actor = make_actor()
    own_class(actor.layers[0].neuron, decay=0.5)
    del actor.layers[0].neuron.decay
    before = asked(actor)
    assert not isinstance(before, str)
    type(actor.layers[0].neuron).decay = 0.25
    assert asked(actor) == asked_afresh(actor) != before


def test_a_copy_has_a_plan_of_its_own():
    actor = planned()
    for twin in (copy.deepcopy(actor), pickle.loads(pickle.dumps(actor)), copy.copy(actor)):
        assert asked(twin) == asked_afresh(twin)
    twin = copy.copy(actor)
    twin._modules = {**actor._modules, "layers": copy.deepcopy(actor.layers)}
    assert asked(twin) == asked_afresh(twin) != asked(actor)
    assert asked(actor) == asked_afresh(actor)


def test_training_is_no_change_and_two_modes_are_remembered(monkeypatch):
    actor = planned()
    with torch.no_grad():
        actor.eval()
        asked(actor)
    actor.train()
    made = []
    init = Noted.__init__
    monkeypatch.setattr(Noted, "__init__", lambda self, modules: made.append(self) or init(self, modules))
    optimiser = torch.optim.Adam(actor.parameters())
    for _ in range(3):
        optimiser.zero_grad()
        actor(OBS).sum().backward()
        optimiser.step()
        actor.eval()
        with torch.no_grad():
            actor(OBS)
        actor.train()
    assert made == []
    assert_trains_as_pure(actor)


def test_an_actor_without_a_memory_is_planned_all_the_same():
    actor = make_actor()
    del actor._remembered
    assert isinstance(actor, SpikingActor)
    assert not isinstance(asked(actor), str)

"""Networks that are not what they seem: the compiled paths step aside, and the result is that of the pure path.

Each of these gave another result, foreign memory, a crash or a deadlock when compiled paths decided for themselves.
"""

import copy
import subprocess
import sys
import threading

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
from torch.nn.utils import parametrizations, prune

from carebn import router
from carebn.kernels import explain, pure
from carebn.kernels.catalogue import KERNELS
from carebn.kernels.tables import KernelFault
from carebn.network import SpikingActor, SpikingLayer, SpikingQNetwork
from carebn.network.inference import FastActor
from carebn.neuron import CLIF, make_neuron
from carebn.norm import BN, CaReBN

# --- tensors that are not dense --------------------------------------------------------------------------------------


def strided(t):
    return torch.stack([t, torch.full_like(t, 7.0)], -1)[..., 0]


def replace(module, name, tensor):
    if name in module._parameters:
        module._parameters[name] = nn.Parameter(tensor)
    else:
        module._buffers[name] = tensor


PLACES = [
    ("layers.1.linear", "bias"),
    ("layers.0.linear", "weight"),
    ("layers.0.norm", "weight"),
    ("layers.2.norm", "bias"),
    ("layers.1.norm", "running_mean"),
    ("layers.1.norm", "running_var"),
    ("layers.1.norm", "error_var"),
    ("encoder", "mean"),
    ("encoder", "std"),
    ("decoder", "weight"),
    ("decoder", "bias"),
]


@pytest.mark.parametrize(("where", "name"), PLACES)
def test_strided_tensors(where, name):
    actor = make_actor()
    module = actor.get_submodule(where)
    replace(module, name, strided(getattr(module, name).detach()))
    assert_trains_as_pure(actor)
    assert_acts_as_pure(actor)


@pytest.mark.parametrize("name", ["mean", "std"])
def test_expanded_and_transposed_receptive_fields(name):
    for change in (lambda t: t[:1].expand_as(t), lambda t: t.t().contiguous().t(), lambda t: t[:1].clone()):
        actor = make_actor()
        replace(actor.encoder, name, change(getattr(actor.encoder, name).detach()))
        assert_trains_as_pure(actor)
        assert_acts_as_pure(actor)


@pytest.mark.parametrize("where", ["layers.0.norm", "layers.1.linear", "decoder", "bounds", "encoder"])
def test_one_module_in_another_precision(where):
    actor = make_actor()
    actor.get_submodule(where).double()
    for run in (trained, lambda network: [torch.from_numpy(FastActor(network)(OBS[:9].numpy()))]):
        try:
            with pure():
                theirs = run(actor)
        except RuntimeError as error:
            with pytest.raises(type(error)):
                run(actor)
        else:
            assert_same(run(actor), theirs)


def test_half_precision_statistics():
    norm = CaReBN(8)
    for name in ("running_mean", "running_var", "error_mean", "error_var"):
        norm._buffers[name] = norm._buffers[name].half()
    ours, theirs = copy.deepcopy(norm), copy.deepcopy(norm)
    x = torch.randn(16, 8)
    ours(x)
    with pure():
        theirs(x)
    assert_same(list(ours.state_dict().values()), list(theirs.state_dict().values()))


@pytest.mark.parametrize("name", ["running_mean", "running_var", "error_mean"])
def test_statistics_that_were_shrunk_are_refused(name):
    """By both paths; reading on behind the end of the buffer was a segmentation fault."""
    for network in (CaReBN(100), SpikingLayer(6, 100), make_actor(hidden=(100,))):
        norm = next(m for m in network.modules() if isinstance(m, CaReBN))
        norm._buffers[name] = norm._buffers[name][:10].clone()
        x = (
            torch.randn(64, 100)
            if network is norm
            else OBS
            if isinstance(network, SpikingActor)
            else torch.rand(5, 64, 6)
        )
        for context in (pure(), torch.enable_grad()):
            with context, pytest.raises(RuntimeError):
                copy.deepcopy(network)(x)


def test_assigned_state_with_strides():
    actor = make_actor()
    state = {name: strided(t) if t.ndim else t for name, t in actor.state_dict().items()}
    actor.load_state_dict(state, assign=True)
    assert_trains_as_pure(actor)
    assert_acts_as_pure(actor)


def test_an_input_of_the_wrong_width_is_refused():
    layer = SpikingLayer(100, 30).eval()
    with torch.no_grad(), pytest.raises(RuntimeError):
        layer(torch.rand(5, 200, 64))


def test_a_weight_replaced_by_a_smaller_one():
    actor = make_actor()
    fast = FastActor(actor)
    fast(OBS[:1].numpy())
    actor.layers[1].linear.weight = nn.Parameter(torch.randn(3, 3))
    with pytest.raises(RuntimeError):
        fast(OBS[:1].numpy())


def test_shared_tensors():
    actor = make_actor(hidden=(24, 24, 24))
    actor.layers[2].linear.weight = actor.layers[1].linear.weight
    actor.layers[2].norm._buffers["running_mean"] = actor.layers[1].norm.running_mean
    assert_trains_as_pure(actor)
    actor = make_actor()
    norm = actor.layers[0].norm
    norm._buffers["error_mean"] = norm.running_mean  # written twice in one update
    assert_trains_as_pure(actor)


# --- code that is not the one that was compiled ----------------------------------------------------------------------


class OwnCombine(CaReBN):
    def combine(self, mean, var):
        return mean + 0.3, var * 2


class OwnStatistics(BN):
    def statistics(self, x):
        mean, var = super().statistics(x)
        return mean, var * 3


class OwnForward(CaReBN):
    def forward(self, x):
        return super().forward(x) + 0.2


class OwnMap(CaReBN):
    def scale_offset(self, var):
        scale, offset = super().scale_offset(var)
        return scale * 1.5, offset


class OwnMovingMap(CaReBN):
    def moving_scale_shift(self):
        return self.weight * 0, self.bias * 0


class OwnUpdate(CaReBN):
    def update(self, mean, var, batch, samples):
        self.running_mean.copy_(mean)


class OwnObserve(BN):
    def observe(self, mean, var, batch, samples):
        super().observe(mean * 2, var, batch, samples)


class LoRA(nn.Linear):
    def forward(self, x):
        return super().forward(x) + x.mean(-1, keepdim=True)


class OwnStep(CLIF):
    def step(self, current, state):
        return super().step(current * 0.5, state)


@pytest.mark.parametrize("kind", [OwnCombine, OwnStatistics, OwnForward, OwnMap, OwnMovingMap, OwnUpdate, OwnObserve])
def test_norms_of_ones_own(kind):
    actor = make_actor()
    for layer in actor.layers:
        norm = kind(layer.norm.num_features)
        norm.load_state_dict(layer.norm.state_dict(), strict=False)
        layer.norm = norm
    assert_trains_as_pure(actor)
    assert_trains_as_pure(actor.eval())
    assert_acts_as_pure(actor)


@pytest.mark.parametrize("mode", [True, False])
def test_a_linear_layer_of_ones_own(mode):
    actor = make_actor()
    for layer in actor.layers:
        linear = LoRA(layer.linear.in_features, layer.linear.out_features)
        linear.load_state_dict(layer.linear.state_dict())
        layer.linear = linear
    assert_trains_as_pure(actor.train(mode))
    assert_acts_as_pure(actor)


def test_a_neuron_of_ones_own():
    actor = make_actor(neuron=OwnStep())
    assert_trains_as_pure(actor)
    assert_acts_as_pure(actor)


PARTS = ["layers.1", "layers.1.linear", "layers.1.norm", "layers.1.neuron", "decoder", "bounds"]


@pytest.mark.parametrize("where", PARTS)
def test_an_instance_whose_forward_was_replaced(where):
    actor = make_actor()
    fast = FastActor(actor)
    fast(OBS[:1].numpy())
    module = actor.get_submodule(where)
    plain = type(module).forward
    module.forward = lambda *x: plain(module, *x) * 0.5
    with kernels_called() as names:
        fast(OBS[:3].numpy())
    assert "act" not in names
    ours = module.forward
    with torch.no_grad():
        action = actor(OBS)
        with pure():
            assert torch.equal(actor(OBS), action) or where == "bounds"
    assert module.forward is ours


@pytest.mark.parametrize("name", ["combine", "scale_offset", "forward"])
def test_a_method_that_was_replaced_on_the_class(name, monkeypatch):
    actor = make_actor()
    fast = FastActor(actor)
    fast(OBS[:1].numpy())
    plain = getattr(CaReBN, name)
    changes = {
        "combine": lambda self, mean, var: (mean + 0.1, var),
        "scale_offset": lambda self, var: tuple(2 * x for x in plain(self, var)),
        "forward": lambda self, x: 2 * plain(self, x),
    }
    monkeypatch.setattr(CaReBN, name, changes[name])
    assert_trains_as_pure(actor)
    assert_acts_as_pure(actor, fast)


@pytest.mark.parametrize("kind", ["forward_hook", "forward_pre_hook", "full_backward_hook"])
def test_global_hooks_are_called(kind):
    actor = make_actor()
    fast = FastActor(actor)
    fast(OBS[:1].numpy())
    calls = []
    register = getattr(nn.modules.module, f"register_module_{kind}")
    handle = register(lambda module, *rest: calls.append(type(module).__name__))
    try:
        actor(OBS).sum().backward()
        assert {"Linear", "CaReBN", "CLIF"} <= set(calls)
        calls.clear()
        fast(OBS[:1].numpy())
        assert kind == "full_backward_hook" or {"Linear", "CaReBN", "CLIF"} <= set(calls)
    finally:
        handle.remove()


CHANGES = {
    "weight_norm": lambda actor: parametrizations.weight_norm(actor.layers[1].linear),
    "spectral_norm": lambda actor: parametrizations.spectral_norm(actor.layers[1].linear),
    "orthogonal": lambda actor: parametrizations.orthogonal(actor.layers[1].linear),
    "a parametrised norm": lambda actor: parametrizations.weight_norm(actor.layers[0].norm, "weight", dim=None),
    "pruned": lambda actor: prune.random_unstructured(actor.layers[1].linear, "weight", 0.5),
    "pruned bias": lambda actor: prune.l1_unstructured(actor.layers[0].linear, "bias", 0.5),
    "another layer": lambda actor: setattr(actor.layers[1], "linear", nn.Linear(40, 24)),
    "another norm": lambda actor: setattr(actor.layers[1], "norm", BN(24)),
    "a norm without weights": lambda actor: setattr(actor.layers[1], "norm", CaReBN(24, affine=False)),
    "a norm that lost its bias": lambda actor: setattr(actor.layers[1].norm, "bias", None),
    "a norm without statistics": lambda actor: setattr(
        actor.layers[1], "norm", CaReBN(24, track_running_stats=False, v_threshold=1.0)
    ),
    "another threshold": lambda actor: setattr(actor.layers[1].neuron, "v_threshold", 0.9),
    "another epsilon": lambda actor: setattr(actor.layers[1].norm, "eps", 0.7),
    "negated in place": lambda actor: actor.layers[2].linear.weight.data.mul_(-1),
    "other populations": lambda actor: actor.decoder.belongs.mul_(0.5),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changes_after_the_acting_path_was_prepared(change):
    actor = make_actor()
    fast = FastActor(actor)
    before = fast(OBS[:40].numpy())
    with torch.no_grad():
        CHANGES[change](actor)
    assert_acts_as_pure(actor, fast)
    if change not in ("weight_norm", "a parametrised norm"):  # which change nothing at first
        assert not np.array_equal(fast(OBS[:40].numpy()), before)
    if change not in ("spectral_norm", "a parametrised norm"):  # whose power iteration makes another step at every call
        assert_trains_as_pure(actor)


NORM_OPTIONS = [
    {"affine": False},
    {"bias": False},
    {"track_running_stats": False},
    {"affine": False, "track_running_stats": False},
]


@pytest.mark.parametrize("norm", ["care", "bn"])
@pytest.mark.parametrize("options", NORM_OPTIONS)
def test_norms_without_weights_or_statistics(norm, options):
    actor = make_actor(norm=norm, norm_options=options)
    assert_trains_as_pure(actor)
    assert_trains_as_pure(actor.eval())
    assert_acts_as_pure(actor)
    rows = explain(actor.train(), OBS)
    if options.get("track_running_stats", True):
        assert [row[1] for row in rows] == ["parts", "layer", "layer", "layer", "act"]
        assert "is not a plain batch norm" in rows[0][2]
    else:
        assert [row[1] for row in rows] == ["parts", "pure", "scan", "pure", "scan", "pure", "scan", "module"]
        assert rows[1][2].endswith("keeps no moving statistics")


@pytest.mark.parametrize("norm", ["care", "bn"])
def test_statistics_that_are_not_to_follow(norm):
    """The stack and the layer normalise by the batch, and leave the moving statistics alone."""
    for obs in (OBS, OBS[:8]):
        actor = make_actor(norm=norm)
        for layer in actor.layers:
            layer.norm.track_running_stats = False
        before = copy.deepcopy(actor.state_dict())
        with kernels_called() as names:
            actor(obs)
        assert {"packed_layer", "fire"} & set(names)
        for name, value in actor.state_dict().items():
            assert torch.equal(value, before[name]), name
        assert_trains_as_pure(actor, obs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_bias_or_weight_that_appears_after_the_acting_path_was_prepared(dtype):
    actor = make_actor(norm_options={"affine": False})
    actor.layers[0].linear.bias = None
    fast = FastActor(actor)
    assert_acts_as_pure(actor, fast)
    actor.layers[0].linear.bias = nn.Parameter(torch.linspace(-1, 1, 40))
    actor.layers[1].norm.weight = nn.Parameter(torch.linspace(0.5, 3, 24, dtype=dtype))
    assert_acts_as_pure(actor, fast)


def test_every_layer_acts_with_its_own_neuron():
    actor = make_actor()
    for layer, threshold, decay in zip(actor.layers, (0.3, 0.7, 0.5), (0.2, 0.9, 0.6), strict=True):
        layer.neuron = CLIF(v_threshold=threshold, decay=decay)
    assert_acts_as_pure(actor)
    actor.layers[1].neuron = make_neuron("dn")
    assert_acts_as_pure(actor)


def test_a_learned_constant_keeps_its_gradient():
    neuron = CLIF()
    del neuron.decay
    neuron.decay = nn.Parameter(torch.tensor(0.75))
    neuron(torch.rand(5, 9, 3)).sum().backward()
    assert neuron.decay.grad.abs() > 0


# --- modes of torch --------------------------------------------------------------------------------------------------


def test_defaults_of_torch_are_not_the_kernels(monkeypatch):
    actor = make_actor()
    expected = trained(actor)
    torch.set_default_dtype(torch.float64)
    try:
        assert_same(trained(actor), expected)
        assert_acts_as_pure(actor)
    finally:
        torch.set_default_dtype(torch.float32)
    with torch.device("meta"):
        assert_same(trained(actor), expected)


def test_forward_mode_differentiation():
    neuron = make_neuron("clif", surrogate="sigmoid")
    x = torch.rand(4, 3, 2)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, torch.ones_like(x))
        with pytest.raises((RuntimeError, NotImplementedError)) as raised:
            neuron(dual)
    assert "_Fire" not in str(raised.value)  # as the pure surrogate says it, not a kernel


def test_operations_are_seen_by_a_dispatch_mode():
    from torch.utils.flop_counter import FlopCounterMode

    actor = make_actor()
    with FlopCounterMode(display=False) as ours:
        actor(OBS)
    with pure(), FlopCounterMode(display=False) as theirs:
        actor(OBS)
    assert ours.get_total_flops() == theirs.get_total_flops() > 0


def test_pure_is_honoured_in_acting():
    from carebn.training.config import TrainConfig
    from carebn.training.policy import Policy

    actor = make_actor()
    fast = FastActor(actor)
    policy = Policy(copy.deepcopy(actor), TrainConfig(), 4, np.float32)
    with kernels_called() as names:
        fast(OBS[:2].numpy())
        policy.predict(OBS[:2].numpy())
        assert names == ["act", "act"]
        with pure():
            fast(OBS[:2].numpy())
            policy.predict(OBS[:2].numpy())
        assert names == ["act", "act"]


def test_acting_leaves_every_mode_as_it_was():
    actor = make_actor()
    actor.layers[1].eval()
    fast = FastActor(actor)
    before = {name: module.training for name, module in actor.named_modules()}
    with pure():
        fast(OBS[:2].numpy())
    assert {name: module.training for name, module in actor.named_modules()} == before


@pytest.mark.parametrize("where", ["layers.1.linear.weight", "layers.0.norm.weight"])
def test_a_parameter_that_changes_before_the_backward_pass(where):
    for compiled in (True, False):
        actor = make_actor()
        with torch.enable_grad() if compiled else pure():
            action = actor(OBS)
            with torch.no_grad():
                actor.get_parameter(where).mul_(2)
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                action.sum().backward()


@pytest.mark.parametrize("network", [lambda: make_actor(), lambda: SpikingLayer(4, 13), lambda: CaReBN(4)])
def test_autograd_notices_an_update_by_a_kernel(network):
    """As it notices torch's own changes in place: whoever has saved a statistic for later is told."""
    network = network()
    norm = next(m for m in network.modules() if isinstance(m, CaReBN))
    buffers = [norm.running_mean, norm.running_var, norm.error_mean, norm.error_var, norm.num_batches_tracked]
    before = [t._version for t in buffers]
    with kernels_called() as names:
        network(torch.rand(5, 64, 4) if isinstance(network, SpikingLayer) else OBS)
    assert {"packed_layer", "update_moving"} & set(names)
    assert all(t._version > version for t, version in zip(buffers, before, strict=True))


# --- numbers at the edge ---------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2])
def test_no_epsilon_and_a_constant_feature(threads):
    """In a process of its own: on two threads an exception in one of them was a deadlock."""
    code = f"""
import torch
from carebn.kernels import pure
from carebn.network import SpikingActor
torch.set_num_threads({threads})
torch.manual_seed(0)
a = SpikingActor(4, 2, hidden=(40,), norm_options={{"eps": 0.0}})
with torch.no_grad():
    a.layers[0].linear.weight[3] = 0
    a.layers[0].linear.bias[3] = 0
    x = torch.randn(128, 4)
    ours = a(x)
    with pure():
        assert torch.equal(torch.isnan(a(x)), torch.isnan(ours))
"""
    done = subprocess.run([sys.executable, "-c", code], timeout=240, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_receptive_fields_without_width():
    actor = make_actor()
    with torch.no_grad():
        actor.encoder.std[1] = 0
    assert_acts_as_pure(actor)
    with torch.no_grad():
        ours = actor(OBS)
        with pure():
            torch.testing.assert_close(actor(OBS), ours)


@pytest.mark.parametrize("neuron", ["lif", "clif", "dn"])
@pytest.mark.parametrize("size", [1e30, 1e38, 3e38])
def test_potentials_that_overflow(neuron, size):
    torch.manual_seed(0)
    network = SpikingQNetwork(3, 2, norm="none", neuron=neuron, hidden=(20,)).eval()
    with torch.no_grad():
        network.layers[0].linear.weight.mul_(size)
        ours = network(torch.randn(300, 3))
        torch.manual_seed(0)
        SpikingQNetwork(3, 2, norm="none", neuron=neuron, hidden=(20,))
        obs = torch.randn(300, 3)
        with pure():
            theirs = network(obs)
        torch.testing.assert_close(ours, theirs, equal_nan=True)


@pytest.mark.parametrize("neuron", ["lif", "clif", "dn"])
def test_a_threshold_below_zero(neuron):
    """A potential of zero is above it, but the step before the first has not fired."""
    module = make_neuron(neuron, v_threshold=-0.2)
    x = torch.randn(5, 30, 3)
    ours = module(x)
    with pure():
        assert torch.equal(module(x), ours)


# --- threads ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("norm", ["care", "tdbn", "bntt", "tebn", "tab"])
def test_acting_from_several_python_threads(norm):
    actor = make_actor(norm=norm)
    fast = FastActor(actor)
    obs = np.random.default_rng(0).standard_normal((200, 4)).astype(np.float32)
    expected = [fast(row[None]) for row in obs]
    wrong = []

    def work(first):
        for i in range(first, 200, 4):
            if not np.array_equal(fast(obs[i : i + 1]), expected[i]):
                wrong.append(i)

    workers = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert wrong == []


# --- tables ----------------------------------------------------------------------------------------------------------


def fields(**changes):
    z = torch.zeros(2, 3, 4)
    return {"steps": 2, "batch": 3, "features": 4, "groups": 1, "z": z,
            "sums": torch.zeros(2, 16, 1, 4, dtype=torch.float64)} | changes  # fmt: skip


@pytest.mark.parametrize(
    "changes",
    [
        {"z": torch.zeros(2, 3, 5)},
        {"z": torch.zeros(3, 2, 4).transpose(0, 1)},
        {"z": torch.zeros(2, 3, 4, dtype=torch.float64)},
        {"z": torch.zeros(2, 3, 4, device="meta")},
        {"z": torch._neg_view(torch.zeros(2, 3, 4))},
        {"steps": 3},
    ],
)
def test_a_table_refuses_what_does_not_fit(changes):
    KERNELS["moments"](torch.float32, **fields())
    with pytest.raises(KernelFault, match="must be a dense"):
        KERNELS["moments"](torch.float32, **fields(**changes))


def test_a_table_wants_every_field_and_no_other():
    whole = fields()
    with pytest.raises(TypeError, match="sums"):
        KERNELS["moments"](torch.float32, **{k: v for k, v in whole.items() if k != "sums"})
    with pytest.raises(TypeError, match="more"):
        KERNELS["moments"](torch.float32, **whole, more=1)


def test_a_kernel_that_does_not_come_to_its_end_is_heard(monkeypatch):
    kernel = KERNELS["moments"]

    class Dies:
        address = 0

        @staticmethod
        def ctypes(address):
            """Returns without a report, as a kernel in which something was raised does."""

    monkeypatch.setitem(kernel._compiled, torch.float32, Dies)
    with pytest.raises(KernelFault, match="did not come to its end"):
        kernel(torch.float32, serially=True, **fields())


# --- telling ---------------------------------------------------------------------------------------------------------


def test_explain_names_path_and_reason():
    actor = make_actor()
    state = copy.deepcopy(actor.state_dict())
    assert list(explain(actor, OBS)) == [("(network)", "stack", ""), ("(network)", "act", "")]
    rows = explain(actor, OBS[:10])
    assert rows[0] == ("(network)", "parts", "fewer than 256 rows (time steps × batch)")
    assert [row[:2] for row in rows[1:4]] == [(f"layers.{i}", "layer") for i in range(3)]
    actor.layers[1].norm.register_forward_hook(lambda *_: None)
    rows = explain(actor, OBS)
    assert ("layers.1", "pure", "somebody listens to this CaReBN, by a hook") in rows
    assert rows[-1][1] == "module"
    assert "layers.1         pure   somebody listens to this CaReBN, by a hook" in str(rows)
    for name, value in actor.state_dict().items():
        assert torch.equal(value, state[name]), name
    with pure():
        assert "inside carebn.kernels.pure()" in str(explain(actor, OBS))


def test_a_user_s_own_normaliser_keeps_the_compiled_layer_if_it_says_what_its_rules_are(monkeypatch):
    """The seams that norm/base documents are asked by the compiled layer too."""
    layer, x = SpikingLayer(6, 13), torch.rand(5, 20, 6)
    layer.norm = OwnCombine(13)
    why = "OwnCombine learns by rules of its own, and does not say that they are functions"
    assert explain(layer, x)[0][1:] == ("pure", why)
    layer.eval()
    assert explain(layer, x)[0][1:] == ("layer", "")
    monkeypatch.setattr(OwnCombine, "rules_are_functions", True)
    layer.train()
    assert [row[1] for row in explain(layer, x)] == ["layer"]
    layer.norm = OwnStatistics(13)
    assert explain(layer, torch.rand(5, 20, 6))[0][1:] == ("pure", "OwnStatistics has its own statistics")


def test_every_decision_is_in_one_file():
    """Nobody else asks what a compiled path may do."""
    from pathlib import Path

    source = Path(router.__file__).parent
    for path in source.rglob("*.py"):
        text = path.read_text()
        if path.name not in ("router.py", "introspection.py") and "deploy" not in path.parts:
            for word in ("_forward_hooks", "is_autocast_enabled", "maybe_current_level", "_C._functorch"):
                assert word not in text, (path, word)

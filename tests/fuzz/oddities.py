"""Everything unusual that may be done to a network, by name: "how what", e.g. "strided linear.bias".

An oddity that has nothing to do in a network (there is no such tensor) leaves it as it is.
"""

import random
import types
from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.modules import module as global_hooks
from torch.nn.utils import parametrizations, parametrize, prune

from carebn.network import SpikingLayer
from carebn.neuron import Neuron, Surrogate
from carebn.norm import Norm


class Workshop:
    """Where a network is worked on: what hooks heard, and what is to be undone."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.heard: list[str] = []
        self.undo: list[Callable[[], None]] = []
        self.obs_changes: list[Callable[[Tensor], Tensor]] = []
        self.array_changes: list[Callable[[NDArray[np.float32]], NDArray[Any]]] = []

    def as_array(self, obs: Tensor) -> NDArray[Any]:
        """The same observations as another kind of array."""
        array: NDArray[Any] = obs.numpy()
        for change in self.array_changes:
            array = change(array)
        return array

    def close(self) -> None:
        while self.undo:
            self.undo.pop()()


def owners(network: nn.Module, path: str) -> list[tuple[nn.Module, str]]:
    """Modules that hold a tensor of this path's end, e.g. ("linear.bias": every layer's Linear, "bias")."""
    part, _, name = path.rpartition(".")
    return [
        (module, name)
        for where, module in network.named_modules()
        if ("." + where).endswith("." + part) and isinstance(getattr(module, name, None), Tensor)
    ]


def parts(network: nn.Module, part: str) -> list[nn.Module]:
    """Modules of this name; "layer" and "network" are the layers and the whole."""
    if part == "network":
        return [network]
    if part == "layer":
        return [module for module in network.modules() if isinstance(module, SpikingLayer)]
    return [module for where, module in network.named_modules() if ("." + where).endswith("." + part)]


def set_tensor(module: nn.Module, name: str, value: Tensor) -> None:
    """In place of the parameter or buffer that is there, whatever shape, dtype or strides it has."""
    old = getattr(module, name)
    if name in module._parameters:
        module._parameters[name] = nn.Parameter(value.detach(), requires_grad=old.requires_grad)
    elif name in module._buffers:
        module._buffers[name] = value.detach()


# --- tensors: how they lie in memory, of what type, shape and value --------------------------------------------------


def _strided(t: Tensor) -> Tensor:
    return torch.stack([t, t + 1 if t.dtype != torch.bool else t], -1)[..., 0]


def _offset(t: Tensor) -> Tensor:
    """Dense, but in the middle of something else and at an odd address."""
    room = torch.full((t.numel() + 5,), 77.0).to(t.dtype)
    room[3 : 3 + t.numel()] = t.flatten()
    return room[3 : 3 + t.numel()].view(t.shape)


def _transposed(t: Tensor) -> Tensor:
    return t.transpose(-1, -2).contiguous().transpose(-1, -2) if t.ndim > 1 else _strided(t)


def _expanded(t: Tensor) -> Tensor:
    return t[:1].clone().expand(t.shape) if t.ndim else t.clone()


def _shrunk(t: Tensor) -> Tensor:
    return t[: max(1, t.shape[0] // 2)].clone() if t.ndim else t.clone()


def _single(t: Tensor) -> Tensor:
    return t[:1].clone() if t.ndim else t.clone()


def _longer(t: Tensor) -> Tensor:
    return torch.cat([t, t[-1:]]) if t.ndim else t.clone()


def _first(t: Tensor, value: float) -> Tensor:
    result = t.clone()
    if t.is_floating_point():
        result.view(-1)[:1] = value
    return result


LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "strided": _strided,
    "offset": _offset,
    "transposed": _transposed,
    "expanded": _expanded,
    "replaced": lambda t: t * 0.75 if t.is_floating_point() else t.clone(),
    "negative": lambda t: torch._neg_view(-t) if t.is_floating_point() else t.clone(),
}
TYPES: dict[str, Callable[[Tensor], Tensor]] = {
    "half": lambda t: t.half() if t.is_floating_point() else t.int(),
    "double": lambda t: t.double(),
}
SHAPES: dict[str, Callable[[Tensor], Tensor]] = {"shrunk": _shrunk, "single": _single, "longer": _longer}
VALUES: dict[str, Callable[[Tensor], Tensor]] = {
    "zeroed": torch.zeros_like,
    "zero-first": lambda t: _first(t, 0.0),
    "negated": lambda t: -t,
    "negative-zero": lambda t: _first(t, -0.0),
    "denormal": lambda t: _first(t, 1e-41),
    "1e30": lambda t: _first(t, 1e30),
    "1e38": lambda t: _first(t, 1e38),
    "nan": lambda t: _first(t, float("nan")),
    "inf": lambda t: _first(t, float("inf")),
}
TENSORS = (
    "encoder.mean", "encoder.std", "zscore.running_mean", "zscore.running_var", "linear.weight", "linear.bias",
    "norm.weight", "norm.bias", "norm.running_mean", "norm.running_var", "norm.error_mean", "norm.error_var",
    "norm.step_scale", "norm.num_batches_tracked", "decoder.weight", "decoder.bias", "decoder.belongs", "bounds.low",
    "bounds.reach", "bounds.middle", "readout.weight", "readout.bias", "connections.weight",
)  # fmt: skip


def _on_tensor(how: Callable[[Tensor], Tensor]) -> Callable[[nn.Module, Workshop, str], None]:
    def change(network: nn.Module, workshop: Workshop, path: str) -> None:
        found = owners(network, path)
        if found:
            module, name = workshop.rng.choice(found)
            set_tensor(module, name, how(getattr(module, name).detach()))

    return change


def _shared(network: nn.Module, workshop: Workshop, path: str) -> None:
    """Two layers with one tensor."""
    found = owners(network, path)
    for module, name in found[1:]:
        first = getattr(found[0][0], name)
        if getattr(module, name).shape == first.shape:
            held = module._parameters if name in module._parameters else module._buffers
            held[name] = first


def _assigned(network: nn.Module, workshop: Workshop, path: str) -> None:
    """``load_state_dict(assign=True)`` with one tensor that is not dense."""
    state = {name: t.detach().clone() for name, t in network.state_dict().items()}
    ends = [name for name in state if ("." + name).endswith("." + path)]
    for name in ends:
        state[name] = _strided(state[name])
    network.load_state_dict(state, assign=True)


# --- overridden code -------------------------------------------------------------------------------------------------


def _pair(result: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    return result[0] * 1.25 + 0.125, result[1] * 1.5


def _after_update(original: Callable[..., Any], self: Any, *args: Any) -> None:
    original(*args)
    self.running_mean.add_(0.125)


def _other_start(original: Callable[..., Any], self: Any, *args: Any) -> Any:
    return type(state := original(*args))(*(part + 0.125 for part in state))


def _warming_up(original: Callable[..., Any], self: Any, var: Tensor) -> tuple[Tensor, Tensor]:
    scale, offset = original(var)
    return scale * min(1.0, 0.25 + int(self.num_batches_tracked) / 4), offset


def _between(original: Callable[..., Any], self: Any, var: Tensor) -> tuple[Tensor, Tensor]:
    """The batch's variance and the moving one."""
    return original((var + self.running_var.to(var.dtype)) / 2)  # type: ignore[no-any-return]


def _halfway(original: Callable[..., Any], self: Any, mean: Tensor, var: Tensor, *sizes: Any) -> None:
    """In the precision of the statistics, as the pure path gives them."""
    self.running_mean.lerp_(mean, 0.5)
    self.running_var.lerp_(var, 0.5)


def _refusing(original: Callable[..., Any], self: Any, *args: Any) -> Any:
    raise ValueError("an override that refuses")


# what is done in place of the original, which is bound already; there may be several ways, named after a tilde
OVERRIDES: dict[str, Callable[..., Any]] = {
    "norm.combine": lambda original, self, *args: _pair(original(*args)),
    "norm.statistics": lambda original, self, *args: _pair(original(*args)),
    "norm.forward": lambda original, self, x: original(x) * 1.25,
    "norm.scale_offset": lambda original, self, var: _pair(original(var)),
    "norm.scale_shift": lambda original, self, *args: _pair(original(*args)),
    "norm.moving_scale_shift": lambda original, self: _pair(original()),
    "norm.scale_offset~warming-up": _warming_up,
    "norm.scale_offset~between": _between,
    "norm.update": _after_update,
    "norm.update~halfway": _halfway,
    "norm.observe": _after_update,
    "norm.check_input": _refusing,
    "norm.check_batch": _refusing,
    "norm.uses_batch": lambda original, self: True,
    "norm.samples_per_statistic": lambda original, self, *args: original(*args) + 1,
    "linear.forward": lambda original, self, x: original(x) * 1.25 + 0.125,
    "linear._call_impl": lambda original, self, x: original(x) * 1.25,
    "norm._call_impl": lambda original, self, x: original(x) * 1.25,
    "neuron._call_impl": lambda original, self, x: 1 - original(x),
    "layer._call_impl": lambda original, self, *args: 1 - original(*args),
    "neuron.step": lambda original, self, current, state: original(current * 1.25, state),
    "neuron.scan": lambda original, self, x: original(x * 1.25),
    "neuron.initial_state": _other_start,
    "neuron.forward": lambda original, self, x: 1 - original(x),
    "neuron.check_steps": _refusing,
    "encoder.stimulation": lambda original, self, *args: original(*args) * 0.75,
    "encoder.spikes": lambda original, self, *args: 1 - original(*args),
    "encoder.forward": lambda original, self, *args: original(*args) * 0.5,
    "zscore.forward": lambda original, self, x: original(x) * 0.5,
    "decoder.forward": lambda original, self, x: original(x) + 0.25,
    "decoder.read": lambda original, self, *args: original(*args) + 0.25,
    "bounds.forward": lambda original, self, x: original(x) * 0.5,
    "bounds.clip": lambda original, self, x: original(x) * 0.5,
    "readout.forward": lambda original, self, x: original(x) + 0.25,
    "connections.forward": lambda original, self, x: original(x) + 0.25,
    "layer.forward": lambda original, self, *args: 1 - original(*args),
    "network.forward": lambda original, self, *args: original(*args) * 0.5,
    "network.potential": lambda original, self, *args: original(*args) + 0.25,
}


def _subclass(network: nn.Module, workshop: Workshop, path: str) -> None:
    part, _, method = path.partition("~")[0].rpartition(".")
    change = OVERRIDES[path]
    found = [module for module in parts(network, part) if hasattr(type(module), method)]
    if not found:
        return
    module = workshop.rng.choice(found)
    base = type(module)

    def overriding(self: Any, *args: Any) -> Any:
        return change(types.MethodType(getattr(base, method), self), self, *args)

    module.__class__ = type(f"Own{base.__name__}", (base,), {method: overriding})


def _instance(network: nn.Module, workshop: Workshop, path: str) -> None:
    """The method of one object replaced."""
    part, _, method = path.partition("~")[0].rpartition(".")
    change = OVERRIDES[path]
    found = [module for module in parts(network, part) if hasattr(module, method)]
    if found:
        module = workshop.rng.choice(found)
        original = getattr(module, method)
        setattr(module, method, lambda *args: change(original, module, *args))


def _surrogate(network: nn.Module, workshop: Workshop, how: str) -> None:
    """A surrogate of the user's own: another slope, or another threshold."""
    neurons = [module for module in network.modules() if isinstance(module, Neuron)]
    if not neurons:
        return
    neuron = workshop.rng.choice(neurons)
    old = neuron.surrogate
    base = type(old)
    if how == "instance-slope":
        object.__setattr__(old, "slope", lambda x: base.slope(old, x) * 1.5)
        return
    methods: dict[str, Any] = {
        "slope": {"slope": lambda self, x: base.slope(self, x) * 1.5},
        "call": {"__call__": lambda self, x: base.__call__(self, x + 0.125)},
    }
    own = type(f"Own{base.__name__}", (base,), methods[how])
    neuron.surrogate = own(**{f.name: getattr(old, f.name) for f in fields(old)})


def _attribute(network: nn.Module, workshop: Workshop, what: str) -> None:
    """A constant set to another value."""
    part, _, rest = what.partition(".")
    name, _, value = rest.partition("=")
    found = [module for module in parts(network, part) if hasattr(module, name)]
    if found:
        setattr(workshop.rng.choice(found), name, _number(value))


def _number(text: str) -> Any:
    if text == "None":
        return None
    try:
        return float(text) if "." in text or "e-" in text else int(text)
    except ValueError:
        return text


ATTRIBUTES = (
    "norm.eps=0.0", "norm.eps=0.5", "norm.momentum=None", "norm.momentum=0.0", "norm.momentum=1.0",
    "neuron.v_threshold=0.75", "neuron.v_threshold=0.0", "neuron.v_threshold=-0.25", "neuron.decay=0.25",
    "neuron.current_decay=0.25", "neuron.theta_u=0.25", "encoder.threshold=0.5", "encoder.subtract=0.5",
    "encoder.coding=analogue", "decoder.readout=rate", "decoder.readout=max-membrane", "readout.kind=count",
    "norm.track_running_stats=0", "zscore.clip=0.5", "norm.training=0", "norm.training=1", "encoder.observation=raw",
    "encoder.observation=tanh", "encoder.time_steps=1", "encoder.time_steps=3", "layer.time_steps=2", "norm.eps=1e-9",
)  # fmt: skip

# --- listeners -------------------------------------------------------------------------------------------------------


def _scaled(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_scaled(v) for v in value)
    return value * 1.25 if isinstance(value, Tensor) and value.is_floating_point() else value


def _listener(workshop: Workshop, kind: str, silent: bool, only: type | None = None) -> Callable[..., Any]:
    """A hook that notes its call; unless silent, it also changes what it was shown by a quarter."""

    def listen(module: nn.Module, *args: Any) -> Any:
        if only is not None and not isinstance(module, only):
            return None
        workshop.heard.append(f"{kind} {type(module).__name__}")
        if silent:
            return None
        return _scaled(args[-1] if kind == "forward" else args[0])

    return listen


HOOKS: dict[str, str] = {
    "forward": "register_forward_hook",
    "before-forward": "register_forward_pre_hook",
    "backward": "register_full_backward_hook",
    "before-backward": "register_full_backward_pre_hook",
}
GLOBAL_HOOKS: dict[str, str] = {
    "forward": "register_module_forward_hook",
    "before-forward": "register_module_forward_pre_hook",
    "backward": "register_module_full_backward_hook",
    "before-backward": "register_module_full_backward_pre_hook",
}
HOOKED = ("linear", "norm", "neuron", "layer", "encoder", "zscore", "decoder", "bounds", "readout", "network")


def _hook(network: nn.Module, workshop: Workshop, what: str, silent: bool = False) -> None:
    kind, _, part = what.partition(" ")
    found = parts(network, part)
    if found:
        module = workshop.rng.choice(found)
        handle = getattr(module, HOOKS[kind])(_listener(workshop, kind, silent))
        workshop.undo.append(handle.remove)


def _watch(network: nn.Module, workshop: Workshop, what: str) -> None:
    _hook(network, workshop, what, silent=True)


GLOBALLY = {"linear": nn.Linear, "norm": Norm, "neuron": Neuron, "layer": SpikingLayer}


def _global_hook(network: nn.Module, workshop: Workshop, what: str) -> None:
    kind, _, part = what.partition(" ")
    hook = _listener(workshop, kind, False, GLOBALLY[part])
    workshop.undo.append(getattr(global_hooks, GLOBAL_HOOKS[kind])(hook).remove)


def _gradient_hook(network: nn.Module, workshop: Workshop, path: str) -> None:
    """Hooks on a parameter itself."""
    for module, name in owners(network, path):
        parameter = getattr(module, name)
        if parameter.requires_grad:
            parameter.register_hook(lambda grad: grad * 1.25)
        if parameter.requires_grad and parameter.is_leaf:
            parameter.register_post_accumulate_grad_hook(lambda p: workshop.heard.append("accumulated"))


# --- parameters that are made from others ----------------------------------------------------------------------------


class _Doubling(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return 1.5 * x


def _parametrised(network: nn.Module, workshop: Workshop, path: str) -> None:
    for module, name in owners(network, path)[:2]:
        if name in module._parameters:
            parametrize.register_parametrization(module, name, _Doubling())


def _remade(network: nn.Module, workshop: Workshop, how: str) -> None:
    """weight_norm and spectral_norm of one Linear, as torch makes them today and as it did before."""
    found = [module for module in parts(network, "linear") if "weight" in module._parameters]
    if found:
        module = workshop.rng.choice(found)
        tools = {
            "weight_norm": parametrizations.weight_norm,
            "spectral_norm": parametrizations.spectral_norm,
            "old_weight_norm": nn.utils.weight_norm,
            "old_spectral_norm": nn.utils.spectral_norm,
        }
        tools[how](module)


def _pruned(network: nn.Module, workshop: Workshop, path: str) -> None:
    for module, name in owners(network, path)[:1]:
        if name in module._parameters:
            t = getattr(module, name)
            mask = (torch.arange(t.numel()) % 3 != 0).to(t.dtype).view(t.shape)
            prune.custom_from_mask(module, name, mask)


def _attached(network: nn.Module, workshop: Workshop, path: str) -> None:
    """A plain tensor in place of the parameter, made from another parameter: what hypernetworks do."""
    for module, name in owners(network, path)[:1]:
        if name in module._parameters:
            base = module._parameters.pop(name)
            module.register_parameter(f"base_{name}", base)
            setattr(module, name, base * 1.5)


MADE = ("linear.weight", "linear.bias", "norm.weight", "norm.bias", "encoder.mean", "encoder.std", "decoder.weight",
        "decoder.bias", "readout.weight")  # fmt: skip

# --- modules and observations ----------------------------------------------------------------------------------------


def _module_to(dtype: torch.dtype) -> Callable[[nn.Module, Workshop, str], None]:
    def move(network: nn.Module, workshop: Workshop, part: str) -> None:
        found = parts(network, part)
        if found:
            workshop.rng.choice(found).to(dtype)

    return move


def _swapped(network: nn.Module, workshop: Workshop, part: str) -> None:
    """Another module of the same kind in its place."""
    found = [
        (module, name)
        for module in network.modules()
        for name, child in module.named_children()
        if name == part and isinstance(child, nn.Module)
    ]
    if not found:
        return
    module, name = workshop.rng.choice(found)
    old = getattr(module, name)
    if isinstance(old, nn.Linear) and type(old) is nn.Linear:
        new = nn.Linear(old.in_features, old.out_features, bias=old.bias is not None, dtype=old.weight.dtype)
        with torch.no_grad():
            new.weight.copy_(old.weight * 0.5)
            if old.bias is not None:
                new.bias.copy_(old.bias + 0.125)
        setattr(module, name, new)
    elif isinstance(old, Norm):
        like = old.running_mean if old.running_mean is not None else torch.empty(0)
        setattr(module, name, nn.BatchNorm1d(old.num_features, dtype=like.dtype))
    elif isinstance(old, Neuron):
        setattr(module, name, nn.Sequential(old))


def _obs_values(network: nn.Module, workshop: Workshop, what: str) -> None:
    def change(x: Tensor) -> Tensor:
        x = x.clone()
        if what == "constant":
            x[..., 0] = 0.5
        elif what == "all-constant":
            x[:] = 0.25
        elif what == "negative-zero":
            x[..., 0] = -0.0
        elif what == "denormal":
            x[..., 0] *= 1e-41
        elif what in ("1e30", "1e38"):
            x[..., 0] *= float(what)
        elif what == "large-mean":
            x += 1000.0
        elif what in ("nan", "inf"):
            x.view(-1)[-1] = float(what)
        return x

    workshop.obs_changes.append(change)


def _obs_shape(network: nn.Module, workshop: Workshop, what: str) -> None:
    changes: dict[str, Callable[[Tensor], Tensor]] = {
        "fewer": lambda x: x[..., : max(1, x.shape[-1] * 2 // 3)],
        "more": lambda x: torch.cat([x, x], -1),
        "no-batch": lambda x: x[..., :0, :],
        "one-row": lambda x: x[..., :1, :],
        "flat": lambda x: x[0],
        "deeper": lambda x: x[None],
        "expanded": lambda x: x[..., :1, :].expand_as(x),
        "less-time": lambda x: x[:-1] if x.ndim == 3 and len(x) > 1 else x,
    }
    workshop.obs_changes.append(changes[what])


def _read_only(x: NDArray[np.float32]) -> NDArray[np.float32]:
    x = x.copy()
    x.flags.writeable = False
    return x


ARRAYS: dict[str, Callable[[NDArray[np.float32]], NDArray[Any]]] = {
    "read-only": _read_only,
    "backwards": lambda x: x[::-1].copy()[::-1],
    "byte-order": lambda x: x.astype(">f4"),
    "wide": lambda x: x.astype(np.float64),
    "objects": lambda x: x.astype(object),
    "fortran": np.asfortranarray,
}


def _obs_array(network: nn.Module, workshop: Workshop, what: str) -> None:
    """The numbers as they are, in an array that nobody expects; for acting, which takes arrays."""
    workshop.array_changes.append(ARRAYS[what])


# --- memory and code that change without a trace, and settings of torch ----------------------------------------------


def _unnoticed(network: nn.Module, workshop: Workshop, path: str) -> None:
    """Other numbers in the same memory, past torch's count of changes."""
    for module, name in owners(network, path)[-1:]:
        t = getattr(module, name)
        if t.is_floating_point():
            t.data.mul_(0.75)


def _exchanged(network: nn.Module, workshop: Workshop, path: str) -> None:
    """The same tensor with other memory."""
    for module, name in owners(network, path)[-1:]:
        t = getattr(module, name)
        if t.is_floating_point() and t.is_leaf:
            t.data = t.data * 0.75


CALLED = {"linear": nn.Linear, "module": nn.Module, "surrogate": Surrogate, "neuron": Neuron, "norm": Norm}


def _call(network: nn.Module, workshop: Workshop, part: str) -> None:
    """Another way of calling, on a class that many inherit from."""
    owner = CALLED[part]
    inherited, call = "__call__" not in vars(owner), owner.__call__

    def calling(self: Any, *args: Any, **options: Any) -> Any:
        result = call(self, *args, **options)
        return result * 0.75 if isinstance(self, (nn.Linear, Surrogate)) else result

    owner.__call__ = calling
    workshop.undo.append(
        (lambda: delattr(owner, "__call__")) if inherited else (lambda: setattr(owner, "__call__", call))
    )


def _setting(network: nn.Module, workshop: Workshop, what: str) -> None:
    if what == "deterministic":
        torch.use_deterministic_algorithms(True)
        workshop.undo.append(lambda: torch.use_deterministic_algorithms(False))
    elif what == "flush":
        torch.set_flush_denormal(True)
        workshop.undo.append(lambda: torch.set_flush_denormal(False))
    elif what == "wide-default":
        torch.set_default_dtype(torch.float64)
        workshop.undo.append(lambda: torch.set_default_dtype(torch.float32))
    else:  # what is kept for the backward pass is kept by somebody else
        hooks = torch.autograd.graph.saved_tensors_hooks(lambda t: (t.clone(), t.dtype), lambda kept: kept[0])
        hooks.__enter__()
        workshop.undo.append(lambda: hooks.__exit__())


OBS_VALUES = ("constant", "all-constant", "negative-zero", "denormal", "1e30", "1e38", "large-mean", "nan", "inf")
OBS_SHAPES = ("fewer", "more", "no-batch", "one-row", "flat", "deeper", "expanded", "less-time")

# --- the table -------------------------------------------------------------------------------------------------------

Change = Callable[[nn.Module, Workshop, str], None]


def _bearing(value: str) -> tuple[str, ...]:
    """Tensors that may hold such values. A bias of 1e30 drowns what the normaliser behind it would bring back. Kernels
    never add it there, so that they know better than the pure path, and the two cannot be compared."""
    return tuple(path for path in TENSORS if not (value.startswith("1e") and path == "linear.bias"))


FAMILIES: dict[str, tuple[Change, tuple[str, ...]]] = {
    **{name: (_on_tensor(how), TENSORS) for name, how in {**LAYOUTS, **TYPES, **SHAPES}.items()},
    **{f"value-{name}": (_on_tensor(how), _bearing(name)) for name, how in VALUES.items()},
    "shared": (_shared, TENSORS),
    "assigned": (_assigned, TENSORS),
    "subclass": (_subclass, tuple(OVERRIDES)),
    "instance": (_instance, tuple(OVERRIDES)),
    "surrogate": (_surrogate, ("slope", "call", "instance-slope")),
    "attribute": (_attribute, ATTRIBUTES),
    "hook": (_hook, tuple(f"{kind} {part}" for kind in HOOKS for part in HOOKED)),
    "watch": (_watch, tuple(f"{kind} {part}" for kind in HOOKS for part in HOOKED)),
    "global-hook": (_global_hook, tuple(f"{kind} {part}" for kind in GLOBAL_HOOKS for part in GLOBALLY)),
    "gradient-hook": (_gradient_hook, MADE),
    "parametrised": (_parametrised, MADE),
    "remade": (_remade, ("weight_norm", "spectral_norm", "old_weight_norm", "old_spectral_norm")),
    "pruned": (_pruned, MADE),
    "attached": (_attached, MADE),
    "module-double": (_module_to(torch.float64), ("norm", "linear", "encoder", "decoder", "layer", "bounds", "zscore")),
    "swapped": (_swapped, ("linear", "norm", "neuron")),
    "obs-value": (_obs_values, OBS_VALUES),
    "obs-shape": (_obs_shape, OBS_SHAPES),
    "obs-array": (_obs_array, tuple(ARRAYS)),
    "unnoticed": (_unnoticed, TENSORS),
    "exchanged": (_exchanged, TENSORS),
    "call": (_call, tuple(CALLED)),
    "setting": (_setting, ("deterministic", "flush", "wide-default", "saved-tensors")),
}
# Beside every oddity: what may also happen between two calls.
TO_DOUBLE, TO_SINGLE = "module-double network", "module-float network"
CHANGES = (
    "none", TO_DOUBLE, TO_SINGLE, "mode flip", "step all", "thaw all", "freeze all",
    "deepcopy all",
)  # fmt: skip
# Tensors that may be changed in place between forward and backward.
MEDDLES = (
    "linear.weight", "linear.bias", "norm.weight", "norm.bias", "encoder.mean", "encoder.std", "decoder.weight",
    "readout.weight",
)  # fmt: skip
# What a folded network need not follow: it is made of numbers and has nothing to hook, and a map that inference
# does not use is not asked for.
NOT_WHEN_FOLDED = (
    "hook", "watch", "global-hook", "instance", "subclass norm.moving_scale_shift", "subclass norm.scale_shift",
    "subclass norm.check", "subclass neuron.check", "subclass encoder.forward", "obs-", "gradient-hook", "call",
    "setting",
)  # fmt: skip

_PARTS: dict[str, tuple[str, ...]] = {
    "actor": ("readout",),
    "qnet": ("encoder", "zscore", "decoder", "bounds", "connections", "network.potential"),
    "layer": ("encoder", "zscore", "decoder", "bounds", "connections", "readout", "network"),
    "neuron": ("encoder", "zscore", "decoder", "bounds", "connections", "readout", "network", "layer", "linear",
               "norm", "remade", "assigned"),
    "norm": ("encoder", "zscore", "decoder", "bounds", "connections", "readout", "network", "layer", "linear",
             "neuron", "surrogate", "remade"),
    "encoder": ("decoder", "bounds", "connections", "readout", "network", "layer", "linear", "norm", "neuron",
                "surrogate", "remade"),
}  # fmt: skip


def _all_names() -> Iterator[str]:
    for family, (_, targets) in FAMILIES.items():
        for target in targets:
            yield f"{family} {target}"


def oddities_for(kind: str) -> list[str]:
    """Those that have something to do in a network of this kind, as far as the name says."""
    absent = set(_PARTS[kind])

    def present(name: str) -> bool:
        family, _, target = name.partition(" ")
        return not (
            family in absent
            or target in absent
            or target.split(".")[0].split("=")[0] in absent
            or target.rpartition(" ")[2] in absent
        )

    return [name for name in _all_names() if present(name)]


def apply_oddity(name: str, network: nn.Module, workshop: Workshop) -> None:
    family, _, target = name.partition(" ")
    change, targets = FAMILIES[family]
    if target not in targets:
        raise ValueError(f"no oddity {name!r}")
    change(network, workshop, target)

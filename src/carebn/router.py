"""The one place that decides which path runs, and why.

A compiled path reads memory and runs no Python, so it may stand for a network only where the network is exactly what
the path was written for. Every question here is answered with a plan (what a kernel needs to know) or with a sentence
that says why the pure-torch path runs instead. Asked are:

    code        every method that a kernel replaces is the one that it was written for: not overridden by a subclass,
                not replaced on the class or the instance
    listeners   no hook, of the module or global, and no mode of torch that watches or changes operations
    memory      every tensor dense, on the CPU, of the right precision and exactly the right shape
    options     the neuron's family, the surrogate, the coding, the read-out, the number of rows

The classes themselves are not known here: they say with ``@stands_for(role, ...)`` which of their methods and tensors
the kernels take the place of. ``carebn.kernels.explain(network, obs)`` tells which path each part of a network takes.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from carebn.kernels import packed_lanes, scan
from carebn.kernels.plans import LayerPlan, MovingRule, NeuronSpec, StackLayer, enabled, told

FEWEST_ROWS = 256  # time steps × batch below which the stack's tables cost more than they save
PRECISIONS = (torch.float32, torch.float64)

# --- code ------------------------------------------------------------------------------------------------------------

_MISSING = object()
_CALLS = ("__call__", "__getattr__", "__getattribute__")  # how a module is called and its attributes are found
_code: dict[str, dict[type, dict[str, Any]]] = {"linear": {nn.Linear: {}}}
_found: dict[tuple[str, type], dict[str, Any] | None] = {}

AnyClass = TypeVar("AnyClass", bound=type)


def stands_for(role: str, methods: str, data: str = "") -> Callable[[AnyClass], AnyClass]:
    """The compiled paths take the place of these methods of the class, and read these of its attributes as plain data:
    a class that defines one of them as a property is something else."""

    def note(cls: AnyClass) -> AnyClass:
        own = {name: getattr(cls, name) for name in methods.split()}
        _code.setdefault(role, {})[cls] = own | dict.fromkeys(data.split(), _MISSING)
        return cls

    return note


stands_for("linear", "forward", "weight bias in_features out_features")(nn.Linear)


def _changed(thing: Any, role: str) -> str:
    """Why the code of this module (or surrogate) is not what the kernels were written for; empty if it is."""
    kind = type(thing)
    key = role, kind
    if key not in _found:
        known = _code.get(role, {})
        stood_for = next((cls for cls in kind.__mro__ if cls in known), None)
        calls = stood_for is not None and all(getattr(kind, n, None) is getattr(stood_for, n, None) for n in _CALLS)
        _found[key] = known[stood_for] if stood_for is not None and calls else None
    code = _found[key]
    if code is None:
        return f"a {kind.__name__} is nothing that a compiled {role} is known for"
    own = thing.__dict__
    for name, function in code.items():
        if getattr(kind, name, _MISSING) is not function:
            return f"{kind.__name__} has its own {name}"
        if name in own and function is not _MISSING:
            return f"the {name} of this {kind.__name__} was replaced"
    return ""


def _watched(module: nn.Module) -> str:
    own = module.__dict__
    if (
        own["_forward_hooks"]
        or own["_forward_pre_hooks"]
        or own.get("_backward_hooks")
        or own.get("_backward_pre_hooks")
    ):
        return f"somebody listens to this {type(module).__name__}, by a hook"
    return ""


def _exactly(module: nn.Module, role: str) -> str:
    return _changed(module, role) or _watched(module)


def _only_linear(module: nn.Module) -> str:
    if type(module) is not nn.Linear:
        return f"{type(module).__name__} is not torch's own Linear"
    return _exactly(module, "linear")


_GLOBAL_HOOKS = tuple(
    hooks
    for name in ("forward_hooks", "forward_pre_hooks", "backward_hooks", "backward_pre_hooks")
    if (hooks := getattr(nn.modules.module, f"_global_{name}", None)) is not None
)


# --- modes -----------------------------------------------------------------------------------------------------------


def _private(owner: Any, *names: str) -> Any:
    """A function that torch does not promise to keep, or None."""
    for name in names:
        owner = getattr(owner, name, None)
    return owner


_is_tracing: Callable[[], bool] = torch.jit.is_tracing  # type: ignore[attr-defined]  # public, and left out of its types
_transform_level = _private(torch, "_C", "_functorch", "maybe_current_level")
_dispatch_modes = _private(torch, "_C", "_len_torch_dispatch_stack")
_function_modes = _private(torch, "_C", "_len_torch_function_stack")


def _wrapped(x: Tensor) -> bool:
    """Whether x is a stand-in of torch.func's transforms, which has no memory of its own."""
    try:
        x.data_ptr()
    except RuntimeError:
        return True
    return False


def _mode() -> str:
    """Why no kernel may run here and now, whatever the network."""
    if torch.compiler.is_compiling() or _is_tracing():  # first: a compiler then need not look at the rest
        return "torch is compiling or tracing"
    if not enabled.get():
        return "inside carebn.kernels.pure()"
    if torch.is_autocast_enabled("cpu"):
        return "inside torch.autocast"
    if _transform_level is not None and _transform_level():
        return "inside a transform of torch.func"
    if getattr(torch.autograd.forward_ad, "_current_level", -1) >= 0:
        return "inside forward-mode differentiation"
    if (_dispatch_modes is not None and _dispatch_modes()) or (_function_modes is not None and _function_modes()):
        return "a mode of torch watches or changes operations (also torch.device(...) as a context)"
    for hooks in _GLOBAL_HOOKS:
        if hooks:
            return "somebody listens to all modules, by a global hook"
    return ""


# --- memory ----------------------------------------------------------------------------------------------------------


def _not_dense(x: Any, name: str, dtype: torch.dtype, *shape: int) -> str:
    """Why a kernel cannot read this tensor as so many numbers in a row; empty if it can."""
    if type(x) is not Tensor and type(x) is not nn.Parameter:
        return f"{name} is a {type(x).__name__}, not a plain tensor"
    if x.dtype is not dtype:
        return f"{name} is {x.dtype}, not {dtype}"
    if x.shape != shape:
        return f"{name} has the shape {tuple(x.shape)}, not {shape}"
    if not (x.is_cpu and x.layout is torch.strided and x.is_contiguous()) or x.is_neg():
        return f"{name} does not lie in the CPU's memory in one piece"
    return "inside a transform of torch.func" if _transform_level is None and _wrapped(x) else ""


def _unfit(x: Tensor) -> str:
    """Why a kernel cannot take this input, whose layout may be any."""
    if type(x) is not Tensor and type(x) is not nn.Parameter:
        return f"the input is a {type(x).__name__}, not a plain tensor"
    if not x.is_cpu or x.layout is not torch.strided:
        return "the input does not lie in the CPU's memory"
    if x.dtype not in PRECISIONS:
        return f"the input is {x.dtype}"
    if x.numel() == 0:
        return "the input is empty"
    return "inside a transform of torch.func" if _transform_level is None and _wrapped(x) else ""


def _not_numbers(**values: Any) -> str:
    for name, value in values.items():
        if not isinstance(value, (int, float)):
            return f"{name} is a {type(value).__name__}, not a number"
    return ""


def _overlapping(written: tuple[Tensor, ...], read: tuple[Tensor, ...]) -> bool:
    """Whether something that is written shares memory with anything else."""
    spans = sorted((t.data_ptr(), t.data_ptr() + t.numel() * t.element_size(), i < len(written))
                   for i, t in enumerate((*written, *read)))  # fmt: skip
    end, mine = 0, False
    for start, stop, is_written in spans:
        if start < end and (is_written or mine):
            return True
        if stop > end:
            end, mine = stop, is_written
    return False


# --- neurons, norms, layers ------------------------------------------------------------------------------------------


def _spec(neuron: nn.Module) -> NeuronSpec | str:
    reason = _exactly(neuron, "neuron") or _changed(neuron.surrogate, "surrogate")
    if reason:
        return reason
    spec: NeuronSpec = neuron.kernel_spec()  # type: ignore[operator]  # every class of this role has it
    reason = _not_numbers(**{f"constant {i} of the neuron": value for i, value in enumerate(spec.constants)})
    if reason:
        return reason
    return spec if spec.constants[0] >= 0 else "the threshold is below zero: a potential of zero would have fired"


def plan_neuron(neuron: nn.Module, x: Tensor) -> NeuronSpec | str:
    """A neuron by itself, over time."""
    return told(neuron, "scan", _mode() or _unfit(x) or _spec(neuron))


def _statistics(norm: Any, dtype: torch.dtype) -> str:
    """Why a kernel cannot read the norm's moving statistics."""
    n = norm.num_features
    return _not_dense(norm.running_mean, "running_mean", dtype, n) or _not_dense(
        norm.running_var, "running_var", dtype, n
    )


def moving_rule(norm: Any, dtype: torch.dtype | None = None) -> MovingRule | None:
    """How a kernel may update the norm's moving statistics in place of its ``observe``; None: it may not."""
    if _mode() or norm._recorder is not None or _changed(norm, "moving statistics"):
        return None
    if not norm.track_running_stats or not norm.keeps_statistics():
        return None
    rule: MovingRule | None = norm.kernel_rule()
    dtype = dtype or norm.running_mean.dtype
    if rule is None or dtype not in PRECISIONS or _not_numbers(momentum=rule.momentum) or _statistics(norm, dtype):
        return None
    if any(_not_dense(error, "an error estimate", dtype, norm.num_features) for error in rule.errors):
        return None
    if _not_dense(norm.num_batches_tracked, "num_batches_tracked", torch.int64):
        return None
    written = (norm.running_mean, norm.running_var, *rule.errors, norm.num_batches_tracked)
    return None if _overlapping(written, tuple(norm.parameters(recurse=False))) else rule


def _norm_memory(norm: Any, dtype: torch.dtype) -> str:
    """Mixed precisions and odd layouts are left to torch: its rules of promotion are not the kernels'."""
    if not norm.keeps_statistics():
        return f"this {type(norm).__name__} keeps no moving statistics"
    for name, tensor in (*norm._parameters.items(), *norm._buffers.items()):
        if tensor is not None and tensor.is_floating_point():
            reason = _not_dense(tensor, name, dtype, *tensor.shape)
            if reason:
                return f"the norm's {reason}"
            if tensor.ndim and tensor.shape[-1] not in (norm.num_features, getattr(norm, "time_steps", 1), 1):
                return f"the norm's {name} has another size"
            if getattr(tensor, "_backward_hooks", None):  # a layer asks for this gradient twice: both would be heard
                return f"somebody listens to the gradient of the norm's {name}"
    if norm._modules or any(isinstance(value, Tensor) for value in vars(norm).values()):
        return "the norm has modules of its own, or tensors besides its parameters"
    return ""


def _layer(layer: Any, dtype: torch.dtype, features: int) -> LayerPlan | str:
    """What does not depend on the input, but for its width."""
    linear, norm, own_neuron = layer.linear, layer.norm, layer.neuron
    reason = _only_linear(linear) or _exactly_none(norm)
    if reason is None:
        reason = _exactly(norm, "norm") or _norm_memory(norm, dtype) or _not_numbers(eps=norm.eps)
    if reason:
        return reason
    spec = _spec(own_neuron)
    if isinstance(spec, str):
        return spec
    weight, bias = linear.weight, linear.bias
    outputs = weight.shape[0]
    reason = _not_dense(weight, "the weight", dtype, outputs, features)
    reason = reason or ("" if bias is None else _not_dense(bias, "the bias", dtype, outputs))
    if reason:
        return reason
    normalised = not _is_none(norm)
    learning = normalised and norm.training
    cancels = learning and not _changed(norm, "shift-equivariant norm")
    return LayerPlan(weight, bias, norm if normalised else None, learning, spec, cancels)


def _is_none(norm: nn.Module) -> bool:
    return any(cls in _code.get("no norm", {}) for cls in type(norm).__mro__)


def _exactly_none(norm: nn.Module) -> str | None:
    """None if it is a norm."""
    return _exactly(norm, "no norm") if _is_none(norm) else None


def moving_map(norm: Any) -> tuple[Tensor, Tensor]:
    """Scale and shift [Ts, F] of a norm in inference, as its own ``scale_offset`` has them."""
    scale, offset = norm.scale_offset(norm.running_var)
    shift = offset - norm.running_mean * scale
    return scale.reshape(-1, scale.shape[-1]).contiguous(), shift.reshape(-1, shift.shape[-1]).contiguous()


def _given(norm: Any, outputs: int, steps: int) -> tuple[Tensor, Tensor] | str:
    """The map of inference, if kernels can use it: x·scale + shift is (x − mean)·scale + offset where it is finite."""
    try:
        scale, shift = moving_map(norm)
    except RuntimeError as error:  # as the pure path will say again
        return str(error)
    if scale.shape != shift.shape or scale.shape not in ((1, outputs), (steps, outputs)):
        return f"the map of {type(norm).__name__} differs from step to step, or has another size"
    if not torch.isfinite(scale.detach().sum() + shift.detach().sum()):
        return f"the map of {type(norm).__name__} is not finite"
    return scale, shift


def plan_layer(layer: Any, x: Tensor, steps: int) -> LayerPlan | str:
    """A spiking layer by itself. Its own hooks do not matter: it has been called."""
    reason = _mode() or _unfit(x) or _changed(layer, "layer")
    plan = reason or _layer(layer, x.dtype, x.shape[-1])
    if not isinstance(plan, str) and plan.norm is not None and not plan.learning:
        given = _given(plan.norm, plan.weight.shape[0], steps)
        plan = given if isinstance(given, str) else plan._replace(given=given)
    return told(layer, "layer", plan)


# --- the stack -------------------------------------------------------------------------------------------------------


def _stack_layer(layer: Any, stimulation: Tensor, features: int) -> StackLayer | str:
    plan = _exactly(layer, "layer") or _layer(layer, torch.float32, features)
    if isinstance(plan, str):
        return plan
    spec, norm = plan.spec, plan.norm
    if spec.family != scan.LIF:
        return "the stack has LIF and CLIF neurons only"
    if spec.surrogate not in (packed_lanes.RECTANGLE, packed_lanes.TRIANGLE):
        return "the stack has the surrogates rectangle and triangle only"
    if not spec.constants[0] > 0:
        return "the threshold is not above zero"
    if norm is None:
        return StackLayer(plan.weight, plan.bias, spec)
    outputs = plan.weight.shape[0]
    if norm.num_features != outputs:
        return f"the norm is for {norm.num_features} features, not {outputs}"
    if not plan.learning:
        if torch.is_grad_enabled():
            return "gradients through moving statistics"
        given = _given(norm, outputs, 1)
        return given if isinstance(given, str) else StackLayer(plan.weight, plan.bias, spec, given=given)
    if not plain(norm):
        return f"{type(norm).__name__} is not a plain batch norm"
    for name in ("weight", "bias"):
        reason = _not_dense(getattr(norm, name), f"the norm's {name}", torch.float32, outputs)
        if reason:
            return reason
    if not (norm.eps > 0 and torch.isfinite(norm.weight.detach().sum() + norm.bias.detach().sum())):
        return "the norm's map may not be finite"
    return StackLayer(plan.weight, plan.bias, spec, norm, moving_rule(norm, torch.float32))


def plan_stack(actor: Any, stimulation: Tensor) -> list[StackLayer] | str:
    """All layers of an actor at once, on packed spikes, from the encoder's stimulation [B, N] to spike counts."""
    return told(actor, "stack", _mode() or _stack(actor, stimulation), otherwise="parts")


def _stack(actor: Any, stimulation: Tensor) -> list[StackLayer] | str:
    encoder, decoder = actor.encoder, actor.decoder
    reason = _unfit(stimulation) or _changed(encoder, "encoder") or _exactly(decoder, "decoder")
    if reason:
        return reason
    if stimulation.dtype != torch.float32:
        return f"the stack is float32, the input {stimulation.dtype}"
    if encoder.coding != "deterministic":
        return f"the stack has no {encoder.coding} coding"
    if not decoder.reads_counts:
        return f"the read-out {decoder.readout} needs every step's spikes"
    reason = _not_numbers(threshold=encoder.threshold, subtract=encoder.subtract)
    if reason:
        return reason
    if not encoder.threshold > 0:
        return "the encoder's threshold is not above zero"
    if encoder.time_steps * stimulation.shape[0] < FEWEST_ROWS:
        return f"fewer than {FEWEST_ROWS} rows (time steps × batch)"
    parts, features = [], stimulation.shape[1]
    for layer in actor.layers:
        part = _stack_layer(layer, stimulation, features)
        if isinstance(part, str):
            return part
        layer.neuron.check_steps(encoder.time_steps)
        if part.norm is not None:
            part.norm.check_batch(stimulation)
        parts.append(part)
        features = part.weight.shape[0]
    return parts if parts else "there are no layers"


# --- the encoder -----------------------------------------------------------------------------------------------------


def why_not_fields(encoder: Any, obs: Tensor) -> str:
    """The encoder's receptive fields; empty if compiled."""
    size = encoder.obs_dim, encoder.population
    return (
        _mode()
        or _unfit(obs)
        or _changed(encoder, "encoder")
        or ("" if obs.shape[-1] == size[0] else "the observation has another size")
        or _not_dense(encoder.mean, "the encoder's mean", obs.dtype, *size)
        or _not_dense(encoder.std, "the encoder's std", obs.dtype, *size)
    )


# --- acting ----------------------------------------------------------------------------------------------------------


def why_not_here() -> str:
    """Why no kernel may run here and now; for those who have a plan already."""
    return _mode()


def plan_acting(actor: Any) -> list[LayerPlan] | str:
    """A whole actor for a few observations, with moving statistics; what is not asked here is noted with the plan."""
    return told(actor, "act", _mode() or _acting(actor), otherwise="module")


def _acting(actor: Any) -> list[LayerPlan] | str:
    reason = _exactly(actor, "actor")
    if reason:
        return reason
    encoder, decoder, bounds = actor.encoder, actor.decoder, actor.bounds
    for module in actor.modules():
        reason = reason or _watched(module)
    reason = reason or _changed(encoder, "encoder") or _changed(decoder, "decoder") or _changed(bounds, "bounds")
    if reason:
        return reason
    single, outputs = torch.float32, decoder.outputs
    if encoder.coding != "deterministic":
        return f"acting has no {encoder.coding} coding"
    if not decoder.reads_counts:
        return f"the read-out {decoder.readout} needs every step's spikes"
    reason = _not_numbers(threshold=encoder.threshold, subtract=encoder.subtract)
    for name in ("mean", "std"):
        reason = reason or _not_dense(
            getattr(encoder, name), f"the encoder's {name}", single, encoder.obs_dim, encoder.population
        )
    reason = reason or _not_dense(decoder.weight, "the decoder's weight", single, outputs, decoder.population)
    reason = reason or _not_dense(decoder.bias, "the decoder's bias", single, outputs)
    size = outputs * decoder.population, outputs
    reason = reason or _not_dense(decoder.belongs, "which population belongs to which output", single, *size)
    if not reason and not torch.equal(decoder.belongs, decoder.block_diagonal()):
        reason = "the decoder's populations are not its own"
    for name in ("middle", "reach", "low", "high"):
        reason = reason or _not_dense(getattr(bounds, name), f"the bounds' {name}", single, outputs)
    if reason:
        return reason
    plans, features = [], encoder.obs_dim * encoder.population
    for layer in actor.layers:
        plan = _exactly(layer, "layer") or _layer(layer, single, features)
        if isinstance(plan, str):
            return plan
        norm, features = plan.norm, plan.weight.shape[0]
        if norm is not None and norm.num_features != features:
            return f"the norm is for {norm.num_features} features, not {features}"
        if norm is not None and plain(norm):
            reason = _statistics(norm, single)
            for name in ("weight", "bias"):
                reason = reason or _not_dense(getattr(norm, name), f"the norm's {name}", single, features)
            if reason:
                return reason
        layer.neuron.check_steps(encoder.time_steps)
        plans.append(plan._replace(learning=False))
    if not plans:
        return "there are no layers"
    return plans if features == outputs * decoder.population else "the last layer has another size than the decoder"


def acting_roles(actor: Any) -> list[tuple[Any, str]]:
    """Modules of each class in an actor that has been planned, with their roles."""
    first: dict[tuple[type, str], Any] = {}
    parts = [(actor, "actor"), (actor.encoder, "encoder"), (actor.decoder, "decoder"), (actor.bounds, "bounds")]
    for layer in actor.layers:
        norm = "no norm" if _is_none(layer.norm) else "norm"
        parts += [(layer, "layer"), (layer.linear, "linear"), (layer.norm, norm), (layer.neuron, "neuron")]
        if norm == "norm" and plain(layer.norm):
            parts.append((layer.norm, "plain norm"))
    for module, role in parts:
        first.setdefault((type(module), role), module)
    return [(module, role) for (_, role), module in first.items()]


def any_changed(roles: list[tuple[Any, str]]) -> bool:
    """Whether the code of one of these is no longer what the kernels were written for."""
    return any(_changed(module, role) for module, role in roles)


def plain(norm: Any) -> bool:
    """Whether the norm's map is γ·(x − mean)/√(var + ε) + β with pooled statistics, and nothing more."""
    return not _changed(norm, "plain norm") and norm.weight is not None and norm.bias is not None


# --- integrate-and-fire networks -------------------------------------------------------------------------------------


def why_not_integrate(body: Any, x: Tensor, start: Tensor) -> str:
    """A body of integrate-and-fire layers under a constant input; empty if compiled."""
    reason = _mode() or _unfit(x) or _changed(body, "integrate-and-fire body")
    if reason:
        return reason
    features, neurons = x.shape[-1], 0
    for layer in body.layers:
        reason = _changed(layer, "integrate-and-fire layer") or _only_linear(layer.linear)
        if reason:
            return reason
        outputs = layer.linear.weight.shape[0]
        reason = (
            _not_dense(layer.linear.weight, "a weight", x.dtype, outputs, features)
            or _not_dense(layer.linear.bias, "a bias", x.dtype, outputs)
            or _not_dense(layer.threshold, "a threshold", x.dtype, outputs)
        )
        if reason:
            return reason
        features, neurons = outputs, neurons + outputs
    if x.ndim != 2 or start.shape != (len(x), neurons) or start.dtype != x.dtype or not start.is_cpu:
        return "the potentials at the start have another shape or precision"
    return ""

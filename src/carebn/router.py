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

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from carebn.introspection import (
    PRECISIONS,
    changed,
    has_role,
    is_compiling,
    is_moderate,
    keeps_precision,
    listeners,
    mode_of_torch,
    not_dense,
    not_numbers,
    not_numbers_in_memory,
    overlapping,
)
from carebn.kernels import packed_simd, scan
from carebn.kernels.jit import config
from carebn.kernels.plans import LayerPlan, MovingRule, NeuronSpec, StackLayer, enabled, told

LEAST_DEVIATION = 4096  # times the precision: by less than that no kernel divides
FEWEST_ROWS = 256  # time steps × batch below which the stack's tables cost more than they save

# --- code and modes --------------------------------------------------------------------------------------------------


def _exactly(module: nn.Module, role: str) -> str:
    return changed(module, role) or listeners(module)


def _only_linear(module: nn.Module) -> str:
    if type(module) is not nn.Linear:
        return f"{type(module).__name__} is not torch's own Linear"
    return _exactly(module, "linear")


def why_not_here() -> str:
    """Why no kernel may run here and now, whatever the network."""
    reason = is_compiling()  # first: a compiler then need not look at the rest
    reason = reason or ("numba compiles nothing, by NUMBA_DISABLE_JIT" if config.DISABLE_JIT else "")
    return reason or ("" if enabled.get() else "inside carebn.kernels.pure()") or mode_of_torch()


# --- neurons, norms, layers ------------------------------------------------------------------------------------------


def _spec(neuron: nn.Module) -> NeuronSpec | str:
    reason = _exactly(neuron, "neuron") or changed(neuron.surrogate, "surrogate")
    if reason:
        return reason
    spec: NeuronSpec = neuron.kernel_spec()  # type: ignore[operator]  # every class of this role has it
    reason = not_numbers(**{f"constant {i} of the neuron": value for i, value in enumerate(spec.constants)})
    reason = reason or not_numbers(the_surrogates_size=spec.surrogate_size)
    if reason:
        return reason
    if not 0 < spec.surrogate_size < math.inf:
        return "the surrogate has no size"
    return spec if spec.constants[0] >= 0 else "the threshold is below zero: a potential of zero would have fired"


def plan_neuron(neuron: nn.Module, x: Tensor) -> NeuronSpec | str:
    """A neuron by itself, over time."""
    return told(neuron, "scan", why_not_here() or not_numbers_in_memory(x) or _spec(neuron))


def _statistics(norm: Any, dtype: torch.dtype) -> str:
    """Why a kernel cannot read the norm's moving statistics."""
    both, n = {"running_mean": norm.running_mean, "running_var": norm.running_var}, norm.num_features
    return next(filter(None, (not_dense(t, name, dtype, n) for name, t in both.items())), "")


def _map_memory(norm: Any, outputs: int) -> str:
    """Why a kernel cannot read the weight and bias of a plain norm, in float32."""
    both = {"the norm's weight": norm.weight, "the norm's bias": norm.bias}
    return next(filter(None, (not_dense(t, name, torch.float32, outputs) for name, t in both.items())), "")


def moving_rule(norm: Any, dtype: torch.dtype | None = None) -> MovingRule | None:
    """How a kernel may update the norm's moving statistics in place of its ``observe``; None: it may not."""
    if why_not_here() or norm._recorder is not None or changed(norm, "moving statistics"):
        return None
    if not norm.track_running_stats or not norm.keeps_statistics():
        return None
    rule: MovingRule | None = norm.kernel_rule()
    dtype = dtype or norm.running_mean.dtype
    if rule is None or dtype not in PRECISIONS or not_numbers(momentum=rule.momentum) or _statistics(norm, dtype):
        return None
    if any(not_dense(error, "an error estimate", dtype, norm.num_features) for error in rule.errors):
        return None
    if not_dense(norm.num_batches_tracked, "num_batches_tracked", torch.int64):
        return None
    written = (norm.running_mean, norm.running_var, *rule.errors, norm.num_batches_tracked)
    if not torch.is_inference_mode_enabled() and any(tensor.is_inference() for tensor in written):
        return None  # torch lets nobody change these
    return None if overlapping(written, tuple(norm.parameters(recurse=False))) else rule


def _norm_memory(norm: Any, dtype: torch.dtype) -> str:
    """Mixed precisions and odd layouts are left to torch: its rules of promotion are not the kernels'."""
    if not norm.keeps_statistics():
        return f"this {type(norm).__name__} keeps no moving statistics"
    for name, tensor in (*norm._parameters.items(), *norm._buffers.items()):
        if tensor is not None and tensor.is_floating_point():
            reason = not_dense(tensor, name, dtype, *tensor.shape)
            if reason:
                return f"the norm's {reason}"
            if tensor.ndim and tensor.shape[-1] not in (norm.num_features, getattr(norm, "time_steps", 1), 1):
                return f"the norm's {name} has another size"
            if getattr(tensor, "_backward_hooks", None):  # a layer asks for this gradient twice: both would be heard
                return f"somebody listens to the gradient of the norm's {name}"
    if norm._modules or any(isinstance(value, Tensor) for value in vars(norm).values()):
        return "the norm has modules of its own, or tensors besides its parameters"
    return ""


def _layer(layer: Any, dtype: torch.dtype, features: int, learns: bool = True) -> LayerPlan | str:
    """What does not depend on the input, but for its width. Who acts learns nothing, whatever mode a norm is in."""
    linear, norm = layer.linear, layer.norm
    normalised = not has_role(norm, "no norm")
    reason = _only_linear(linear) or ("" if normalised else _exactly(norm, "no norm"))
    if normalised:
        reason = reason or _exactly(norm, "norm") or _norm_memory(norm, dtype) or not_numbers(eps=norm.eps)
        if not reason and not norm.eps >= (LEAST_DEVIATION * torch.finfo(dtype).eps) ** 2:
            reason = f"eps is {norm.eps}: a feature that hardly varies is multiplied by more than {dtype} is precise to"
    if reason:
        return reason
    spec = _spec(layer.neuron)
    if isinstance(spec, str):
        return spec
    if not spec.constants[0] > 0:
        return "the threshold is not above zero: with nothing coming in, rounding would decide"
    weight, bias = linear.weight, linear.bias
    outputs = weight.shape[0]
    reason = not_dense(weight, "the weight", dtype, outputs, features)
    reason = reason or ("" if bias is None else not_dense(bias, "the bias", dtype, outputs))
    if reason:
        return reason
    learning = learns and normalised and norm.training
    cancels = learning and not changed(norm, "shift-equivariant norm")
    own_rules = learning and bool(changed(norm, "known map") or changed(norm, "moving update"))
    if own_rules and not norm.rules_are_functions:
        return f"{type(norm).__name__} learns by rules of its own, and does not say that they are functions"
    return LayerPlan(weight, bias, norm if normalised else None, learning, spec, cancels, own_rules)


def moving_map(norm: Any) -> tuple[Tensor, Tensor]:
    """Scale and shift [Ts, F] of a norm in inference, as its own ``scale_offset`` has them."""
    scale, offset = norm.scale_offset(norm.running_var)
    shift = offset - norm.running_mean.clone() * scale  # a copy: what autograd keeps, nobody may move
    return scale.reshape(-1, scale.shape[-1]).contiguous(), shift.reshape(-1, shift.shape[-1]).contiguous()


def _given(norm: Any, outputs: int, steps: int) -> tuple[Tensor, Tensor] | str:
    """The map of inference, if kernels can use it: x·scale + shift is (x − mean)·scale + offset where it is finite."""
    try:
        scale, shift = moving_map(norm)
    except RuntimeError as error:  # as the pure path will say again
        return str(error)
    if scale.shape != shift.shape or scale.shape not in ((1, outputs), (steps, outputs)):
        return f"the map of {type(norm).__name__} differs from step to step, or has another size"
    if not keeps_precision(shift, shift.dtype):
        return f"the map of {type(norm).__name__} is not finite, or cancels what it multiplies"
    return scale, shift


def plan_layer(layer: Any, x: Tensor, steps: int) -> LayerPlan | str:
    """A spiking layer by itself. Its own hooks do not matter: it has been called."""
    reason = why_not_here() or not_numbers_in_memory(x) or changed(layer, "layer")
    plan = reason or _layer(layer, x.dtype, x.shape[-1])
    if not isinstance(plan, str) and plan.norm is not None and not plan.learning:
        given = _given(plan.norm, plan.weight.shape[0], steps)
        plan = given if isinstance(given, str) else plan._replace(given=given)
    return told(layer, "layer", plan)


# --- the stack -------------------------------------------------------------------------------------------------------


class _StackPart(NamedTuple):
    """A layer of the stack, but for the numbers that training changes."""

    layer: Any
    plan: LayerPlan
    rule: MovingRule | None


def _stack_part(layer: Any, features: int) -> _StackPart | str:
    plan = _exactly(layer, "layer") or _layer(layer, torch.float32, features)
    if isinstance(plan, str):
        return plan
    spec, norm, outputs = plan.spec, plan.norm, plan.weight.shape[0]
    if spec.family != scan.LIF:
        return "the stack has LIF and CLIF neurons only"
    if spec.surrogate not in (packed_simd.RECTANGLE, packed_simd.TRIANGLE):
        return "the stack has the surrogates rectangle and triangle only"
    if norm is not None and norm.num_features != outputs:
        return f"the norm is for {norm.num_features} features, not {outputs}"
    if plan.learning and not is_plain_batch_norm(norm):
        return f"{type(norm).__name__} is not a plain batch norm"
    reason = _map_memory(norm, outputs) if plan.learning else ""
    rule = moving_rule(norm, torch.float32) if plan.learning else None
    return reason or _StackPart(layer, plan, rule)


def _with_numbers(part: _StackPart) -> StackLayer | str:
    """What training changes all the time."""
    plan, norm = part.plan, part.plan.norm
    if not is_moderate(plan.weight):
        return "a weight is NaN, infinite or enormous"
    if norm is None:
        return StackLayer(plan.weight, plan.bias, plan.spec)
    if not plan.learning:
        if torch.is_grad_enabled():
            return "gradients through moving statistics"
        given = _given(norm, plan.weight.shape[0], 1)
        return given if isinstance(given, str) else StackLayer(plan.weight, plan.bias, plan.spec, given=given)
    if not math.isfinite(norm.weight.detach().sum() + norm.bias.detach().sum()):
        return "the norm's map may not be finite"
    return StackLayer(plan.weight, plan.bias, plan.spec, norm, part.rule)


def _other_time(encoder: Any, layer: Any) -> str:
    once = encoder.time_steps == 1 and layer.time_steps != 1
    return "what the encoder gives once, a layer takes as constant over steps of its own" if once else ""


def plan_stack(actor: Any, stimulation: Tensor) -> list[StackLayer] | str:
    """All layers of an actor at once, on packed spikes, from the encoder's stimulation [B, N] to spike counts."""
    return told(actor, "stack", why_not_here() or _stack(actor, stimulation), otherwise="parts")


def _ends(encoder: Any, decoder: Any, path: str) -> str:
    """Why spikes do not go in or come out as this path has them."""
    reason = changed(encoder, "encoder") or _exactly(decoder, "decoder")
    if reason:
        return reason
    if encoder.coding != "deterministic":
        return f"{path} has no {encoder.coding} coding"
    if not decoder.reads_counts:
        return f"the read-out {decoder.readout} needs every step's spikes"
    reason = not_numbers(threshold=encoder.threshold, subtract=encoder.subtract)
    return reason or ("" if math.isfinite(encoder.subtract) else "what a spike of the encoder subtracts is not finite")


def _stack(actor: Any, stimulation: Tensor) -> list[StackLayer] | str:
    reason = not_numbers_in_memory(stimulation)
    if reason:
        return reason
    if stimulation.dtype != torch.float32:
        return f"the stack is float32, the input {stimulation.dtype}"
    encoder, decoder, features = actor.encoder, actor.decoder, stimulation.shape[1]
    remembered, modules = vars(actor).get("_remembered"), (encoder, decoder, *actor.layers)
    parts = None if remembered is None else remembered.answer(modules, features)
    if parts is not None and any(part.layer.neuron.kernel_spec() != part.plan.spec for part in parts):
        parts = None  # something computes its constants
    reason = _ends(encoder, decoder, "the stack") if parts is None else ""
    if reason or not encoder.threshold > 0:
        return reason or "the encoder's threshold is not above zero"
    if encoder.time_steps * stimulation.shape[0] < FEWEST_ROWS:
        return f"fewer than {FEWEST_ROWS} rows (time steps × batch)"
    if parts is None:
        parts, width = [], features
        for layer in actor.layers:
            part = _stack_part(layer, width)
            if isinstance(part, str):
                return part
            parts.append(part)
            width = part.plan.weight.shape[0]
        if remembered is not None and not torch.is_inference_mode_enabled():  # where other tensors may be moved
            remembered.note(modules, features, parts)
    layers = []
    for part in parts:
        layer = _other_time(encoder, part.layer) or _with_numbers(part)
        if isinstance(layer, str):
            return layer
        part.layer.neuron.check_steps(encoder.time_steps)
        if layer.norm is not None:
            layer.norm.check_batch(stimulation)
        layers.append(layer)
    if len({part.plan.learning for part in parts if part.plan.norm is not None}) > 1:
        return "some layers learn, others do not: they may share statistics, which then move in between"
    return layers if layers else "there are no layers"


# --- the encoder -----------------------------------------------------------------------------------------------------


def why_not_fields(encoder: Any, obs: Tensor) -> str:
    """The encoder's receptive fields; empty if compiled."""
    size = encoder.obs_dim, encoder.population
    return (
        why_not_here()
        or not_numbers_in_memory(obs)
        or changed(encoder, "encoder")
        or ("" if obs.shape[-1] == size[0] else "the observation has another size")
        or not_dense(encoder.mean, "the encoder's mean", obs.dtype, *size)
        or not_dense(encoder.std, "the encoder's std", obs.dtype, *size)
    )


# --- acting ----------------------------------------------------------------------------------------------------------


def plan_acting(actor: Any) -> list[LayerPlan] | str:
    """A whole actor for a few observations, with moving statistics; what is not asked here is noted with the plan."""
    return told(actor, "act", why_not_here() or _acting(actor), otherwise="module")


def _acting(actor: Any) -> list[LayerPlan] | str:
    reason = _exactly(actor, "actor")
    if reason:
        return reason
    encoder, decoder, bounds = actor.encoder, actor.decoder, actor.bounds
    for module in actor.modules():
        reason = reason or listeners(module)
    reason = reason or changed(bounds, "bounds") or _ends(encoder, decoder, "acting")
    if reason:
        return reason
    single, outputs = torch.float32, decoder.outputs
    fields, populations = (encoder.obs_dim, encoder.population), (outputs, decoder.population)
    for name, tensor, shape in (
        ("the encoder's mean", encoder.mean, fields),
        ("the encoder's std", encoder.std, fields),
        ("the decoder's weight", decoder.weight, populations),
        ("the decoder's bias", decoder.bias, (outputs,)),
        ("which population belongs to which output", decoder.belongs, (math.prod(populations), outputs)),
        *((f"the bounds' {name}", getattr(bounds, name), (outputs,)) for name in ("middle", "reach", "low", "high")),
    ):
        reason = reason or not_dense(tensor, name, single, *shape)
    if not reason and not torch.equal(decoder.belongs, decoder.block_diagonal().to(single)):
        reason = "the decoder's populations are not its own"
    if reason:
        return reason
    plans, features = [], encoder.obs_dim * encoder.population
    for layer in actor.layers:
        plan = _exactly(layer, "layer") or _other_time(encoder, layer) or _layer(layer, single, features, learns=False)
        if isinstance(plan, str):
            return plan
        norm, features = plan.norm, plan.weight.shape[0]
        if norm is not None and norm.num_features != features:
            return f"the norm is for {norm.num_features} features, not {features}"
        if norm is not None and is_plain_batch_norm(norm):
            reason = _statistics(norm, single) or _map_memory(norm, features)
            if reason:
                return reason
        layer.neuron.check_steps(encoder.time_steps)
        plans.append(plan)
    if not plans:
        return "there are no layers"
    return plans if features == outputs * decoder.population else "the last layer has another size than the decoder"


def is_plain_batch_norm(norm: Any) -> bool:
    """Whether the norm's map is γ·(x − mean)/√(var + ε) + β with pooled statistics, and nothing more."""
    return not changed(norm, "plain norm") and norm.weight is not None and norm.bias is not None


# --- integrate-and-fire networks -------------------------------------------------------------------------------------


def why_not_integrate(body: Any, x: Tensor, start: Tensor) -> str:
    """A body of integrate-and-fire layers under a constant input; empty if compiled."""
    reason = why_not_here() or not_numbers_in_memory(x) or changed(body, "integrate-and-fire body")
    if reason:
        return reason
    features, neurons = x.shape[-1], 0
    for layer in body.layers:
        reason = changed(layer, "integrate-and-fire layer") or _only_linear(layer.linear)
        if reason:
            return reason
        outputs = layer.linear.weight.shape[0]
        reason = (
            not_dense(layer.linear.weight, "a weight", x.dtype, outputs, features)
            or not_dense(layer.linear.bias, "a bias", x.dtype, outputs)
            or not_dense(layer.threshold, "a threshold", x.dtype, outputs)
            or ("" if is_moderate(layer.linear.weight) else "a weight is NaN, infinite or enormous")
        )
        if reason:
            return reason
        features, neurons = outputs, neurons + outputs
    if x.ndim != 2 or start.shape != (len(x), neurons) or start.dtype != x.dtype or not start.is_cpu or start.is_neg():
        return "the potentials at the start have another shape or precision"
    return ""

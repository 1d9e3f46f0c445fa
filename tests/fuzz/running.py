"""What is done with a case's network: one run, on the compiled or on the pure path, and everything that came of it."""

import copy
import math
import os
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor, nn

from carebn.algorithm import DDPG, DDPGOptions
from carebn.deploy.folding import fold
from carebn.deploy.loading import load
from carebn.deploy.runtime import DeployedPolicy
from carebn.kernels import firing_rates, pure
from carebn.network import Critic, PopulationEncoder, SpikingActor
from carebn.network.inference import FastActor
from carebn.neuron import Neuron, Rectangle, Surrogate
from carebn.norm import Norm, recalibrate
from carebn.training.config import TrainConfig
from carebn.training.policy import Policy

from .cases import Case
from .networks import build, laid_out, observations
from .oddities import FAMILIES, TO_DOUBLE, TO_SINGLE, Workshop, apply_oddity, owners


class UnbuildableError(Exception):
    """The oddities of a case exclude each other, so that there is no network to run."""


class RefusedError(Exception):
    """What was asked for is refused by name, which is right."""


@dataclass
class Outcome:
    values: dict[str, Tensor | None] = field(default_factory=dict)
    heard: list[str] = field(default_factory=list)  # the calls of hooks
    raised: str | None = None  # the type of an exception
    message: str = ""
    refused: bool = False


@dataclass
class Recorder:
    """Every decision of a pure run: the distance from the threshold, and from the edges of a surrogate with edges."""

    dtype: torch.dtype
    decisions: list[tuple[Tensor, float | None]] = field(default_factory=list)

    @contextmanager
    def listening(self) -> Iterator[None]:
        fire, encode, recorder = Surrogate.__call__, PopulationEncoder.spikes, self

        def firing(surrogate: Surrogate, x: Tensor) -> Tensor:
            recorder.decisions.append(
                (x.detach().clone(), surrogate.size if isinstance(surrogate, Rectangle) else None)
            )
            return fire(surrogate, x)

        def encoding(encoder: Any, stimulation: Tensor, generator: Any = None) -> Tensor:
            a = stimulation.detach()
            if encoder.coding == "poisson":  # drawn in the precision of the case, whatever that of this run
                uniform = torch.rand(encoder.time_steps, *a.shape, dtype=recorder.dtype).to(a.dtype)
                recorder.decisions.append((a - uniform, None))
                return (uniform < a).to(a.dtype)
            if encoder.coding == "deterministic":
                v = torch.zeros_like(a)
                for _ in range(encoder.time_steps):
                    v = v + a
                    recorder.decisions.append((v - encoder.threshold, None))
                    v = v - (v > encoder.threshold).to(a.dtype) * encoder.subtract
            return encode(encoder, stimulation, generator)

        with mock.patch.object(Surrogate, "__call__", firing), mock.patch.object(PopulationEncoder, "spikes", encoding):
            yield


@dataclass(frozen=True)
class Way:
    """How a case is run."""

    compiled: bool
    wide: bool = False  # a float32 network in float64
    noise: float = 0.0  # relative, on every parameter
    jitter: float = 0.0  # relative, on everything that goes into a norm or a neuron, and on every gradient out of one
    draw: int = 0  # of the jitter
    recorder: Recorder | None = None


def run(case: Case, attempt: int, way: Way) -> Outcome:
    """Exceptions of the network's are part of the outcome."""
    torch.set_num_threads(case.threads)
    outcome = Outcome()
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            network, workshop = build(case, attempt)
        except Exception as error:
            raise UnbuildableError(f"{type(error).__name__}: {error}") from error
        try:
            if way.wide:
                network.double()
            if way.noise:
                _disturb(network, way.noise)
            path = pure() if not way.compiled else _in_another_order() if REHEARSAL else nullcontext()
            ears = way.recorder.listening() if way.recorder else nullcontext()
            shaking = _jittering(way) if way.jitter else nullcontext()
            try:
                with path, shaking, ears, _garbage_in_memory(case):
                    SCENARIOS[case.scenario](case, attempt, way, network, workshop, outcome.values)
            except UnbuildableError:
                raise
            except RefusedError as error:
                outcome.refused, outcome.message = True, str(error)
            except Exception as error:
                outcome.raised, outcome.message = type(error).__name__, str(error)
            # several threads act several times each, so only who was heard can be compared
            outcome.heard = sorted(workshop.heard if case.python_threads == 1 else set(workshop.heard))
        finally:
            workshop.close()
    return outcome


REHEARSAL = "FUZZ_REHEARSAL" in os.environ


@contextmanager
def _in_another_order() -> Iterator[None]:
    """In place of the compiled path the pure one, summed in another order: what does the fuzzer make of rounding?"""
    linear, var_mean = nn.functional.linear, torch.var_mean

    def product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        fits = x.shape[-1] == weight.shape[-1] and (bias is None or len(bias) == len(weight))
        if not fits or x.dtype != weight.dtype or (bias is not None and bias.dtype != x.dtype):
            return linear(x, weight, bias)
        y = linear(x.flip(-1), weight.flip(-1))
        return y if bias is None else y + bias

    def moments(x: Tensor, *args: Any, **options: Any) -> tuple[Tensor, Tensor]:
        var, mean = var_mean(x.double(), *args, **options)
        return var.to(x.dtype), mean.to(x.dtype)

    with pure(), mock.patch.object(nn.functional, "linear", product), mock.patch.object(torch, "var_mean", moments):
        yield


@torch.no_grad()
def _disturb(network: nn.Module, noise: float) -> None:
    generator = torch.Generator().manual_seed(1)
    for parameter in network.parameters():
        if parameter.is_floating_point():
            factor = 1 + noise * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
            parameter.data = parameter * factor


class _Jitter(torch.autograd.Function):
    """Off by a rounding; the gradient by a rounding of itself, and of the terms that made it, if they are known."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, size: float, generator: torch.Generator, terms: list[Tensor]) -> Tensor:
        ctx.size, ctx.generator, ctx.terms = size, generator, terms
        return x * (1 + size * torch.randn(x.shape, generator=generator, dtype=torch.float64)).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:  # type: ignore[override]
        noise = ctx.size * torch.randn(grad.shape, generator=ctx.generator, dtype=torch.float64)
        for term in ctx.terms:
            grad = grad + (noise * term.expand_as(grad)).to(grad.dtype)
        return grad * (1 + noise.flip(0)).to(grad.dtype), None, None, None


@contextmanager
def _jittering(way: Way) -> Iterator[None]:
    """Every number in the middle of the network off by about a rounding: what must cancel exactly no longer does.

    The gradient that leaves a norm is a difference: what comes in, times scale, less its share in the statistics. It is
    off by a rounding of those terms, however little is left of them.
    """
    generator = torch.Generator().manual_seed(way.draw)
    fire, normalise = Neuron.forward, Norm.forward

    def firing(neuron: Neuron, x: Tensor) -> Tensor:
        return fire(neuron, _Jitter.apply(x, way.jitter, generator, []) if x.is_floating_point() else x)

    def normalising(norm: Norm, x: Tensor) -> Tensor:
        terms: list[Tensor] = []
        scales: list[Tensor] = []
        scale_offset, own = norm.scale_offset, norm.__dict__.get("scale_offset")

        def noting(var: Tensor) -> tuple[Tensor, Tensor]:
            scale, offset = scale_offset(var)
            scales.append(norm._spread(scale.detach().abs(), x))
            return scale, offset

        norm.__dict__["scale_offset"] = noting
        try:
            y = normalise(norm, _Jitter.apply(x, way.jitter, generator, terms) if x.is_floating_point() else x)
        finally:
            del norm.__dict__["scale_offset"]
            if own is not None:
                norm.__dict__["scale_offset"] = own
        if y.requires_grad and scales:
            y.register_hook(lambda grad: terms.append(grad.detach().abs() * scales[-1]))
        return y

    with mock.patch.object(Neuron, "forward", firing), mock.patch.object(Norm, "forward", normalising):
        yield


def _obs(case: Case, attempt: int, way: Way, workshop: Workshop, number: int) -> Tensor:
    x = observations(case, attempt, number)
    for change in workshop.obs_changes:
        x = change(x)
    x = laid_out(x, case.obs_layout)
    return x.double() if way.wide else x


GARBAGE = {"-1": -1.0, "nan": math.nan}


@contextmanager
def _garbage_in_memory(case: Case) -> Iterator[None]:
    """New memory of torch's is full of what a careless kernel must not read."""
    if case.garbage == "none":
        yield
        return

    def filled(make: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def wrapper(*args: Any, **options: Any) -> Tensor:
            t = make(*args, **options)
            if t.is_floating_point():
                t.detach().fill_(GARBAGE[case.garbage])
            return t

        return wrapper

    with ExitStack() as stack:
        for owner, name in ((torch, "empty"), (torch, "empty_like"), (Tensor, "new_empty")):
            stack.enter_context(mock.patch.object(owner, name, filled(getattr(owner, name))))
        yield


def _fill_memory(case: Case) -> None:
    """The same for memory that others hand out, as far as possible: what was freed last is handed out first."""
    if case.garbage != "none":
        sizes = {16 * width for width in (case.inputs, *case.widths)} | {case.batch * width for width in case.widths}
        held = [torch.full((min(n, 2**16),), GARBAGE[case.garbage], dtype=torch.float64) for n in sizes for _ in "ab"]
        del held


# --- training steps --------------------------------------------------------------------------------------------------


def _step(
    case: Case, attempt: int, way: Way, network: nn.Module, workshop: Workshop, values: dict[str, Tensor | None]
) -> None:
    for number in range(case.rounds):
        if number == 1:
            network = _changed(case, way, network, workshop)
        _one_step(case, attempt, way, network, workshop, values, number)


def _context(name: str) -> AbstractContextManager[Any]:
    return {"grad": nullcontext, "no_grad": torch.no_grad, "inference": torch.inference_mode}[name]()


def _one_step(
    case: Case,
    attempt: int,
    way: Way,
    network: nn.Module,
    workshop: Workshop,
    values: dict[str, Tensor | None],
    number: int,
) -> None:
    x = _obs(case, attempt, way, workshop, number)
    if case.obs_grad and x.is_floating_point():
        x = x.detach().requires_grad_() if case.obs_layout != "plain" else x.requires_grad_()
    _fill_memory(case)
    torch.manual_seed(case.seed)
    with _context(case.context), firing_rates(network) if case.penalty else nullcontext() as heard:
        out = _called(case, network, x)
    values[f"output {number}"] = out.detach().clone()
    if heard is not None:
        values[f"rates {number}"] = heard.rates.detach().clone()
    if out.requires_grad:
        loss = _loss(case, out)
        if heard is not None:  # a price of its own for every population
            loss = loss + case.penalty * (heard.rates * torch.arange(1, len(heard.rates) + 1)).sum()
        for module, name in owners(network, case.meddle) if not REHEARSAL else []:
            with torch.no_grad():
                getattr(module, name).mul_(1.5)
        _fill_memory(case)
        loss.backward(retain_graph=case.call == "again")
        if case.call == "again":
            loss.backward()
        for name, parameter in network.named_parameters():
            values[f"gradient {number} {name}"] = None if parameter.grad is None else parameter.grad.clone()
            parameter.grad = None
        values[f"gradient {number} of the input"] = None if x.grad is None else x.grad.clone()
    for name, buffer in network.named_buffers():
        values[f"buffer {number} {name}"] = buffer.detach().clone()
    values[f"modes {number}"] = torch.tensor([module.training for module in network.modules()])


def _called(case: Case, network: nn.Module, x: Tensor) -> Tensor:
    if case.call == "functional":
        parameters = {name: parameter * 0.75 for name, parameter in network.named_parameters()}
        result: Tensor = torch.func.functional_call(network, parameters, (x,))
        return result
    if case.call == "twice":  # what the first call keeps for its backward pass, the second must leave alone
        first, second = network(x), network(x * 0.5)
        return torch.stack([first, second])
    result = network(x)
    return result


def _loss(case: Case, out: Tensor) -> Tensor:
    if case.loss == "sum":
        return out.sum()
    generator = torch.Generator().manual_seed(case.seed + 77)
    weights = torch.randn(out.shape, generator=generator, dtype=torch.float32).to(out.dtype)
    return (out - weights).square().mean() if case.loss == "square" else (out * weights).sum()


def _changed(case: Case, way: Way, network: nn.Module, workshop: Workshop) -> nn.Module:
    """What happens between two calls."""
    change = case.change
    if change == TO_DOUBLE or (change == TO_SINGLE and way.wide):
        network.double()
    elif change == TO_SINGLE:
        network.float()
    elif change.split(" ")[0] in FAMILIES:
        try:
            apply_oddity(change, network, workshop)
        except Exception as error:
            raise UnbuildableError(str(error)) from error
    elif change == "mode flip":
        network.train(not network.training)
    elif change == "step all":
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.mul_(0.75)
    elif change in ("thaw all", "freeze all"):
        for parameter in network.parameters():
            parameter.requires_grad_(change == "thaw all")
    elif change == "deepcopy all":
        try:
            return copy.deepcopy(network)
        except Exception as error:
            raise UnbuildableError(str(error)) from error
    return network


# --- acting ----------------------------------------------------------------------------------------------------------


@contextmanager
def _moving_statistics(network: nn.Module, everything: bool) -> Iterator[None]:
    """As a policy acts: all of it in eval mode; or as an agent does, which only sets its normalisers so."""
    before = [(module, module.training) for module in network.modules()]
    for module, _ in before:
        if everything or isinstance(module, Norm):
            module.training = False
    try:
        yield
    finally:
        for module, mode in before:
            module.training = mode


def _acting(case: Case, network: nn.Module) -> Callable[[Any], Any]:
    """The route of this case, prepared."""
    assert isinstance(network, SpikingActor)
    if case.route == "agent":
        try:
            agent = DDPG(network, Critic(case.obs, case.actions, hidden=(2,)), DDPGOptions())
        except RuntimeError as error:
            if "deepcopy" in str(error):  # torch does not copy such a network, so that it has no target network
                raise UnbuildableError(f"no agent: {error}") from error
            raise
        return lambda obs: agent.act(obs, None)
    if case.route == "predict":
        policy = Policy(network, TrainConfig(), case.obs, np.float32)
        return lambda obs: policy.predict(obs)[0]
    return FastActor(network)


def _act(
    case: Case, attempt: int, way: Way, network: nn.Module, workshop: Workshop, values: dict[str, Tensor | None]
) -> None:
    everything = case.route == "predict"
    if everything:
        network.eval().requires_grad_(False)
    route = _acting(case, network) if way.compiled and not REHEARSAL else None
    for number in range(case.rounds):
        if number == 1:
            network = _changed(case, way, network, workshop) if case.change != "deepcopy all" else network
        rows = [_obs(case, attempt, way, workshop, 10 * number + k).float() for k in range(case.python_threads)]
        if route is None:
            for k, x in enumerate(rows):
                torch.manual_seed(case.seed)
                x = x.double() if way.wide else x
                with torch.no_grad(), _moving_statistics(network, everything):
                    alone = everything and x.ndim == 1  # predict takes one observation by itself
                    batch = x[None] if alone else x
                    action = network(batch)
                    torch.manual_seed(case.seed)
                    if case.python_threads > 1 and not torch.equal(network(batch), action):
                        raise UnbuildableError("every call changes it, so that threads race by design")
                action = action[0] if alone else action
                values[f"action {number} {k}"] = action.float() if not way.wide else action
                values[f"steadiness {number} {k}"] = torch.tensor(True)
        else:
            _fill_memory(case)
            actions, steady = _all_at_once(route, [workshop.as_array(x) for x in rows], case)
            for k, action in enumerate(actions):
                values[f"action {number} {k}"] = torch.as_tensor(action).float()
                values[f"steadiness {number} {k}"] = torch.tensor(steady[k])
    if case.route == "agent":
        values["modes"] = torch.tensor([module.training for module in network.modules()])


def _all_at_once(route: Callable[[Any], Any], rows: list[Any], case: Case) -> tuple[list[Any], list[bool]]:
    """Each of several Python threads with observations of its own; and whether it got the same action every time."""
    steady = [True] * len(rows)
    if len(rows) == 1:
        torch.manual_seed(case.seed)
        return [route(rows[0])], steady
    results: list[Any] = [None] * len(rows)
    errors: list[BaseException] = []
    start = threading.Barrier(len(rows))

    def work(k: int) -> None:
        start.wait()
        try:
            for again in range(15):
                action = route(rows[k])
                if again and not np.array_equal(np.asarray(action), np.asarray(results[k]), equal_nan=True):
                    steady[k] = False
                    return
                results[k] = action
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(len(rows))]
    patience = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # otherwise each may well be through before the next one begins
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(patience)
    if errors:
        raise errors[0]
    return results, steady


# --- deployment and re-calibration -----------------------------------------------------------------------------------


def _deploy(
    case: Case, attempt: int, way: Way, network: nn.Module, workshop: Workshop, values: dict[str, Tensor | None]
) -> None:
    obs = _obs(case, attempt, way, workshop, 0).float()
    if not way.compiled:
        network.double().eval()
        for module in network.modules():
            if hasattr(module, "clip") and hasattr(module, "running_var"):  # folding keeps float32's smallest number
                more = torch.finfo(torch.float32).eps - torch.finfo(torch.float64).eps
                module.running_var = module.running_var + more  # not in place: it may be an expanded tensor
        with torch.no_grad():
            out = network(obs.double())
            values["values"] = out.float() if case.export == "onnx" else out  # which answers in float32
        return
    try:
        folded = fold(network)
    except ValueError as error:
        raise RefusedError(str(error)) from error
    except RuntimeError as error:
        if "deepcopy" in str(error):  # torch's own refusal
            raise RefusedError(str(error)) from error
        raise
    if case.scenario == "fold":
        deployed: Any = DeployedPolicy(folded, compiled=case.seed % 2 == 0)
        values["values"] = torch.from_numpy(deployed.values(obs.numpy()))
        return
    with tempfile.TemporaryDirectory() as folder:
        values["values"] = torch.from_numpy(
            np.asarray(_exported(case.export, folded, Path(folder)).values(obs.numpy()))
        )


def _exported(to: str, folded: Any, folder: Path) -> Any:
    path = folder / "policy"
    if to == "numpy":
        folded.save(path)
        return load(path, compiled=False)
    if to == "c":
        from carebn.deploy import c_export

        if c_export.compiler() is None:
            raise RefusedError("no C compiler")
        c_export.write_c(folded, path, "float64")
        return c_export.CPolicy(path)
    from carebn.deploy import onnx_export

    onnx_export.write_onnx(folded, path, np.float64)
    return onnx_export.ONNXPolicy(path)


def _recalibrate(
    case: Case, attempt: int, way: Way, network: nn.Module, workshop: Workshop, values: dict[str, Tensor | None]
) -> None:
    batches = [_obs(case, attempt, way, workshop, k) for k in range(2)]
    torch.manual_seed(case.seed)
    reached = recalibrate(network, batches)
    values["reached"] = torch.tensor(reached)
    for name, buffer in network.named_buffers():
        values[f"buffer 0 {name}"] = buffer.detach().clone()
    values["modes"] = torch.tensor([module.training for module in network.modules()])


Scenario = Callable[[Case, int, Way, nn.Module, Workshop, dict[str, Tensor | None]], None]
SCENARIOS: dict[str, Scenario] = {
    "step": _step,
    "act": _act,
    "fold": _deploy,
    "export": _deploy,
    "recalibrate": _recalibrate,
}

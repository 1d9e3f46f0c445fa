"""How fast is the spiking actor, and how close to the fastest that its matrix products allow?

    python benchmarks/bench_actor.py [--quick] [--out results/bench_actor.json]

The subject is the actor for Ant: 27 observations → 270 encoder neurons → 256 → 256 → 80 CLIF neurons with CaRe-BN → 8
actions, T = 5, batches of 256, float32, training mode, gradients to all weights and to the encoder's means and widths,
loss = output².mean(). It runs beside

* the floor: nothing but its matrix products, into memory that is already there. Three forwards, three for the weights'
  gradients, two for the gradients between layers, and one for the encoder, whose gradient is a sum over time and may be
  summed before it is multiplied. A second floor does that last product at full size, as automatic differentiation does;
* plain batch norm (``bn``) and no norm (``none``) in place of CaRe-BN, and the pure-torch path without the kernels;
* itself with a target rate: the firing rates counted, their price found and added to the loss. The same for ``bntt``,
  which runs layer by layer;
* the same network in SpikingJelly (multi-step) and in snnTorch (products and batch norm on the whole sequence, then a
  loop over the neuron). Both get our encoder's torch path and our decoder. SpikingJelly's multi-step neuron reads its
  input step by index, whose gradient fills a whole sequence with zeros per step; a second row drives the same neuron
  in single steps over ``unbind``, which avoids that. The targets compare with the faster of the two.

With equal weights the peers are compared with ours first. Differences are single spikes: rounding tips a potential that
lies at the threshold, and at exact equality SpikingJelly fires (≥) where we and snnTorch do not (>).

Machines are noisy, so all contestants take turns in short blocks over many rounds and each keeps its best time; every
ratio is between times of the same process. Thread counts get a process each, since OpenMP reads its settings at start.
Two processes at once: both are alive all the time and take turns at working alone and together, so that a machine that
gets slower or faster meanwhile does so for both; cycles in which something else took the processor from them are left
out, if any cycle went undisturbed. Where others kept the processors busy meanwhile (known on Linux) the output says so:
above all the times on two threads are then not worth much, because each thread waits for the other at every step.
Timings never fail this script; the list of targets says how it went.
"""

import argparse
import copy
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module, metadata
from itertools import pairwise
from pathlib import Path
from typing import Any

OBS, ACTIONS, POPULATION = 27, 8, 10
HIDDEN, STEPS, BATCH = (256, 256), 5, 256
SIZES = (OBS * POPULATION, *HIDDEN, ACTIONS * POPULATION)

OURS, OURS_BN, OURS_NONE, OURS_PURE = "carebn (care)", "carebn (bn)", "carebn (none)", "carebn (care), pure torch"
SPARSE, LAYERS, LAYERS_SPARSE = "carebn (care), target rate", "carebn (bntt)", "carebn (bntt), target rate"
FLOOR, FLOOR_FULL = "floor: products alone", "floor, encoder's product at full size"
JELLY, JELLY_STEPS, SNNTORCH = "SpikingJelly, multi-step", "SpikingJelly, loop over unbind", "snnTorch"
ROWS = (
    FLOOR,
    FLOOR_FULL,
    OURS,
    OURS_BN,
    OURS_NONE,
    SPARSE,
    LAYERS,
    LAYERS_SPARSE,
    OURS_PURE,
    JELLY,
    JELLY_STEPS,
    SNNTORCH,
)
MISSING = "not installed (pip install '.\\[peers]')"  # the backslash keeps rich from reading a style

GROWTH: dict[str, tuple[int, ...]] = {
    "T": (1, 2, 4, 5, 8, 16),
    "batch": (32, 64, 128, 256, 512, 1024),
    "width": (64, 128, 256, 512, 1024),
}

UNDISTURBED = 0.97  # share of the processor in a phase; what is missing, something else had
BUSY = 0.1  # processors that others may use before the output complains

Run = Callable[[], None]


@dataclass(frozen=True)
class Effort:
    """How long to measure. On a busy machine the seconds end it early, after one round at least."""

    rounds: int
    block: int  # calls in a row
    seconds: float
    growth_rounds: int
    growth_seconds: float  # for each size
    cycles: int
    phase_seconds: float


FULL = Effort(rounds=25, block=4, seconds=30, growth_rounds=12, growth_seconds=4, cycles=10, phase_seconds=0.9)
QUICK = Effort(rounds=4, block=2, seconds=4, growth_rounds=1, growth_seconds=1, cycles=2, phase_seconds=0.7)


# --- contestants -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Contestant:
    forward: Run
    both: Run  # forward and backward


def floor(sizes: Sequence[int], steps: int, batch: int, *, full: bool = False) -> Contestant:
    """The smallest set of matrix products that trains such a network; ``full``: the encoder's gradient per step too."""
    import torch

    rows = steps * batch
    shapes = list(pairwise(sizes))
    x = [(torch.rand(rows, i) < 0.4).float() for i, _ in shapes]
    weight = [torch.randn(o, i) for i, o in shapes]
    out = [torch.empty(rows, o) for _, o in shapes]
    grad = [torch.randn(rows, o) for _, o in shapes]
    grad_weight = [torch.empty(o, i) for i, o in shapes]
    grad_x = [torch.empty(rows, i) for i, _ in shapes]
    if not full:
        summed, to_encoder = torch.randn(batch, sizes[1]), torch.empty(batch, sizes[0])

    def forward() -> None:
        for a, w, z in zip(x, weight, out, strict=True):
            torch.mm(a, w.t(), out=z)

    def both() -> None:
        forward()
        for k in reversed(range(len(shapes))):
            torch.mm(grad[k].t(), x[k], out=grad_weight[k])
            if k or full:
                torch.mm(grad[k], weight[k], out=grad_x[k])
            else:
                torch.mm(summed, weight[0], out=to_encoder)

    return Contestant(forward, both)


def passes(model: Any, obs: Any) -> Contestant:
    """A model in training: its forward pass with the graph built, and with the loss and the backward pass."""
    parameters = list(model.parameters())

    def forward() -> None:
        model(obs)

    def both() -> None:
        for parameter in parameters:
            parameter.grad = None
        model(obs).square().mean().backward()

    return Contestant(forward, both)


def penalised(model: Any, obs: Any) -> Contestant:
    """The same with a price for spikes that is found on the way."""
    from carebn.algorithm.spike_penalty import SpikePenalty

    parameters, names = list(model.parameters()), model.populations()
    penalty = SpikePenalty(names, target=[0.1] * len(names))

    def forward() -> None:
        with penalty.hearing(model):
            model(obs)

    def both() -> None:
        for parameter in parameters:
            parameter.grad = None
        with penalty.hearing(model):
            action = model(obs)
        (action.square().mean() + penalty.loss()).backward()

    return Contestant(forward, both)


def without_kernels(contestant: Contestant) -> Contestant:
    from carebn.kernels import pure

    def forward() -> None:
        with pure():
            contestant.forward()

    def both() -> None:
        with pure():
            contestant.both()

    return Contestant(forward, both)


def actor(norm: str = "care", hidden: Sequence[int] = HIDDEN, steps: int = STEPS) -> Any:
    import torch

    from carebn import SpikingActor

    torch.manual_seed(0)
    return SpikingActor(OBS, ACTIONS, norm=norm, hidden=hidden, time_steps=steps, population=POPULATION)


def observations(batch: int = BATCH) -> Any:
    import torch

    return torch.randn(batch, OBS, generator=torch.Generator().manual_seed(1))


def peer(ours: Any, layers: Sequence[Any], prepare: Callable[[Any], None] | None = None) -> Any:
    """Our encoder's torch path → these layers on [T, B, N] → our decoder, with copies of our weights.

    ``prepare`` is called with the network before every pass, to clear its hidden state.
    """
    import torch
    from torch import nn

    from carebn.kernels import pure

    class Peer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = copy.deepcopy(ours.encoder)
            self.layers = nn.ModuleList(layers)
            self.decoder = copy.deepcopy(ours.decoder)
            self.bounds = copy.deepcopy(ours.bounds)

        def spikes(self, obs: torch.Tensor) -> torch.Tensor:
            if prepare is not None:
                prepare(self)
            with pure():
                stimulation = self.encoder.stimulation(obs)
                x = self.encoder.spikes(stimulation)
            x = x.add_(stimulation - stimulation.detach())  # adds zero, and a gradient of one at every step
            for layer in self.layers:
                x = layer(x)
            return x

        def forward(self, obs: torch.Tensor) -> torch.Tensor:
            action: torch.Tensor = self.bounds(self.decoder(self.spikes(obs)))
            return action

    return Peer()


def take_weights(linear: Any, norm: Any, layer: Any) -> None:
    """Linear and batch norm of a peer get what the same layer of ours has."""
    linear.load_state_dict(layer.linear.state_dict())
    state = layer.norm.state_dict()
    norm.load_state_dict({name: state[name] for name in norm.state_dict()})


def spikingjelly_actor(ours: Any, *, multi_step: bool) -> Any:
    from spikingjelly.activation_based import functional, layer, neuron, surrogate
    from torch import Tensor, nn, stack

    class Layer(nn.Module):
        def __init__(self, like: Any) -> None:
            super().__init__()
            inputs, outputs = like.linear.in_features, like.linear.out_features
            self.linear = layer.Linear(inputs, outputs, step_mode="m")
            self.norm = layer.BatchNorm1d(outputs, step_mode="m")
            take_weights(self.linear, self.norm, like)
            self.neuron = neuron.CUBALIFNode(
                c_decay=0.5, v_decay=0.75, v_threshold=0.5, v_reset=0.0, surrogate_function=surrogate.Rect()
            )
            self.neuron.step_mode = "m" if multi_step else "s"

        def forward(self, x: Tensor) -> Tensor:
            currents = self.norm(self.linear(x))
            if multi_step:
                return self.neuron(currents)
            return stack([self.neuron(current) for current in currents.unbind(0)])

    return peer(ours, [Layer(like) for like in ours.layers], functional.reset_net)


def snntorch_actor(ours: Any) -> Any:
    import snntorch
    import torch
    from torch import Tensor, nn

    class Rectangle(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return (x > 0).to(x.dtype)

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            (x,) = ctx.saved_tensors
            return grad * (x.abs() <= 0.5)

    class Layer(nn.Module):
        def __init__(self, like: Any) -> None:
            super().__init__()
            self.linear = nn.Linear(like.linear.in_features, like.linear.out_features)
            self.norm = nn.BatchNorm1d(like.linear.out_features)
            take_weights(self.linear, self.norm, like)
            self.neuron = snntorch.Synaptic(
                alpha=0.5, beta=0.75, threshold=0.5, reset_mechanism="zero", reset_delay=False,
                spike_grad=Rectangle.apply,
            )  # fmt: skip

        def forward(self, x: Tensor) -> Tensor:
            currents = self.norm(self.linear(x.flatten(0, 1))).view(*x.shape[:2], -1)
            syn, mem = self.neuron.reset_mem()
            spikes = []
            for current in currents.unbind(0):
                spike, syn, mem = self.neuron(current, syn, mem)
                spikes.append(spike)
            return torch.stack(spikes)

    return peer(ours, [Layer(like) for like in ours.layers])


def installed(module: str) -> bool:
    try:
        import_module(module)
    except ImportError:
        return False
    return True


def peers(ours: Any) -> dict[str, Any]:
    """The same network in every library that is here."""
    models = {}
    if installed("spikingjelly.activation_based.neuron"):
        models[JELLY] = spikingjelly_actor(ours, multi_step=True)
        models[JELLY_STEPS] = spikingjelly_actor(ours, multi_step=False)
    if installed("snntorch"):
        models[SNNTORCH] = snntorch_actor(ours)
    return models


# --- measurements, each in a process of its own ----------------------------------------------------------------------


def once(run: Run) -> float:
    """Milliseconds of one call."""
    start = time.perf_counter()
    run()
    return (time.perf_counter() - start) * 1e3


def take_turns(runs: dict[str, Run], rounds: int, block: int, seconds: float) -> dict[str, float]:
    """The best time of each in milliseconds; all take turns, so that a slow minute hits all of them."""
    for run in runs.values():
        run()
        run()
    best = dict.fromkeys(runs, float("inf"))
    end = time.monotonic() + seconds
    for number in range(rounds):
        if number and time.monotonic() > end:
            break
        for name, run in runs.items():
            best[name] = min(best[name], *(once(run) for _ in range(block)))
    return best


def agreement(ours: Any, model: Any, obs: Any) -> dict[str, float]:
    """How far a peer with our weights is from us: spikes of the last layer, actions, direction of the gradient."""
    import torch

    def gradient(m: Any) -> torch.Tensor:
        m.zero_grad()
        m(obs).square().mean().backward()
        # without the biases in front of a norm, whose gradient is rounding noise around zero
        return torch.cat([p.grad.flatten() for n, p in m.named_parameters() if not n.endswith("linear.bias")])

    trains: list[torch.Tensor] = []
    hook = ours.layers[-1].register_forward_hook(lambda module, args, out: trains.append(out))
    with torch.no_grad():
        action = ours(obs)
        gap = (model(obs) - action).abs()
        spikes = model.spikes(obs)
    hook.remove()
    return {
        "firing_rate": spikes.mean().item(),
        "differing_spikes": (spikes != trains[0]).float().mean().item(),
        "max_action_difference": gap.max().item(),
        "mean_action_difference": gap.mean().item(),
        "gradient_cosine": torch.cosine_similarity(gradient(model), gradient(ours), 0).item(),
    }


def measure(effort: Effort) -> dict[str, Any]:
    obs = observations()
    ours = actor()
    models = peers(ours)
    agreements = {name: agreement(ours, model, obs) for name, model in models.items()}
    contestants = {
        FLOOR: floor(SIZES, STEPS, BATCH),
        FLOOR_FULL: floor(SIZES, STEPS, BATCH, full=True),
        OURS: passes(ours, obs),
        OURS_BN: passes(actor("bn"), obs),
        OURS_NONE: passes(actor("none"), obs),
        SPARSE: penalised(actor(), obs),
        LAYERS: passes(actor("bntt"), obs),
        LAYERS_SPARSE: penalised(actor("bntt"), obs),
        OURS_PURE: without_kernels(passes(actor(), obs)),
    } | {name: passes(model, obs) for name, model in models.items()}
    limits = effort.rounds, effort.block, effort.seconds
    forward = take_turns({name: contestant.forward for name, contestant in contestants.items()}, *limits)
    both = take_turns({name: contestant.both for name, contestant in contestants.items()}, *limits)
    times = {name: {"forward_ms": forward[name], "both_ms": both[name]} for name in contestants}
    return {"times": times, "agreement": agreements}


def growth(effort: Effort) -> dict[str, Any]:
    """Forward and backward, ours and the floor, with one size at a time changed."""
    results: dict[str, Any] = {}
    for axis, values in GROWTH.items():
        results[axis] = {}
        for value in values:
            steps = value if axis == "T" else STEPS
            batch = value if axis == "batch" else BATCH
            hidden = (value, value) if axis == "width" else HIDDEN
            sizes = (SIZES[0], *hidden, SIZES[-1])
            best = take_turns(
                {
                    "floor": floor(sizes, steps, batch).both,
                    "ours": passes(actor(hidden=hidden, steps=steps), observations(batch)).both,
                },
                effort.growth_rounds,
                3,
                effort.growth_seconds,
            )
            results[axis][str(value)] = {
                "ours_ms": best["ours"],
                "floor_ms": best["floor"],
                "ratio": best["ours"] / best["floor"],
            }
    return results


def work_until(run: Run, end: float) -> dict[str, float]:
    """The best and the typical time of a call, and the share of this phase in which we had the processor."""
    for _ in range(2):  # these find cold caches
        run()
    wall, processor = time.perf_counter(), time.process_time()
    times: list[float] = []
    while time.time() < end or not times:
        times.append(once(run))
    share = (time.process_time() - processor) / (time.perf_counter() - wall)
    inside = times[:-1] or times  # the last call may reach into the next phase
    return {"best": min(inside), "typical": statistics.median(inside), "share": share}


def pair(effort: Effort, index: int, meeting: Path) -> dict[str, list[dict[str, float]]]:
    """One of two processes. Phases go by the clock: the first alone, the second alone, both together, and again."""
    run = passes(actor(), observations()).both
    for _ in range(5):
        run()
    (meeting / f"ready{index}").touch()
    while not (meeting / "start").exists():
        time.sleep(0.005)
    start = float((meeting / "start").read_text())
    phases: dict[str, list[dict[str, float]]] = {"alone": [], "together": []}
    for number in range(3 * effort.cycles):
        begin = start + number * effort.phase_seconds
        mine = number % 3 in (index, 2)
        time.sleep(max(begin - time.time(), 0))
        if mine:
            phase = work_until(run, begin + effort.phase_seconds)
            phases["together" if number % 3 == 2 else "alone"].append(phase)
    return phases


# --- the parent ------------------------------------------------------------------------------------------------------


def start_worker(task: str, threads: int, quick: bool, *options: str) -> "subprocess.Popen[str]":
    environment = os.environ | {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    command = [sys.executable, __file__, "--task", task, "--threads", str(threads), *(["--quick"] if quick else [])]
    return subprocess.Popen([*command, *options], env=environment, stdout=subprocess.PIPE, text=True)


def answer(worker: "subprocess.Popen[str]") -> Any:
    """What a worker measured: the last line it printed."""
    out, _ = worker.communicate()
    if worker.returncode:
        raise SystemExit(f"a measuring process ended with code {worker.returncode}; see its message above")
    return json.loads(out.splitlines()[-1])


def ask(task: str, threads: int, quick: bool) -> Any:
    return answer(start_worker(task, threads, quick))


def others_during(measurement: Callable[[], Any]) -> tuple[Any, float | None]:
    """A measurement, and how many processors others kept busy meanwhile: all work of the machine less that of ours."""

    def busy() -> float:
        user, nice, system, *_ = Path("/proc/stat").read_text().split()[1:]
        ticks = int(user) + int(nice) + int(system)
        return ticks / os.sysconf("SC_CLK_TCK") - sum(os.times()[:4])  # ours: this process and its ended children

    if not Path("/proc/stat").exists():
        return measurement(), None
    before, start = busy(), time.monotonic()
    result = measurement()
    return result, max(busy() - before, 0.0) / (time.monotonic() - start)


def ask_pair(quick: bool) -> dict[str, Any]:
    """Two one-thread processes: what each keeps of the speed it has alone, in percent.

    ``kept`` compares the best times of neighbouring phases and takes the median over the undisturbed cycles, those in
    which both had the processor all the time; ``kept_typical`` does so with the median times. If there are none, all
    cycles count, and the result says more about the machine than about us.
    """
    with tempfile.TemporaryDirectory() as directory:
        meeting = Path(directory)
        workers = [start_worker("pair", 1, quick, "--index", str(i), "--meeting", directory) for i in range(2)]
        while not all((meeting / f"ready{i}").exists() for i in range(2)):
            if any(worker.poll() is not None for worker in workers):
                break
            time.sleep(0.01)
        waiting = meeting / "start.new"
        waiting.write_text(str(time.time() + 0.3))
        waiting.rename(meeting / "start")  # appears with its content, never empty
        try:
            answers = [answer(worker) for worker in workers]
        finally:
            for worker in workers:  # if one failed, the other need not go on
                worker.kill()

    cycles = range(len(answers[0]["alone"]))
    undisturbed = [
        cycle
        for cycle in cycles
        if all(phases[kind][cycle]["share"] > UNDISTURBED for phases in answers for kind in ("alone", "together"))
    ]

    def kept(phases: dict[str, list[dict[str, float]]], key: str) -> float:
        alone, together = phases["alone"], phases["together"]
        return 100 * statistics.median(alone[cycle][key] / together[cycle][key] for cycle in undisturbed or cycles)

    return {
        "kept": [kept(phases, "best") for phases in answers],
        "kept_typical": [kept(phases, "typical") for phases in answers],
        "cycles": len(cycles),
        "undisturbed_cycles": len(undisturbed),
        "phases": answers,
    }


def version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:  # not Linux
        return platform.processor() or platform.machine()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def targets(threads: dict[str, Any], two: dict[str, Any]) -> list[dict[str, Any]]:
    """Every target with its number; ``passed`` is None where a peer is missing."""
    found: list[dict[str, Any]] = []

    def at_most(name: str, value: float, limit: float) -> None:
        found.append({"target": f"{name} ≤ {limit:g}", "value": value, "passed": value <= limit})

    def at_least(name: str, value: float | None, limit: float) -> None:
        found.append(
            {"target": f"{name} ≥ {limit:g}", "value": value, "passed": None if value is None else value >= limit}
        )

    both = {n: {row: t["both_ms"] for row, t in r["times"].items()} for n, r in threads.items()}
    for n, limit in (("1", 1.35), ("2", 1.5)):
        at_most(f"forward + backward over floor, threads: {n}", both[n][OURS] / both[n][FLOOR], limit)
    for peer_name, rows, limits in (
        ("SpikingJelly", (JELLY, JELLY_STEPS), {"1": 1.5, "2": 1.5}),
        ("snnTorch", (SNNTORCH,), {"1": 1.8, "2": 2.3}),
    ):
        for n, limit in limits.items():
            there = [both[n][row] / both[n][OURS] for row in rows if row in both[n]]
            at_least(f"times faster than {peer_name}, threads: {n}", min(there, default=None), limit)
    at_least("percent of speed kept by the slower of two processes", min(two["kept"]), 85)
    for n in ("1", "2"):
        at_most(f"care over bn, threads: {n}", both[n][OURS] / both[n][OURS_BN], 1.05)
    for what, row, without in (("care", SPARSE, OURS), ("bntt, layer by layer", LAYERS_SPARSE, LAYERS)):
        at_most(f"with a target rate over without ({what}), threads: 1", both["1"][row] / both["1"][without], 1.03)
    return found


def show(results: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(width=None if sys.stdout.isatty() else 120)
    sizes = " → ".join(str(size) for size in (OBS, *SIZES, ACTIONS))
    table = Table(title=f"Actor for Ant: {sizes}, T = {STEPS}, batch {BATCH}")
    for heading in ("", "forward ms", "÷ floor", "fwd+bwd ms", "÷ floor", "ours is × faster"):
        table.add_column(heading, justify="right" if heading else "left")
    for n, result in results["threads"].items():
        table.add_section()
        table.add_row(f"[bold]{n} thread{'s' if n != '1' else ''}")
        times = result["times"]
        for row in ROWS:
            if row not in times:
                if row != JELLY_STEPS:  # one line a library is enough
                    table.add_row(f"{row.partition(',')[0]}: {MISSING}")
                continue
            forward, both = times[row]["forward_ms"], times[row]["both_ms"]
            over = forward / times[FLOOR]["forward_ms"], both / times[FLOOR]["both_ms"]
            faster = both / times[OURS]["both_ms"]
            style = "bold green" if row == OURS else None
            cells = f"{forward:.2f}", f"{over[0]:.2f}", f"{both:.2f}", f"{over[1]:.2f}", f"{faster:.2f}"
            table.add_row(row, *cells, style=style)
    console.print(table)
    for name, gap in results["threads"]["1"]["agreement"].items():
        console.print(
            f"{name} with our weights: {gap['differing_spikes']:.3%} of the last layer's spikes differ "
            f"(firing rate {gap['firing_rate']:.0%}), actions by at most "
            f"{gap['max_action_difference']:.2g} (mean {gap['mean_action_difference']:.1g}), "
            f"cosine of the gradients {gap['gradient_cosine']:.4f}",
            highlight=False,
        )
    two = results["two_processes"]
    console.print(
        "Two one-thread processes at once keep "
        + " and ".join(
            f"{best:.0f} % (typically {typical:.0f} %)"
            for best, typical in zip(two["kept"], two["kept_typical"], strict=True)
        )
        + f" of the speed of one alone ({two['undisturbed_cycles']} of {two['cycles']} cycles undisturbed)",
        highlight=False,
    )
    table = Table(title="Growth on one thread, forward + backward")
    for heading in ("", "", "ours ms", "floor ms", "÷ floor"):
        table.add_column(heading, justify="right")
    for axis, sizes in results["growth"].items():
        table.add_section()
        for size, t in sizes.items():
            table.add_row(axis, size, f"{t['ours_ms']:.2f}", f"{t['floor_ms']:.2f}", f"{t['ratio']:.2f}")
    console.print(table)
    for target in results["targets"]:
        mark = {True: "[green]pass", False: "[red]FAIL", None: "[yellow] n/a"}[target["passed"]]
        value = "peer not installed" if target["value"] is None else f"{target['value']:.2f}"
        console.print(f"{mark}[/]  {target['target']}: {value}", highlight=False)
    for name, processors in results["processors_used_by_others"].items():
        if processors is not None and processors > BUSY:
            console.print(
                f"[yellow]not to be trusted: {name}. Others kept {processors:.1f} processors busy meanwhile",
                highlight=False,
            )


def work(arguments: argparse.Namespace) -> None:
    """The child's part: one measurement, printed as a line of JSON."""
    import torch

    torch.set_num_threads(arguments.threads)
    effort = QUICK if arguments.quick else FULL
    if arguments.task == "measure":
        result = measure(effort)
    elif arguments.task == "growth":
        result = growth(effort)
    else:
        result = pair(effort, arguments.index, arguments.meeting)
    print(json.dumps(result))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="few rounds, rough numbers")
    parser.add_argument("--out", type=Path, help="where to write everything as JSON (default: nowhere)")
    for hidden in ("--task", "--threads", "--index", "--meeting"):  # how the script calls itself
        kind = {"--task": str, "--meeting": Path}.get(hidden, int)
        parser.add_argument(hidden, type=kind, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.task:
        work(arguments)
        return
    quick = arguments.quick
    cpus = os.cpu_count() or 1
    if cpus < 2:
        print("this machine has one processor: the rows for two threads and two processes mean little", file=sys.stderr)
    results: dict[str, Any] = {
        "versions": {"python": platform.python_version()}
        | {package: version(package) for package in ("torch", "numba", "spikingjelly", "snntorch")},
        "machine": {"cpu": cpu_name(), "cpus": cpus, "system": platform.system()},
        "quick": quick,
    }
    measurements: dict[str, Callable[[], Any]] = {
        "one thread": lambda: ask("measure", 1, quick),
        "two threads": lambda: ask("measure", 2, quick),
        "two processes": lambda: ask_pair(quick),
        "growth": lambda: ask("growth", 1, quick),
    }
    measured, others = {}, {}
    for name, measurement in measurements.items():
        print(f"measuring: {name} ...", file=sys.stderr)
        measured[name], others[name] = others_during(measurement)
    results |= {
        "processors_used_by_others": others,
        "threads": {"1": measured["one thread"], "2": measured["two threads"]},
        "two_processes": measured["two processes"],
        "growth": measured["growth"],
    }
    results["targets"] = targets(results["threads"], results["two_processes"])
    show(results)
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()

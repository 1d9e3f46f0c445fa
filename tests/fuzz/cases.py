"""A case: a small description from which everything else follows, drawn from (seed, number)."""

import json
import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from carebn.network.decoder import Q_READOUTS, READOUTS
from carebn.network.encoder import CODINGS, OBSERVATIONS, RESETS
from carebn.network.intralayer import CONNECTIONS
from carebn.neuron import NEURONS, SURROGATES
from carebn.norm import NORMS

from .oddities import CHANGES, MEDDLES, NOT_WHEN_FOLDED, oddities_for

ENCODED = ("actor", "encoder")  # kinds of network that begin with an encoder
FEW_DECISIONS = 3000  # of different neurons, samples and steps; in float32 more of them come too near to a threshold


@dataclass(frozen=True)
class Case:
    seed: int = 0
    scenario: str = "step"  # step, act, fold, export, recalibrate
    kind: str = "actor"  # actor, qnet, layer, neuron, norm, encoder
    dtype: str = "float32"
    norm: str = "bn"
    norm_options: dict[str, Any] = field(default_factory=dict)
    neuron: str = "lif"
    neuron_options: dict[str, Any] = field(default_factory=dict)
    surrogate: str = "rectangle"
    surrogate_size: float = 0.0  # 0: its own
    uneven: bool = False  # each layer's neurons have constants of their own
    readout: str = "membrane"
    coding: str = "deterministic"
    observation: str = "tanh"
    reset: str = "spike"
    intralayer: str = "none"
    obs: int = 2
    actions: int = 1
    population: int = 2
    hidden: tuple[int, ...] = (4,)
    steps: int = 2
    batch: int = 4
    distinct_rows: int = 0  # so many different observations, the others repeat them; 0: all differ
    distinct_neurons: int = 0  # the same for the neurons of a layer
    mode: str = "train"  # train, eval, mixed
    context: str = "grad"  # grad, no_grad, inference
    call: str = (
        "plain"  # plain; functional: with other parameters; twice: two calls, then backward; again: backward twice
    )
    loss: str = "weighted"  # weighted, sum, square
    bias: str = "all"  # all, none, some
    frozen: tuple[str, ...] = ()  # parts whose parameters need no gradient
    obs_grad: bool = False
    obs_layout: str = "plain"  # plain, strided, transposed, double
    grid: int = 8  # weights are multiples of 2^-grid, so that sums of them are exact in float32
    obs_scale: float = 1.0
    threads: int = 1
    python_threads: int = 1
    garbage: str = "none"  # what freed memory is full of: none, -1, nan
    route: str = "fast"  # of acting: fast, agent, predict
    export: str = "numpy"
    oddities: tuple[str, ...] = ()
    rounds: int = 1
    change: str = "none"  # between two rounds
    meddle: str = "none"  # between forward and backward
    penalty: float = 0.0  # on the firing rate of every population, added to the loss; 0: nobody asks for rates

    def to_json(self) -> str:
        """Only what differs from a plain case."""
        plain = asdict(Case())
        return json.dumps({name: value for name, value in asdict(self).items() if value != plain[name]})

    @staticmethod
    def from_json(text: str) -> "Case":
        data = json.loads(text)
        known = {f.name for f in fields(Case)}
        if not set(data) <= known:
            raise ValueError(f"a case has no {', '.join(sorted(set(data) - known))}")
        return Case(**{name: tuple(v) if isinstance(v, list) else v for name, v in data.items()})

    @property
    def widths(self) -> tuple[int, ...]:
        """Of the spiking layers."""
        return (*self.hidden, self.actions * self.population) if self.kind == "actor" else self.hidden

    @property
    def inputs(self) -> int:
        return self.obs * self.population if self.kind in ENCODED else self.obs


def draw(seed: int, number: int) -> Case:
    """Case ``number`` of the run ``seed``."""
    rng = random.Random(f"{seed}/{number}")
    case = _extras(rng, _sizes(rng, _what(rng)))
    if case.kind == "actor" and case.scenario in ("step", "recalibrate") and rng.random() < 0.35:
        case = _usual(rng, case)
    return _penalised(rng, _without(rng, _unusual(rng, case)))


def _what(rng: random.Random) -> Case:
    scenario = _weighted(rng, {"step": 60, "act": 25, "fold": 8, "recalibrate": 4, "export": 0.7})
    if scenario == "step":
        kind = _weighted(rng, {"actor": 55, "qnet": 18, "layer": 15, "neuron": 4, "norm": 4, "encoder": 4})
    else:
        kind = "actor" if scenario == "act" else _weighted(rng, {"actor": 3, "qnet": 1})
    neuron = _weighted(rng, {"lif": 3, "clif": 4, "dn": 2, "dn-authors": 1})
    assert neuron in NEURONS
    return Case(
        seed=rng.randrange(10**6),
        scenario=scenario,
        kind=kind,
        dtype=_weighted(rng, {"float32": 4, "float64": 1}),
        norm=rng.choice([name for name in NORMS if kind != "norm" or name != "none"]),
        neuron=neuron,
        surrogate=rng.choice(list(SURROGATES)) if rng.random() < 0.6 else "rectangle",
        surrogate_size=rng.choice((0.25, 0.75, 3.0)) if rng.random() < 0.2 else 0.0,
        route=rng.choice(("fast", "agent", "predict")),
    )


def _sizes(rng: random.Random, case: Case) -> Case:
    def width() -> int:
        if size == "huge" and rng.random() < 0.5:
            return rng.choice((511, 512, 513, 777, 1024, 1025))
        if size != "small" and rng.random() < 0.7:
            return rng.choice((15, 16, 17, 24, 31, 32, 33, 48, 63, 64, 65, 72, 96, 100, 127, 128, 129))
        return rng.randint(1, 20)

    size = _weighted(rng, {"small": 55, "medium": 43, "huge": 2})
    most = 8 if case.neuron == "dn-authors" else 16
    steps = min(rng.choice((1, 2, 3, 4, 5, 5, 6, 8, 11, 16)), most)
    if size == "small":
        batch = rng.randint(2, 12)
    elif size == "medium":  # enough rows for products by look-up and for whole stacks
        batch = rng.choice((32, 33, 52, 64, 100, 128, 129, 256, 300))
        batch = max(batch, -(-rng.choice((200, 256, 512, 600)) // steps)) if rng.random() < 0.7 else batch
        batch = min(batch, 600)
    else:
        batch = rng.choice((64, 257, 599, 600))
    if case.scenario == "act":
        batch = rng.choice((1, 1, 2, 3, 5, 9, 17, 40))
    population = rng.choice((1, 2, 3, 4, 5, 8, 10))
    layers = rng.choice((1, 1, 2, 2, 3)) if case.kind != "layer" else 1
    if case.kind == "actor" and rng.random() < 0.04:
        layers = 0
    case = replace(
        case,
        steps=steps,
        batch=batch,
        population=population,
        obs=rng.randint(1, 6) if size == "small" else rng.choice((3, 8, 11, 17, 27)),
        actions=rng.randint(1, 4) if size == "small" else rng.choice((1, 2, 3, 6, 8)),
        hidden=tuple(width() for _ in range(layers)),
    )
    if case.kind in ("layer", "qnet") and size != "small" and rng.random() < 0.6:
        case = replace(case, obs=width())
    if case.kind == "norm" and case.hidden == ():
        case = replace(case, hidden=(width(),))
    return replace(case, **_variety(case))


def _variety(case: Case) -> dict[str, Any]:
    """How many different neurons and observations float32 can be asked about without meeting a threshold."""
    if case.dtype == "float64":
        return {}
    rows = min(case.batch, 6)
    neurons = max(3, FEW_DECISIONS // (rows * case.steps * max(1, len(case.widths))))
    if case.batch * case.steps * sum(case.widths) <= FEW_DECISIONS:
        return {}
    return {"distinct_rows": rows, "distinct_neurons": min(neurons, 24)}


def _extras(rng: random.Random, case: Case) -> Case:
    options: dict[str, Any] = {}
    if case.norm != "none":
        if rng.random() < 0.15:
            options["momentum"] = rng.choice((None, 0.0, 0.5, 1.0))
        if rng.random() < 0.1:
            options["eps"] = rng.choice((0.0, 1e-3, 1e-12))
        if rng.random() < 0.1 and case.norm not in ("care", "ca"):
            options["weight"] = 0.7
        if rng.random() < 0.1 and case.norm == "bntt":
            options["bias"] = 0.1
    constants: dict[str, Any] = {}
    if rng.random() < 0.25:
        constants["v_threshold"] = rng.choice((0.25, 1.0, 0.3, -0.125, 0.0))
    if rng.random() < 0.2 and case.neuron in ("lif", "clif"):
        constants["decay"] = rng.choice((0.0, 0.5, 1.0, 0.9))
    if rng.random() < 0.2 and case.neuron in ("clif", "dn"):
        constants["current_decay"] = rng.choice((0.0, 0.25, 0.9))
    acting = case.scenario != "step"
    case = replace(
        case,
        norm_options=options,
        neuron_options=constants,
        uneven=rng.random() < 0.15,
        readout=rng.choice(Q_READOUTS if case.kind == "qnet" else (*READOUTS, "membrane", "membrane", "rate")),
        coding=_weighted(rng, {"deterministic": 6, "poisson": 1, "analogue": 1}),
        observation=_weighted(rng, {"tanh": 3, "zscore": 1, "raw": 1}),
        reset=rng.choice(RESETS),
        intralayer=rng.choice(list(CONNECTIONS)) if rng.random() < 0.06 else "none",
        mode="eval" if acting and rng.random() < 0.5 else _weighted(rng, {"train": 6, "eval": 3, "mixed": 1}),
        context=_weighted(rng, {"grad": 8, "no_grad": 2, "inference": 0.5}),
        call=_weighted(rng, {"plain": 16, "functional": 1, "twice": 1, "again": 1}),
        loss=rng.choice(("weighted", "weighted", "sum", "square")),
        bias=_weighted(rng, {"all": 8, "none": 1, "some": 1}),
        obs_grad=rng.random() < 0.3,
        obs_layout=_weighted(rng, {"plain": 12, "strided": 1, "transposed": 1, "double": 0.5}),
        obs_scale=rng.choice((1.0, 1.0, 1.0, 0.3, 4.0)),
        threads=2 if rng.random() < 0.2 else 1,
        garbage=_weighted(rng, {"none": 4, "-1": 3, "nan": 1}),
        rounds=2 if rng.random() < 0.15 else 1,
    )
    if case.norm == "none" and rng.random() < 0.25:  # exact arithmetic: on the threshold means on the threshold
        case = replace(case, grid=2, steps=min(case.steps, 4))
    if rng.random() < 0.15:
        parts = ("encoder", "linear", "norm", "decoder", "readout", "bias", "weight", "layers.0", "everything")
        case = replace(case, frozen=tuple(rng.sample(parts, rng.choice((1, 1, 2)))))
    if case.scenario == "act":
        case = replace(case, python_threads=4 if rng.random() < 0.15 else 1, context="no_grad", obs_grad=False)
        if case.python_threads > 1:  # enough work that one is still at it when the next begins
            case = replace(case, batch=rng.choice((64, 128)), hidden=(*case.hidden, 64))
            case = replace(case, **_variety(case))
        if case.coding == "poisson":  # one stream of random numbers, and predict seeds its own from every observation
            case = replace(case, python_threads=1, route="agent")
    if case.scenario in ("fold", "export", "recalibrate"):
        case = replace(case, context="no_grad", obs_grad=False, frozen=(), garbage="none")
    if case.scenario == "export":
        case = replace(case, export=rng.choice(("numpy", "numpy", "c", "onnx")), batch=min(case.batch, 12))
    assert case.coding in CODINGS
    assert case.observation in OBSERVATIONS
    return case


def _usual(rng: random.Random, case: Case) -> Case:
    """The kind of network that is trained most, and has the most kernels of its own, with batches worth their while."""
    case = replace(
        case,
        dtype="float32",
        neuron=rng.choice(("lif", "clif")),
        surrogate=rng.choice(("rectangle", "triangle")),
        neuron_options={k: v for k, v in case.neuron_options.items() if k == "v_threshold" and v > 0},
        coding="deterministic",
        readout=rng.choice(("membrane", "rate")),
        intralayer="none",
        uneven=rng.random() < 0.3,
        batch=max(case.batch, -(-rng.choice((256, 260, 400)) // case.steps)),
    )
    if rng.random() < 0.3:  # as target networks are used
        case = replace(case, mode="eval", context="no_grad", obs_grad=False)
    return replace(case, **{"distinct_rows": 0, "distinct_neurons": 0, **_variety(case)})


def _without(rng: random.Random, case: Case) -> Case:
    """A torch batch norm that lacks weights or statistics; drawn last, so that all else is as it was."""
    if case.norm not in ("care", "ca", "re", "bn") or "weight" in case.norm_options or rng.random() > 0.15:
        return case
    missing = rng.choice(({"affine": False}, {"bias": False}, {"track_running_stats": False}))
    if "track_running_stats" in missing and case.scenario != "step":  # nothing to act with, fold or re-calibrate
        missing = {"affine": False}
    return replace(case, norm_options={**case.norm_options, **missing})


def _penalised(rng: random.Random, case: Case) -> Case:
    """A price for spikes; drawn last of all, so that all else is as it was."""
    fits = case.scenario == "step" and case.kind in ("actor", "qnet") and rng.random() < 0.25
    return replace(case, penalty=rng.choice((1.0, 100.0, 1e4))) if fits else case


def _unusual(rng: random.Random, case: Case) -> Case:
    known = [name for name in oddities_for(case.kind) if _has_work(name, case)]
    if case.scenario in ("fold", "export"):
        known = [name for name in known if not name.startswith(NOT_WHEN_FOLDED)]
    number = _weighted(rng, {0: 40, 1: 42, 2: 14, 3: 4})
    families = sorted({name.split()[0] for name in known})
    weights = [0.5 if family.startswith("value-") else 1.0 for family in families]
    chosen = []
    for _ in range(number):  # by family first: otherwise the largest of them would be nearly all
        (family,) = rng.choices(families, weights)
        chosen.append(rng.choice([name for name in known if name.split()[0] == family]))
    case = replace(case, oddities=tuple(dict.fromkeys(chosen)))
    if case.scenario in ("step", "act") and rng.random() < 0.12:
        change = rng.choice(CHANGES) if rng.random() < 0.5 else rng.choice(known)
        case = replace(case, rounds=2, change=change)
    if case.scenario == "step" and case.context == "grad" and rng.random() < 0.03:
        case = replace(case, meddle=rng.choice(MEDDLES))
    return case


def _has_work(oddity: str, case: Case) -> bool:
    """Whether the case has what the oddity is about."""
    return not (
        ("connections" in oddity and (case.intralayer == "none" or case.kind != "actor"))
        or ("zscore" in oddity and case.observation != "zscore")
        or ("norm.error_" in oddity and case.norm not in ("care", "ca"))
        or ("step_scale" in oddity and case.norm not in ("tebn", "tab"))
        or (" norm." in oddity and case.norm == "none")
        or (oddity.startswith("obs-array") and (case.scenario != "act" or case.route == "predict"))
    )


def _weighted(rng: random.Random, weights: dict[Any, float]) -> Any:
    return rng.choices(list(weights), list(weights.values()))[0]


def simpler(case: Case) -> Iterator[Case]:
    """Cases that differ from this one by one simplification each, those that say most first."""
    for i in range(len(case.oddities)):
        yield replace(case, oddities=case.oddities[:i] + case.oddities[i + 1 :])
    plain = Case()
    order = ("penalty", "change", "meddle", "rounds", "python_threads", "threads", "garbage", "frozen", "obs_layout",
             "obs_grad",
             "norm_options", "neuron_options", "uneven", "intralayer", "bias", "obs_scale", "grid", "mode", "context",
             "loss", "readout", "coding", "observation", "reset", "surrogate", "neuron", "norm", "dtype", "route",
             "call", "surrogate_size", "export")  # fmt: skip
    for name in order:
        if getattr(case, name) != getattr(plain, name) and not (name == "rounds" and case.change != "none"):
            yield replace(case, **{name: getattr(plain, name)})
    if len(case.hidden) > 1:
        yield replace(case, hidden=case.hidden[:1])
    for name in ("batch", "steps", "obs", "population", "actions"):
        value, least = getattr(case, name), 2 if name == "batch" and case.scenario != "act" else 1
        for smaller in sorted({least, value // 4, value // 2, value - 1}):
            if least <= smaller < value:
                yield replace(case, **{name: smaller, "distinct_rows": min(case.distinct_rows, case.batch)})
    for i, width in enumerate(case.hidden):
        for smaller in sorted({1, width // 4, width // 2, width - 1}):
            if 1 <= smaller < width:
                yield replace(case, hidden=(*case.hidden[:i], smaller, *case.hidden[i + 1 :]))
    for name in ("distinct_rows", "distinct_neurons"):
        if getattr(case, name):
            yield replace(case, **{name: 0})

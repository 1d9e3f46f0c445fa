"""The compared systems as data: what each one learns with, where it was published, and what the paper reports for it.

"Table" and "Figure" without more are those of the CaRe-BN paper. A method fixes what makes it that method (network,
normaliser, sometimes neuron); ``options`` are its values for options that a user may still change.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from carebn.algorithm import ALGORITHMS, Algorithm
from carebn.errors import unknown_name
from carebn.norm import NORMS
from carebn.paper import find_study


def _any(algorithm: Algorithm) -> bool:
    return True


def _has_actor(algorithm: Algorithm) -> bool:
    return not algorithm.discrete


def _has_target_actor(algorithm: Algorithm) -> bool:
    return algorithm.target_actor


def _is_td3(algorithm: Algorithm) -> bool:
    return algorithm is ALGORITHMS["td3"]


@dataclass(frozen=True)
class Score:
    """A published result: average gain over the ANN in per cent, and the five returns behind it (TD3)."""

    where: str
    gain: float | None = None
    returns: tuple[int, ...] = ()  # in the order of the paper's tasks
    neuron: str = ""  # if the same method has a score for several
    text: str = ""  # for a figure that is not a gain

    def short(self) -> str:
        value = self.text or f"{self.gain:+.2f} %"
        return f"{self.neuron} {value}" if self.neuron else value


def _printed(where: str, label: str, neuron: str = "") -> Score:
    """A row of one of the paper's tables."""
    row = find_study(where).row(label)
    return Score(where, row.summary, tuple(round(number.mean) for number in row.published), neuron)


@dataclass(frozen=True)
class Method:
    summary: str
    source: str  # who published it
    scores: tuple[Score, ...] = ()
    norm: str = "none"
    spiking: bool = True
    neuron: str | None = None  # fixed by the method; None: the user's choice
    options: Mapping[str, Any] = field(default_factory=dict)
    by_task: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # more options, by the start of an env id
    fixed: tuple[str, ...] = ()  # options without which it would not be this method
    suits: Callable[[Algorithm], bool] = _any  # whether it is defined for an algorithm
    conversion: Mapping[str, Any] | None = None  # how the trained ANN becomes spiking when the run ends

    @property
    def algorithms(self) -> tuple[str, ...]:
        """Those it is defined for; empty: all."""
        names = tuple(name for name, algorithm in ALGORITHMS.items() if self.suits(algorithm))
        return names if len(names) < len(ALGORITHMS) else ()

    def preset(self, env_id: str) -> dict[str, Any]:
        """Its options for a task."""
        special = [options for task, options in self.by_task.items() if env_id.startswith(task)]
        return {**self.options, **(special[0] if special else {})}

    def differences(self) -> dict[str, Any]:
        """All that distinguishes it from a spiking actor without a normaliser in the paper's framework."""
        network = {} if self.spiking else {"network": "ReLU"}
        norm = {} if self.norm == "none" else {"norm": self.norm}
        neuron = {} if self.neuron is None else {"neuron": self.neuron}
        how = [f"T = {v}" if key == "time_steps" else str(v) for key, v in (self.conversion or {}).items()]
        conversion = {"converted": " ".join(how)} if how else {}
        tasks = {f"{key} ({task})": v for task, more in self.by_task.items() for key, v in more.items()}
        return network | norm | neuron | dict(self.options) | tasks | conversion


CARE_BN = "Xu et al., ICLR 2026"

# Running z-scores for actor and critic, receptive fields that cover them, a read-out of firing rates, and TD3 in
# Spinning Up's form: 10,000 random steps, then 50 updates every 50 steps, begun after the first 1,000.
_ORIGINAL: dict[str, Any] = {
    "observation": "zscore",
    "encoder_range": 3.0,
    "encoder_std": math.sqrt(0.15),
    "encoder_reset": "threshold",
    "readout": "rate",
    "batch_size": 100,
    "actor_learning_rate": 1e-4,
    "critic_learning_rate": 1e-3,
    "random_steps": 10_000,
    "learning_starts": 1_000,
    "update_interval": 50,
}

METHODS: dict[str, Method] = {
    "ann": Method(
        "ordinary ReLU actor",
        "Fujimoto et al., ICML 2018",
        (_printed("Table 1", "ANN"),),
        spiking=False,
    ),
    "ann-care": Method(
        "ordinary ReLU actor with CaRe-BN",
        CARE_BN,
        (_printed("Table 19", "CaRe-BN"),),
        norm="care",
        spiking=False,
    ),
    "ann-snn": Method(
        "ANN converted by local threshold balancing",
        "Bu et al., CVPR 2025",
        (_printed("Table 1", "ANN-SNN"),),
        spiking=False,
        conversion={"rule": "ltb", "time_steps": 100},
    ),
    "crpi": Method(
        "ANN converted, residual potentials carried over",
        "Xu et al., ICML 2026",
        (Score("its own paper, read second-hand; α chosen for each task", text="72.26 % of its ANN at T = 8"),),
        spiking=False,
        conversion={"rule": "max", "time_steps": 8, "residual": "crpi", "alpha": 0.3},
    ),
    "vanilla": Method(
        "spiking actor without a normaliser",
        CARE_BN,
        (
            _printed("Table 16", "Vanilla LIF", "lif"),
            _printed("Table 1", "pop-SAN", "clif"),
            _printed("Table 1", "MDC-SAN", "dn"),
        ),
    ),
    "pop-san": Method(
        "the paper's PopSAN: vanilla with CLIF neurons",
        "Tang et al., CoRL 2020",
        (_printed("Table 1", "pop-SAN"),),
        neuron="clif",
        suits=_has_actor,
    ),
    "mdc-san": Method(
        "the paper's MDC-SAN: vanilla with dynamic neurons",
        "Zhang et al., AAAI 2022",
        (_printed("Table 1", "MDC-SAN"),),
        neuron="dn",
        suits=_has_actor,
    ),
    "ilc-san": Method(
        "the paper's ILC-SAN: connected output populations",
        "Chen et al., TNNLS 2024",
        (_printed("Table 1", "ILC-SAN"),),
        neuron="clif",
        options={"intralayer": "intra"},
        suits=_has_actor,
    ),
    "tdbn": Method(
        "spiking actor with tdBN",
        "Zheng et al., AAAI 2021",
        (
            _printed("Table 1", "tdBN", "clif"),
            _printed("Table 16", "tdBN", "lif"),
        ),
        norm="tdbn",
    ),
    "bntt": Method(
        "spiking actor with BNTT",
        "Kim and Panda, Front. Neurosci. 2021",
        (
            _printed("Table 1", "BNTT", "clif"),
            _printed("Table 16", "BNTT", "lif"),
        ),
        norm="bntt",
    ),
    "tebn": Method(
        "spiking actor with TEBN",
        "Duan et al., NeurIPS 2022",
        (
            _printed("Table 1", "TEBN", "clif"),
            _printed("Table 16", "TEBN", "lif"),
        ),
        norm="tebn",
    ),
    "tab": Method(
        "spiking actor with TAB",
        "Jiang et al., ICLR 2024",
        (
            _printed("Table 1", "TABN", "clif"),
            _printed("Table 16", "TABN", "lif"),
        ),
        norm="tab",
    ),
    "bn": Method(
        "spiking actor with plain batch norm",
        "Ioffe and Szegedy, ICML 2015",
        (Score("Figure 6 (c), read second-hand", text="92.2 % of care-bn"),),
        norm="bn",
    ),
    "ca": Method(
        "CaRe-BN without re-calibration",
        CARE_BN,
        (Score("Figure 6 (c), read second-hand", text="95.3 % of care-bn"),),
        norm="ca",
    ),
    "re": Method(
        "plain batch norm with re-calibration",
        CARE_BN,
        (Score("Figure 6 (c), read second-hand", text="94.0 % of care-bn"),),
        norm="re",
    ),
    "care-bn": Method(
        "spiking actor with CaRe-BN",
        CARE_BN,
        (
            _printed("Table 1", "CaRe-BN", "clif"),
            _printed("Table 16", "CaRe-BN", "lif"),
        ),
        norm="care",
    ),
    "proxy-target": Method(
        "spiking actor, an imitating ANN as its target",
        "Xu et al., NeurIPS 2025",
        (
            Score("its own Table 1", 5.84, (9348, 5383, 10103, 3385, 4314), "lif"),
            Score("its own Table 1", 5.46, (9351, 5014, 9663, 3526, 4564), "clif"),
            Score("its own Table 1", 5.06, (9350, 5400, 9347, 3507, 4277), "dn"),
        ),
        options={"neuron": "lif", "target": "proxy"},
        fixed=("target",),
        suits=_has_target_actor,
    ),
    "pop-san-original": Method(
        "PopSAN as its authors ran it",
        "Tang et al., CoRL 2020",
        (Score("its own paper; Ant 5416, HalfCheetah 10729, Walker2d 4995", text="Hopper 3599 in its own paper"),),
        neuron="clif",
        options=_ORIGINAL,
        by_task={"Hopper": {"coding": "poisson"}, "Walker2d": {"coding": "poisson"}},
        suits=_is_td3,
    ),
    "mdc-san-original": Method(
        "MDC-SAN as its authors ran it",
        "Zhang et al., AAAI 2022",
        (Score("its own paper; Ant 5628, HalfCheetah 11657, Walker2d 5566", text="Hopper 3636 in its own paper"),),
        neuron="dn",
        options=_ORIGINAL | {"coding": "analogue"},
        suits=_is_td3,
    ),
    "ilc-san-original": Method(
        "ILC-SAN as its authors ran it",
        "Chen et al., TNNLS 2024",
        neuron="clif",
        options=_ORIGINAL | {"readout": "membrane", "readout_init": "torch", "intralayer": "intra"},
        suits=_is_td3,
    ),
}


def all_methods() -> dict[str, Method]:
    """The published ones, and a spiking actor with each normaliser that none of them has, under its own name."""
    published = {method.norm for method in METHODS.values()}
    return METHODS | {
        name: Method(f"spiking actor with {name}", f"normaliser of {norm.__module__}", norm=name)
        for name, norm in NORMS.items()
        if name not in published and name not in METHODS
    }


def find_method(name: str) -> Method:
    methods = all_methods()
    if name not in methods:
        raise ValueError(unknown_name("method", name, methods))
    return methods[name]

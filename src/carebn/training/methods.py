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

TASKS = ("InvertedDoublePendulum-v4", "Ant-v4", "HalfCheetah-v4", "Hopper-v4", "Walker2d-v4")


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
    returns: tuple[int, ...] = ()  # in the order of TASKS
    neuron: str = ""  # if the same method has a score for several
    text: str = ""  # for a figure that is not a gain

    def short(self) -> str:
        value = self.text or f"{self.gain:+.2f} %"
        return f"{self.neuron} {value}" if self.neuron else value


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
        (Score("Table 1", 0.0, (7503, 4770, 10857, 3410, 4340)),),
        spiking=False,
    ),
    "ann-care": Method(
        "ordinary ReLU actor with CaRe-BN",
        CARE_BN,
        (Score("Table 19", -0.69, (9360, 5014, 10458, 3436, 3021)),),
        norm="care",
        spiking=False,
    ),
    "ann-snn": Method(
        "ANN converted by local threshold balancing",
        "Bu et al., CVPR 2025",
        (Score("Table 1", -21.11, (3859, 3550, 8703, 3098, 4235)),),
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
            Score("Table 16", -7.08, (9347, 4243, 9073, 3507, 2807), "lif"),
            Score("Table 1", -6.66, (9351, 4590, 9594, 2772, 3307), "clif"),
            Score("Table 1", 0.37, (9350, 4800, 9147, 3446, 3964), "dn"),
        ),
    ),
    "pop-san": Method(
        "the paper's PopSAN: vanilla with CLIF neurons",
        "Tang et al., CoRL 2020",
        (Score("Table 1", -6.66, (9351, 4590, 9594, 2772, 3307)),),
        neuron="clif",
        suits=_has_actor,
    ),
    "mdc-san": Method(
        "the paper's MDC-SAN: vanilla with dynamic neurons",
        "Zhang et al., AAAI 2022",
        (Score("Table 1", 0.37, (9350, 4800, 9147, 3446, 3964)),),
        neuron="dn",
        suits=_has_actor,
    ),
    "ilc-san": Method(
        "the paper's ILC-SAN: connected output populations",
        "Chen et al., TNNLS 2024",
        (Score("Table 1", 4.64, (9352, 5584, 9222, 3403, 4200)),),
        neuron="clif",
        options={"intralayer": "intra"},
        suits=_has_actor,
    ),
    "tdbn": Method(
        "spiking actor with tdBN",
        "Zheng et al., AAAI 2021",
        (
            Score("Table 1", -2.28, (9346, 4403, 9402, 3592, 3464), "clif"),
            Score("Table 16", 1.65, (9346, 4876, 8845, 3601, 4098), "lif"),
        ),
        norm="tdbn",
    ),
    "bntt": Method(
        "spiking actor with BNTT",
        "Kim and Panda, Front. Neurosci. 2021",
        (
            Score("Table 1", -1.62, (9347, 4379, 9466, 3524, 3689), "clif"),
            Score("Table 16", 1.22, (9348, 5244, 9339, 3593, 3480), "lif"),
        ),
        norm="bntt",
    ),
    "tebn": Method(
        "spiking actor with TEBN",
        "Duan et al., NeurIPS 2022",
        (
            Score("Table 1", 0.69, (9349, 4408, 9452, 3472, 4235), "clif"),
            Score("Table 16", 0.69, (9347, 4408, 9452, 3472, 4235), "lif"),
        ),
        norm="tebn",
    ),
    "tab": Method(
        "spiking actor with TAB",
        "Jiang et al., ICLR 2024",
        (
            Score("Table 1", 3.25, (9348, 4382, 9784, 3585, 4537), "clif"),
            Score("Table 16", -1.64, (9347, 4431, 9173, 3474, 3818), "lif"),
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
            Score("Table 1", 5.90, (9348, 5373, 9563, 3586, 4296), "clif"),
            Score("Table 16", 3.92, (9346, 5083, 8813, 3489, 4556), "lif"),
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

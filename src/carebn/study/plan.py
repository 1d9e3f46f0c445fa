"""Which runs docs/results.md is made of, and at which budget: written down before they are made.

What is planned and not there is said to be missing; what is there and not planned is shown apart.
"""

from dataclasses import dataclass
from typing import Any

from carebn.paper.facts import ATARI, IDP, STEPS
from carebn.paper.records import Variant
from carebn.study.cells import OUTSIDE_THE_CELL, Budget, identity

# By the name that the plan and the claims have for it.
LABELS = {
    "care-bn": "CaRe-BN", "ca": "Ca-BN", "re": "Re-BN", "bn": "BN", "pop-san": "pop-SAN", "vanilla": "no normaliser",
    "ann": "ANN", "bn@0.01": "BN (momentum 0.01)", "bn@0.5": "BN (momentum 0.5)", "ca@0.2": "Ca-BN (momentum 0.2)",
}  # fmt: skip
WITHOUT_NORM = ("ann", "pop-san", "vanilla")  # whose statistics cannot be measured: they keep none
NEURONS = {"td3": "clif", "ddpg": "clif", "dqn": "lif"}  # of spiking networks, by algorithm


@dataclass(frozen=True)
class Task:
    """Several methods on one environment at one budget; ``bn@0.5`` is the method with that momentum."""

    env_id: str
    algo: str
    scale: float  # the part of the paper's budget
    names: tuple[str, ...]
    seeds: int
    measure: tuple[str, ...] = ()

    @property
    def budget(self) -> Budget:
        return Budget.scaled(self.scale)

    @property
    def title(self) -> str:
        return f"{self.env_id.removeprefix('ALE/')}, {self.algo.upper()}, {self.budget}"

    @property
    def file(self) -> str:
        """What its picture is called."""
        return f"{self.env_id.removeprefix('ALE/')}-{self.algo}-{self.budget.total_timesteps}"

    def variant(self, name: str) -> Variant:
        method = name.partition("@")[0]
        return Variant(method, self.algo, "default" if method == "ann" else NEURONS[self.algo])

    def holds(self, config: dict[str, Any], name: str) -> bool:
        """Whether a run with this ``config.json`` is one of ``name`` in this task."""
        ours = dict(identity(self.variant(name), self.env_id))
        method, _, momentum = name.partition("@")
        if momentum:
            ours["norm_momentum"] = float(momentum)
            if "norm_momentum" not in config:
                return False
        if method == "pop-san" and config.get("method") == "vanilla":
            ours["method"] = "vanilla"  # with CLIF neurons it is the same network by another name
        known = (key in OUTSIDE_THE_CELL or (key in ours and ours[key] == value) for key, value in config.items())
        return all(known) and Budget.of(config) == self.budget

    def command(self, name: str) -> str:
        """Makes one of its runs; SEED counts from 0."""
        method, _, momentum = name.partition("@")
        budget = self.budget
        words = ["carebn train", f"--env-id {self.env_id}", f"--algo {self.algo}", f"--method {method}"]
        words += [] if method == "ann" else [f"--neuron {NEURONS[self.algo]}"]
        words += [f"--norm-momentum {momentum}"] if momentum else []
        words += [f"--total-timesteps {budget.total_timesteps}", f"--learning-starts {budget.learning_starts}"]
        words += [f"--eval-interval {budget.eval_interval}", f"--checkpoint-interval {budget.eval_interval}"]
        words += [f"--measure {' '.join(self.measure)}"] if self.measure and method not in WITHOUT_NORM else []
        return " ".join([*words, "--seed SEED"])


_ATARI_SCALE = 200_000 / STEPS

PLAN = (
    Task("Hopper-v4", "td3", 0.1, ("ann", "pop-san", "bn", "care-bn"), seeds=5),
    Task("Walker2d-v4", "td3", 0.1, ("pop-san", "bn", "care-bn"), seeds=3),
    Task(IDP, "td3", 0.03, ("ann", "pop-san", "bn", "ca", "re", "care-bn"), seeds=5, measure=("wasserstein",)),
    Task("Walker2d-v4", "ddpg", 0.1, ("pop-san", "care-bn"), seeds=3),
    Task("Ant-v4", "td3", 0.03, ("bn@0.01", "bn", "bn@0.5", "ca", "ca@0.2", "care-bn"), seeds=2,
         measure=("wasserstein",)),
    *(Task(game, "dqn", _ATARI_SCALE, ("vanilla", "care-bn"), seeds=3) for game in ATARI[:2]),
)  # fmt: skip

"""From a cell of a study to the configuration of its run: the paper's, at a budget that one can afford."""

from dataclasses import dataclass, fields
from functools import cache
from typing import Any, Self

from carebn.limits import STEPS, check_work
from carebn.paper import STUDIES
from carebn.paper.records import Cell, Variant
from carebn.study.same_cell import NOT_OF_THE_CELL
from carebn.training.config import IF_GIVEN, TrainConfig
from carebn.training.methods import METHODS

FEWEST_EVALUATIONS = 20  # of a run, however short: a curve needs points


@cache
def _paper() -> TrainConfig:
    """The defaults, filled in once: thousands of runs are compared with them."""
    return TrainConfig().checked()


@dataclass(frozen=True, order=True)
class Budget:
    """How long a run learns."""

    total_timesteps: int
    learning_starts: int
    eval_interval: int

    @classmethod
    def scaled(cls, scale: float) -> Self:
        """The paper's budget times ``scale``. Evaluations, and the re-calibrations that go with them, stay 5000 steps
        apart as published, unless a run would then have fewer than twenty."""
        if not 0 < scale < float("inf"):
            raise ValueError(f"--scale must be above zero and finite, got {scale:g}; 1 is the paper's budget")
        paper = _paper()
        check_work(f"--scale {scale:g}: a run of", round(min(paper.total_timesteps * scale, 1e30)), STEPS)
        assert paper.learning_starts is not None
        total = max(1, round(paper.total_timesteps * scale))
        return cls(
            total_timesteps=total,
            learning_starts=max(2, round(paper.learning_starts * scale)),
            eval_interval=max(1, min(paper.eval_interval, total // FEWEST_EVALUATIONS)),
        )

    @classmethod
    def of(cls, config: dict[str, Any]) -> Self:
        """Of a run's ``config.json``; what it leaves out is as in the paper."""
        paper = _paper()
        return cls(**{f.name: int(config.get(f.name, getattr(paper, f.name))) for f in fields(cls)})

    def scale(self) -> float | None:
        """The part of the paper's budget that it is; None if no scale gives it."""
        scale = float(f"{self.total_timesteps / _paper().total_timesteps:g}")
        return scale if scale > 0 and Budget.scaled(scale) == self else None

    def options(self) -> dict[str, int]:
        """Checkpoints come with evaluations, so that a killed run of any length loses a twentieth at most."""
        paper = _paper()
        return {
            "total_timesteps": self.total_timesteps,
            "learning_starts": self.learning_starts,
            "eval_interval": self.eval_interval,
            "checkpoint_interval": min(paper.checkpoint_interval, self.eval_interval),
            "log_interval": min(paper.log_interval, self.eval_interval),
        }

    def __str__(self) -> str:
        return f"{self.total_timesteps:,} steps"


# Options that do not decide which cell of a study a run belongs to: its seed, its budget, how it was carried out.
OUTSIDE_THE_CELL = {*NOT_OF_THE_CELL, "total_timesteps", "learning_starts", "random_steps", "eval_interval"}


def lacks_method(variant: Variant) -> str:
    """Why the variant cannot be run, if this version does not have its method."""
    return "" if variant.method in METHODS else f"this version has no method {variant.method!r}"


def conversion_steps(variant: Variant) -> int | None:
    """Of a method whose score is one evaluation of its final policy, converted: it has no maximum over training."""
    conversion = METHODS[variant.method].conversion if variant.method in METHODS else None
    return None if conversion is None else int(conversion["time_steps"])


@cache
def _measured() -> frozenset[tuple[Variant, str]]:
    """Cells whose runs measure Wasserstein distances: in whichever study they are run first, because measuring changes
    nothing in a run and cannot be made up for afterwards."""
    studies = [study for study in STUDIES.values() if "wasserstein" in study.measure]
    return frozenset((cell.variant, cell.env_id) for study in studies for cell in study.cells())


def config_of(cell: Cell, budget: Budget) -> TrainConfig:
    """The full configuration."""
    options: dict[str, Any] = dict(budget.options())
    if cell.variant.time_steps is not None:
        options["time_steps"] = cell.variant.time_steps
    if cell.variant.target_rate is not None:
        options["target_rate"] = (cell.variant.target_rate,)
    if (cell.variant, cell.env_id) in _measured():
        options["measure"] = ("wasserstein",)
    config = TrainConfig(
        env_id=cell.env_id,
        algo=cell.variant.algo,
        method=cell.variant.method,
        neuron=cell.variant.neuron,
        seed=cell.seed,
        quiet=True,
        **options,
    )
    return config.checked()


@cache
def identity(variant: Variant, env_id: str) -> dict[str, Any]:
    """The options that all runs of this cell share."""
    config = config_of(Cell(variant, env_id, 0), Budget.scaled(1)).as_json()
    return {name: value for name, value in config.items() if name not in OUTSIDE_THE_CELL}


def belongs(config: dict[str, Any], variant: Variant, env_id: str) -> bool:
    """Whether a run with this ``config.json`` is a run of the cell. An option that it lacks, because an older version
    wrote it, counts as the default; one that this version does not know makes it a run of something else."""
    ours = identity(variant, env_id)
    if any(name in ours and name not in config for name in IF_GIVEN):
        return False
    return all(name in OUTSIDE_THE_CELL or (name in ours and ours[name] == value) for name, value in config.items())

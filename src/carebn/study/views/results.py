"""All that docs/results.md says, as numbers: verdicts, curves, what is missing, and what all would take."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from carebn.study.claims import Verdict
from carebn.study.evidence.measured import Measured
from carebn.study.evidence.quantities import QUANTITIES
from carebn.study.evidence.runs import RunRecord, Runs
from carebn.study.plan import LABELS, Task
from carebn.study.views.curves import Curve, Trace, evaluation_traces, mean_curve
from carebn.study.views.planned import FullBudget, Inventory, full_budgets, take_inventory
from carebn.study.views.verdicts import Judged, Sample, judge_all

POINTS = 200  # of a curve, at most
SEED_SCORES = ("max", "final", "area")  # told for every seed


@dataclass(frozen=True)
class TaskCurve:
    label: str
    mean: Curve
    seeds: list[Trace]


@dataclass(frozen=True)
class SeedRow:
    """One run, complete or not."""

    label: str
    run: RunRecord
    scores: list[float]  # in the order of SEED_SCORES; of an unfinished run none
    place: str  # its directory, below the one that was asked for


@dataclass(frozen=True)
class TaskResult:
    """One task of the plan of which there is a run."""

    task: Task
    curves: list[TaskCurve]
    samples: dict[str, list[Sample]]  # by the names in SEED_SCORES: one for each method with a complete run
    seeds: list[SeedRow]


@dataclass(frozen=True)
class Results:
    runs: Runs
    inventory: Inventory
    judged: list[Judged]
    tasks: list[TaskResult]
    budgets: list[FullBudget]
    measured: Measured
    others: list[SeedRow]

    @property
    def headline(self) -> TaskResult | None:
        """The task with the most steps in complete runs; among equals the first of the plan."""
        return max(
            self.tasks, key=lambda one: sum(row.run.total for row in one.seeds if row.run.complete), default=None
        )

    def tally(self) -> Counter[Verdict]:
        return Counter(one.verdict for one in self.judged)


def view_results(runs: Runs, measured: Measured) -> Results:
    inventory = take_inventory(runs.records)
    return Results(
        runs=runs,
        inventory=inventory,
        judged=judge_all(inventory.complete()),
        tasks=[_task(task, inventory) for task in inventory.tasks()],
        budgets=full_budgets(runs.records),
        measured=measured,
        others=[_row(run.method, run) for run in inventory.others],
    )


def _task(task: Task, inventory: Inventory) -> TaskResult:
    curves, rows = [], []
    samples: dict[str, list[Sample]] = {name: [] for name in SEED_SCORES}
    for found in inventory.of(task):
        label = LABELS[found.name]
        mean = mean_curve(evaluation_traces(found.complete), POINTS)
        if mean is not None:
            curves.append(TaskCurve(label, mean, evaluation_traces(found.complete)))
            for name in SEED_SCORES:
                samples[name].append(Sample.of(found.name, found.complete, QUANTITIES[name]))
        rows += [_row(label, run) for run in (*found.complete, *found.unfinished)]
    return TaskResult(task, curves, samples, rows)


def _row(label: str, run: RunRecord) -> SeedRow:
    scores = [QUANTITIES[name].of(run) for name in SEED_SCORES] if run.complete else []
    told: Sequence[float] = [score for score in scores if score is not None]
    return SeedRow(label, run, list(told), f"{run.directory.parent.name}/{run.directory.name}")

"""The plan beside the runs that there are: what is complete, what is missing, what else there is, and how long."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from carebn.paper.facts import STEPS
from carebn.study.evidence.runs import RunRecord
from carebn.study.plan import PLAN, Task

PAPER_SEEDS = 5


@dataclass(frozen=True)
class Found:
    """The runs of one name of a task."""

    task: Task
    name: str
    complete: list[RunRecord]  # a seed each, ascending
    unfinished: list[RunRecord]

    @property
    def missing(self) -> int:
        return max(0, self.task.seeds - len(self.complete))


@dataclass(frozen=True)
class Inventory:
    found: list[Found]  # in the order of the plan
    others: list[RunRecord]  # at another budget, of another method: they decide nothing

    def complete(self) -> dict[tuple[Task, str], list[RunRecord]]:
        return {(one.task, one.name): one.complete for one in self.found if one.complete}

    def of(self, task: Task) -> list[Found]:
        return [one for one in self.found if one.task == task]

    def tasks(self) -> list[Task]:
        """Those of which there is a complete run."""
        return [task for task in PLAN if any(one.complete for one in self.of(task))]


def take_inventory(records: Sequence[RunRecord]) -> Inventory:
    left = list(records)
    found = []
    for task in PLAN:
        for name in task.names:
            mine = [run for run in left if run.env_id == task.env_id and task.holds(run.config, name)]
            taken = {run.directory for run in mine}
            left = [run for run in left if run.directory not in taken]
            by_seed: dict[int, RunRecord] = {}
            for run in mine:
                if run.complete:
                    by_seed.setdefault(run.seed, run)  # a copy of a run is not another run
            unfinished = [run for run in mine if run.seed not in by_seed]
            found.append(Found(task, name, [by_seed[seed] for seed in sorted(by_seed)], unfinished))
    return Inventory(found, left)


@dataclass(frozen=True)
class FullBudget:
    """What the runs of a task would take at the paper's budget and with its five seeds, on one core."""

    task: Task
    runs: int
    hours: float | None  # None: there is no run to tell the speed of one of its methods
    guessed: bool  # some methods are taken to be as fast as in another task, or as others of their kind


def full_budgets(records: Sequence[RunRecord]) -> list[FullBudget]:
    """From the wall clock of the runs that there are: of the same task and method, else of the same algorithm and
    method, else of the same kind of network."""
    own: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    exact: dict[tuple[str, str], list[float]] = defaultdict(list)
    alike: dict[tuple[str, bool], list[float]] = defaultdict(list)
    for run in records:
        if run.speed:
            own[run.env_id, run.algo, run.method].append(1 / run.speed)
            exact[run.algo, run.method].append(1 / run.speed)
            alike[run.algo, run.neuron == "none"].append(1 / run.speed)
    budgets = []
    for task in PLAN:
        seconds, guessed = 0.0, False
        for name in task.names:
            method = name.partition("@")[0]
            known = own.get((task.env_id, task.algo, method))
            guessed |= known is None
            known = known or exact.get((task.algo, method)) or alike.get((task.algo, method == "ann"))
            seconds += PAPER_SEEDS * STEPS * median(known) if known else float("nan")
        hours = seconds / 3600 if seconds == seconds else None
        budgets.append(FullBudget(task, PAPER_SEEDS * len(task.names), hours, guessed and hours is not None))
    return budgets

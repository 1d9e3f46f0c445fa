"""Every claim of the paper beside the runs that were planned for it: samples, intervals and a verdict each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from carebn.study.claims import (
    CLAIMS,
    FEWEST_SEEDS,
    Claim,
    Statistic,
    Verdict,
    verdict,
    verdict_against_all,
)
from carebn.study.evidence.quantities import QUANTITIES, Quantity
from carebn.study.evidence.runs import RunRecord
from carebn.study.evidence.statistics import (
    Estimate,
    difference_of_iqm,
    difference_of_spread,
    iqm,
    probability_of_improvement,
    ratio_of_iqm,
    relative_variance,
)
from carebn.study.plan import PLAN, Task

Runs = Mapping[tuple[Task, str], Sequence[RunRecord]]  # complete ones, a seed each


@dataclass(frozen=True)
class Sample:
    """One number for each seed."""

    name: str  # in the plan
    by_seed: dict[int, float]
    iqm: Estimate | None  # of one seed the interval is the value itself; None: there is no seed
    spread: float | None  # standard deviation over seeds in per cent of the mean; one seed has none

    @classmethod
    def of(cls, name: str, runs: Sequence[RunRecord], quantity: Quantity) -> "Sample":
        numbers = {run.seed: quantity.of(run) for run in runs}
        known = {seed: number for seed, number in numbers.items() if number is not None}
        values = {"": list(known.values())}
        return cls(name, known, iqm(values, [""]), relative_variance(values, [""]))


@dataclass(frozen=True)
class OnTask:
    """Two samples of one task."""

    task: Task
    ours: Sample
    theirs: Sample
    estimate: Estimate | None  # of the claim's statistic
    difference: Estimate | None  # of the interquartile means, ours less theirs
    counts: bool  # there are seeds enough to decide by it
    verdict: Verdict  # of this task alone


@dataclass(frozen=True)
class Against:
    """One quantity against one other method: task by task, and over those that count."""

    quantity: Quantity
    theirs: str
    tasks: list[OnTask]
    estimate: Estimate | None
    verdict: Verdict

    @property
    def counted(self) -> list[OnTask]:
        return [one for one in self.tasks if one.counts]

    @property
    def begun(self) -> list[OnTask]:
        """With a number of either side."""
        return [one for one in self.tasks if one.ours.by_seed and one.theirs.by_seed]


@dataclass(frozen=True)
class Judged:
    claim: Claim
    against: dict[str, list[Against]]  # by quantity, in the claim's order: one for each of the others
    verdicts: dict[str, Verdict]  # by quantity

    @property
    def verdict(self) -> Verdict:
        """By the quantity that decides."""
        return self.verdicts[self.claim.quantities[0]]


def judge_all(runs: Runs) -> list[Judged]:
    return [judge(claim, runs) for claim in CLAIMS]


def judge(claim: Claim, runs: Runs) -> Judged:
    wanted = {claim.ours, *claim.theirs}
    tasks = [task for task in PLAN if task.algo == claim.algo and wanted <= set(task.names)]
    against = {
        name: [_against(claim, QUANTITIES[name], theirs, tasks, runs) for theirs in claim.theirs]
        for name in claim.quantities
    }
    verdicts = {name: verdict_against_all([one.verdict for one in each]) for name, each in against.items()}
    return Judged(claim, against, verdicts)


def _against(claim: Claim, quantity: Quantity, theirs: str, tasks: Sequence[Task], runs: Runs) -> Against:
    compared = [_on_task(claim, quantity, theirs, task, runs) for task in tasks]
    counted = {one.task.title: one for one in compared if one.counts}
    ours = {title: list(one.ours.by_seed.values()) for title, one in counted.items()}
    others = {title: list(one.theirs.by_seed.values()) for title, one in counted.items()}
    estimate = _estimate(claim.statistic, quantity, ours, others) if counted else None
    return Against(quantity, theirs, compared, estimate, verdict(estimate, claim.statistic))


def _on_task(claim: Claim, quantity: Quantity, theirs: str, task: Task, runs: Runs) -> OnTask:
    sample, other = (Sample.of(name, runs.get((task, name), ()), quantity) for name in (claim.ours, theirs))
    values, others = {"": list(sample.by_seed.values())}, {"": list(other.by_seed.values())}
    estimate = _estimate(claim.statistic, quantity, values, others)
    counts = estimate is not None and min(len(sample.by_seed), len(other.by_seed)) >= FEWEST_SEEDS
    alone = verdict(estimate if counts else None, claim.statistic)
    return OnTask(task, sample, other, estimate, difference_of_iqm(values, others, [""]), counts, alone)


Values = dict[str, list[float]]


def _estimate(statistic: Statistic, quantity: Quantity, ours: Values, theirs: Values) -> Estimate | None:
    """So that a claim that holds lies on its own side of what is between."""
    tasks = list(ours)
    if statistic == "spread":
        return difference_of_spread(ours, theirs, tasks)
    if statistic == "ratio":
        return ratio_of_iqm(ours, theirs, tasks)
    better, worse = (ours, theirs) if quantity.more_is_better else (theirs, ours)
    return probability_of_improvement(better, worse, tasks)

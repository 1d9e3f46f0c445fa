"""From runs to the cells of a study: which runs count for which number, and why others do not."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from carebn.paper.records import Row, Study
from carebn.study.cells import Budget, belongs, conversion_steps, lacks_method
from carebn.study.evidence.measured import Distribution, Firing, Measured, energy_of, firing_of
from carebn.study.evidence.runs import RunRecord
from carebn.study.evidence.scores import SCORES

Found = TypeVar("Found")


@dataclass(frozen=True)
class CellRuns:
    """The runs of one row in one environment."""

    complete: list[RunRecord] = field(default_factory=list)  # at one budget, a seed each
    unfinished: list[RunRecord] = field(default_factory=list)  # begun, and not counted
    budget: Budget | None = None
    mixed: bool = False  # complete runs at several budgets: none is counted


@dataclass(frozen=True)
class Gathered:
    """All runs of a study, cell by cell."""

    study: Study
    envs: tuple[str, ...]
    cells: dict[tuple[Row, str], CellRuns]
    problems: list[str]  # a sentence each
    measured: Measured = field(default_factory=Measured)
    energies: dict[tuple[Row, str], list[float]] = field(default_factory=dict)  # nJ per decision, one per seed
    firing: dict[tuple[Row, str], list[tuple[RunRecord, Firing]]] = field(default_factory=dict)

    def cell(self, row: Row, env_id: str) -> CellRuns:
        return self.cells.get((row, env_id), CellRuns())

    def envs_of(self, row: Row) -> tuple[str, ...]:
        return tuple(env for env in self.study.envs_of(row) if env in self.envs)

    def scores(self, row: Row, score: str) -> dict[str, list[float]]:
        """Per environment, one score per seed; an environment without a complete run is absent."""
        found = {env: self.cell(row, env).complete for env in self.envs_of(row)}
        return {env: [SCORES[score].of(run) for run in runs] for env, runs in found.items() if runs}

    def comparable(self, row: Row, other: Row, score: str) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
        """The scores of either, as far as they may be compared: runs with runs of the same budget, and the final
        policies of a method that converts them with final ones."""
        if any(conversion_steps(each.variant) is not None for each in (row, other)):
            score = "final"
        theirs = {
            env: scores
            for env, scores in self.scores(other, score).items()
            if self.cell(row, env).budget in (None, self.cell(other, env).budget)
        }
        return self.scores(row, score), theirs

    def costs(self) -> dict[Row, tuple[float, float | None]]:
        """Seconds per 5000 steps and MiB, of the rows that were measured for the study's task."""
        costs = self.measured.costs
        if costs is None:
            return {}
        found = {}
        for row in self.study.rows:
            measured = costs.by_method.get((row.variant.method, row.variant.neuron))
            if measured is not None and (costs.env_id, costs.algo) == (self.study.envs[0], row.variant.algo):
                found[row] = measured
        return found

    def distributions(self) -> dict[Row, Distribution]:
        """What was measured on a run of each row; the first where there are several."""
        found: dict[Row, Distribution] = {}
        for row in self.study.rows:
            for one in self.measured.distributions:
                if belongs(one.config, row.variant, self.study.envs[0]):
                    found.setdefault(row, one)
        return found

    def budgets(self) -> list[Budget]:
        return sorted({cell.budget for cell in self.cells.values() if cell.budget is not None and cell.complete})


def gather(
    study: Study,
    records: Iterable[RunRecord],
    scale: float | None = None,
    envs: tuple[str, ...] | None = None,
    seeds: int | None = None,
    measured: Measured | None = None,
) -> Gathered:
    """Sort the runs into the study's cells. Runs of one cell at several budgets are not averaged: with ``scale`` only
    that budget counts, and without it the cell is empty and ``problems`` says so."""
    wanted = None if scale is None else Budget.scaled(scale)
    problems = []
    by_place: dict[tuple[str, str, str], list[RunRecord]] = defaultdict(list)
    for record in records:
        by_place[record.env_id, record.algo, record.method].append(record)
    cells: dict[tuple[Row, str], CellRuns] = {}
    mixed: dict[tuple[Budget, ...], dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for row in study.all_rows():
        if lacks_method(row.variant):
            problems.append(f"{row.label} is missing: {lacks_method(row.variant)}")
            continue
        for env_id in study.envs_of(row):
            if envs is not None and env_id not in envs:
                continue
            near = by_place.get((env_id, row.variant.algo, row.variant.method), [])
            runs = [
                run
                for run in near
                if belongs(run.config, row.variant, env_id)
                and (seeds is None or run.seed < seeds)
                and (wanted is None or Budget.of(run.config) == wanted)
            ]
            cell = _cell(runs)
            if cell.mixed:
                mixed[tuple(sorted({Budget.of(run.config) for run in runs if run.complete}))][row.label].append(env_id)
            cells[row, env_id] = cell
    problems += [_mixed(budgets, places) for budgets, places in mixed.items()]
    shown = study.envs if envs is None else tuple(env for env in study.envs if env in envs)
    energies, firing = {}, {}
    if study.kind == "energy":
        counted = _counted(cells, problems, energy_of)
        energies = {place: [energy for _, energy in found] for place, found in counted.items()}
    elif study.kind == "sparsity":
        firing = _counted(cells, problems, firing_of)
    problems += _unmeasured(study, cells)
    return Gathered(study, shown, cells, problems, measured or Measured(), energies, firing)


def _counted(
    cells: dict[tuple[Row, str], CellRuns], problems: list[str], of: Callable[[RunRecord], Found | None]
) -> dict[tuple[Row, str], list[tuple[RunRecord, Found]]]:
    """What ``carebn energy`` counted of complete runs; ``problems`` tells of the others."""
    found: dict[tuple[Row, str], list[tuple[RunRecord, Found]]] = defaultdict(list)
    uncounted = 0
    for place, cell in cells.items():
        for run in cell.complete:
            try:
                counted = of(run)
            except ValueError as error:
                problems.append(str(error))
                continue
            if counted is None:
                uncounted += 1
            else:
                found[place].append((run, counted))
    if uncounted:
        all_ = sum(len(cell.complete) for cell in cells.values())
        problems.append(f"{uncounted} of {all_} runs have no energy.json: carebn energy RUN makes it")
    return dict(found)


def _unmeasured(study: Study, cells: dict[tuple[Row, str], CellRuns]) -> list[str]:
    """What runs of a study lack that cannot be made up for afterwards."""
    complete = [run for cell in cells.values() for run in cell.complete]
    told = []
    for name in study.measure:
        without = sum(not (run.directory / f"measure-{name}.jsonl").exists() for run in complete)
        if without:
            told.append(f"{without} of {len(complete)} runs were made without --measure {name}")
    return told


def _cell(runs: list[RunRecord]) -> CellRuns:
    unfinished = [run for run in runs if not run.complete]
    by_budget: dict[Budget, dict[int, RunRecord]] = defaultdict(dict)
    for run in runs:
        if run.complete:
            by_budget[Budget.of(run.config)].setdefault(run.seed, run)  # a copy of a run is not another run
    if len(by_budget) > 1:
        return CellRuns(unfinished=unfinished, mixed=True)
    if not by_budget:
        return CellRuns(unfinished=unfinished)
    [(budget, by_seed)] = by_budget.items()
    return CellRuns([by_seed[seed] for seed in sorted(by_seed)], unfinished, budget)


def _mixed(budgets: Sequence[Budget], places: dict[str, list[str]]) -> str:
    """One sentence for all cells that have the same budgets, and how to choose."""
    where = ", ".join(f"{label} on {' and '.join(envs)}" for label, envs in places.items())
    have = "has" if sum(map(len, places.values())) == 1 else "have"
    scales = " or ".join(f"--scale {scale:g}" for budget in budgets if (scale := budget.scale()) is not None)
    choose = f"choose one with {scales}" if scales else "keep those of one budget in a directory of their own"
    return f"{where} {have} runs at several budgets ({_spelled(budgets)}), which are not averaged: {choose}"


def _spelled(budgets: Sequence[Budget]) -> str:
    if len({budget.total_timesteps for budget in budgets}) == len(budgets):
        return " and ".join(map(str, budgets))
    return " and ".join(
        f"{b}, learning from step {b.learning_starts:,}, evaluated every {b.eval_interval:,}" for b in budgets
    )

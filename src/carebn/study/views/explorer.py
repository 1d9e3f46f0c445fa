"""All runs as they are, whether or not the paper has them: by environment, a line for each configuration."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from carebn.study.evidence.runs import RunRecord
from carebn.study.evidence.statistics import LAST, max_average_return, mean_and_std, mean_of_last
from carebn.study.same_cell import NOT_OF_THE_CELL
from carebn.study.views.curves import Curve, evaluation_traces, exploration_traces, mean_curve, thinned

METHOD_LABELS = {
    "care-bn": "CaRe-BN", "ca": "Ca-BN", "re": "Re-BN", "bn": "BN", "tdbn": "tdBN", "bntt": "BNTT", "tebn": "TEBN",
    "tab": "TAB", "vanilla": "no normaliser", "pop-san": "pop-SAN", "mdc-san": "MDC-SAN", "ilc-san": "ILC-SAN",
    "ann": "ANN", "ann-snn": "ANN-SNN", "crpi": "CRPI", "ann-care": "ANN + CaRe-BN",
}  # fmt: skip
EXPLORATION_BINS = 50
# Of how long a run learns, its steps alone are told, unless two lines differ in nothing else.
FOLLOW_THE_BUDGET = ("learning_starts", "random_steps", "eval_interval")
FEWEST_POINTS, MOST_POINTS, ALL_POINTS = 40, 250, 60_000  # per line, and over all lines: bounds the page
FEWEST_OF_A_SEED = 15  # points


@dataclass(frozen=True)
class SeedLine:
    """One run by itself."""

    seed: int
    steps: list[float]
    returns: list[float]
    seconds: list[float] | None  # of wall clock until then; None: not recorded


@dataclass(frozen=True)
class Line:
    label: str
    evaluation: Curve | None
    exploration: Curve | None
    seeds: int  # runs with at least one evaluation
    begun: int
    complete: int
    best: tuple[float, float] | None  # max average return over seeds: mean, standard deviation; None: there is none
    last: tuple[float, float] | None  # the mean of the last ten evaluations, or of all
    has_ten: bool  # evaluations, every run of it
    seconds: list[float] | None  # of wall clock until each point of the evaluation, mean over seeds; None: not recorded
    by_seed: list[SeedLine]


def explore(records: Sequence[RunRecord]) -> dict[str, list[Line]]:
    """Lines by environment."""
    groups: dict[str, dict[str, list[RunRecord]]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        groups[record.env_id][record.cell()].append(record)
    number = sum(map(len, groups.values()))
    points = max(FEWEST_POINTS, min(MOST_POINTS, ALL_POINTS // max(number, 1)))
    of_a_seed = max(FEWEST_OF_A_SEED, min(MOST_POINTS, ALL_POINTS // max(len(records), 1)))
    shown = {
        env: [_line(label, runs, points, of_a_seed) for label, runs in _labelled(cells, records)]
        for env, cells in groups.items()
    }
    return dict(sorted(shown.items()))


@dataclass(frozen=True)
class Totals:
    runs: int
    complete: int
    steps: int  # up to the last evaluation of each
    seconds: float  # of training, as far as it was timed


def totals(records: Sequence[RunRecord]) -> Totals:
    return Totals(
        runs=len(records),
        complete=sum(run.complete for run in records),
        steps=sum(run.step for run in records),
        seconds=sum(run.seconds for run in records),
    )


def with_most_data(environments: dict[str, list[Line]]) -> str:
    """The environment that tells most: with the most runs, and among equals with the most evaluations."""

    def data(env: str) -> tuple[int, int]:
        lines = environments[env]
        return sum(line.seeds for line in lines), sum(sum(line.evaluation.runs) for line in lines if line.evaluation)

    return max(environments, key=data)


def _once_per_seed(runs: list[RunRecord]) -> list[RunRecord]:
    """A copy of a run is not another run; of several with the same seed the one that came furthest counts."""
    furthest: dict[int, RunRecord] = {}
    for run in runs:
        known = furthest.get(run.seed)
        if known is None or (run.complete, run.step) > (known.complete, known.step):
            furthest[run.seed] = run
    return list(furthest.values())


def _line(label: str, every: list[RunRecord], points: int, of_a_seed: int) -> Line:
    runs = _once_per_seed(every)
    evaluation = mean_curve(evaluation_traces(runs), points)
    evaluated = [run for run in runs if run.steps]
    scores = [[score(run.returns) for run in evaluated] for score in (max_average_return, mean_of_last)]
    best, last = (mean_and_std(values) if values else None for values in scores)
    return Line(
        label=label,
        evaluation=evaluation,
        exploration=mean_curve(exploration_traces(runs, EXPLORATION_BINS), points),
        seeds=len(evaluated),
        begun=len(runs),
        complete=sum(run.complete for run in runs),
        best=None if any(run.converted for run in runs) else best,
        last=last,
        has_ten=all(len(run.returns) >= LAST for run in evaluated),
        seconds=None if evaluation is None else _mean_seconds(evaluated, evaluation.x),
        by_seed=[_seed_line(run, of_a_seed) for run in sorted(evaluated, key=lambda run: run.seed)],
    )


def _mean_seconds(runs: Sequence[RunRecord], steps: Sequence[float]) -> list[float] | None:
    """Over the runs that have the step; a run without times leaves the line without."""
    if any(step not in run.timing.at for run in runs for step in run.steps):
        return None
    evaluated = [(set(run.steps), run.timing.at) for run in runs]
    return [fmean(at[int(step)] for known, at in evaluated if step in known) for step in steps]


def _seed_line(run: RunRecord, points: int) -> SeedLine:
    steps = thinned(run.steps, points)
    by_step = dict(zip(run.steps, run.returns, strict=True))
    at = run.timing.at
    seconds = [at[int(step)] for step in steps] if all(step in at for step in steps) else None
    return SeedLine(run.seed, steps, [by_step[int(step)] for step in steps], seconds)


def _labelled(cells: dict[str, list[RunRecord]], everything: Sequence[RunRecord]) -> list[tuple[str, list[RunRecord]]]:
    """Each configuration with a name that tells it from the others: method, then whatever else differs."""
    several_algorithms = len({run.algo for run in everything}) > 1
    several_neurons = len({run.neuron for run in everything if run.neuron != "none"}) > 1
    by_name: dict[str, list[list[RunRecord]]] = defaultdict(list)
    for runs in cells.values():
        first = runs[0]
        parts = [METHOD_LABELS.get(first.method, first.method)]
        if first.converted:
            parts.append(f"final policy converted, T = {first.config['conversion_steps']}")
        if several_neurons and first.neuron != "none":
            parts.append(first.neuron.upper())
        if several_algorithms:
            parts.append(first.algo.upper())
        by_name[", ".join(parts)].append(runs)
    return sorted(
        ((name + suffix, runs) for name, alike in by_name.items() for suffix, runs in _told_apart(alike)),
        key=lambda pair: _order(pair[1][0], pair[0]),
    )


def _told_apart(alike: list[list[RunRecord]]) -> list[tuple[str, list[RunRecord]]]:
    """By the options in which they differ, spelled as on the command line; first of all by their steps."""
    if len(alike) == 1:
        return [("", alike[0])]
    configs = [runs[0].config for runs in alike]
    names = {name for config in configs for name in config if name not in NOT_OF_THE_CELL}
    different = sorted(name for name in names if len({_value(config, name) for config in configs}) > 1)
    different.sort(key=lambda name: name != "total_timesteps")
    told = [name for name in different if name not in FOLLOW_THE_BUDGET]
    for name in (name for name in different if name in FOLLOW_THE_BUDGET):
        before = {tuple(_value(config, other) for other in told) for config in configs}
        after = {tuple(_value(config, other) for other in (*told, name)) for config in configs}
        if len(before) < len(configs) and len(after) > len(before):
            told.append(name)
    return [
        ("".join(f", {_value(config, name)}" for name in told), runs)
        for config, runs in zip(configs, alike, strict=True)
    ]


def _value(config: dict[str, Any], name: str) -> str:
    value = config.get(name)
    if name == "total_timesteps":
        return f"{value:,} steps"
    words = " ".join(map(str, value)) if isinstance(value, list) else "none" if value is None else str(value)
    return f"{name.replace('_', '-')} {words}"


def _order(run: RunRecord, label: str) -> tuple[int, int, str]:
    known = list(METHOD_LABELS)
    return (known.index(run.method) if run.method in known else len(known), run.total, label)

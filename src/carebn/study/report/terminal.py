"""Studies as text: the paper's numbers and ours, one under the other."""

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

from rich.table import Table
from rich.text import Text

from carebn.paper.facts import IDP
from carebn.paper.records import Published, Row, Study
from carebn.study.cells import Budget, belongs, conversion_steps
from carebn.study.evidence import statistics
from carebn.study.evidence.gather import Gathered
from carebn.study.evidence.measured import Distribution
from carebn.study.evidence.statistics import Estimate
from carebn.study.numbers import MISSING, spelled, with_spread

SCORES: dict[str, Callable[[Sequence[float]], float]] = {
    "max": statistics.max_average_return,
    "last": statistics.mean_of_last,
    "final": statistics.final_return,
}
SCORE_TITLES = {
    "max": "max average return",
    "last": "mean of the last 10 evaluations",
    "final": "last evaluation",
}
DRAWN = {
    "curves": "learning curves",
    "normalised-curves": "normalised learning curves",
    "exploration": "returns of training episodes",
    "wasserstein": "Wasserstein distances",
    "distributions": "input distributions",
}


def short(env_id: str) -> str:
    return env_id.replace("InvertedDoublePendulum", "IDP").removeprefix("ALE/")


def published_text(study: Study, number: Published) -> str:
    return with_spread(number.mean, number.std, study.decimals)


def published_summary(gathered: Gathered, row: Row) -> float | None:
    """The paper's last column over the environments that are shown: as printed over all of them, over some worked out
    from its numbers for these. A number of a figure is of all environments or none."""
    study, envs = gathered.study, gathered.envs_of(row)
    if envs == study.envs_of(row):
        return row.summary
    ours = _published(study, row, envs)
    if not envs or not ours:
        return None
    if study.kind == "energy":
        return fmean(ours.values())
    return statistics.performance_gain(ours, _published(study, study.baseline, envs), envs)


def _published(study: Study, row: Row | None, envs: Sequence[str]) -> dict[str, float]:
    """The paper's means of these environments."""
    if row is None or not row.published:
        return {}
    places = zip(study.envs_of(row), row.published, strict=True)
    return {env: number.mean for env, number in places if env in envs}


def summary_text(gathered: Gathered, row: Row) -> str:
    summary = published_summary(gathered, row)
    if summary is None:
        return "" if row.summary is None else MISSING
    return spelled(summary, 2) if gathered.study.kind == "energy" else f"{spelled(summary, 2)}%"


def _summary_name(gathered: Gathered) -> str:
    """The heading of the last column; over some of the environments it is another number than the paper's."""
    some = len(gathered.envs) < len(gathered.study.envs)
    return gathered.study.summary_name + (f"\nof these {len(gathered.envs)}" if some else "")


def made_at(gathered: Gathered) -> str:
    """At which budget our numbers were made."""
    paper = Budget.scaled(1)
    budgets = gathered.budgets()
    if not budgets:
        return "ours: no complete run yet"
    parts = [f"{b} ({b.total_timesteps / paper.total_timesteps:.3g} × the paper's)" for b in budgets]
    return "ours at " + " and ".join(parts)


def seeds_told(gathered: Gathered) -> str:
    """How many seeds our numbers are made of; the fewest and the most, where cells differ."""
    counts = {len(cell.complete) for cell in gathered.cells.values() if cell.complete}
    if len(counts) > 1:
        return f"{min(counts)} to {max(counts)} seeds"
    return "1 seed" if counts == {1} else f"{max(counts, default=0)} seeds"


def returns_table(gathered: Gathered, score: str) -> Table:
    """Per environment: mean ± standard deviation over seeds, and how many; then the gain over the baseline."""
    study = gathered.study
    table = _table(study, f"{SCORE_TITLES[score]}; {made_at(gathered)}; in brackets the number of seeds")
    for env_id in gathered.envs:
        table.add_column(short(env_id), justify="right", no_wrap=True)
    gains = study.baseline is not None and study.kind == "returns"
    with_summary = bool(study.summary_name) and study.kind == "returns"
    if with_summary:
        table.add_column(_summary_name(gathered), justify="right", no_wrap=True)
    places = {env: i for i, env in enumerate(study.envs)}
    for row in study.rows:
        if row.published:
            numbers = [published_text(study, row.published[places[env]]) for env in gathered.envs]
            table.add_row(row.label, "paper", *numbers, *([summary_text(gathered, row)] if with_summary else []))
        ours = [_cell_text(gathered, row, env, score) for env in gathered.envs]
        gain = None
        if gains:
            baseline = _means(gathered.baseline_scores(row, SCORES[score]))
            gain = statistics.performance_gain(_means_of(gathered, row, score), baseline, gathered.envs_of(row))
        label = "" if row.published else row.label
        who = "ours" if conversion_steps(row.variant) is None else "ours, final"
        table.add_row(label, who, *ours, *([_percent(gain)] if with_summary else []), end_section=True)
    return table


def overall_table(gathered: Gathered, score: str) -> Table | None:
    """Over the environments together, relative to the baseline's mean: a row each; None where there is nothing."""
    study = gathered.study
    if study.baseline is None:
        return None
    shown = gathered.envs if len(gathered.envs) < len(study.envs) else ()
    over = " and ".join(map(short, shown)) or "all environments"
    table = Table(title=f"Over {over}, relative to {study.baseline.label}; 95 % intervals", title_justify="left")
    table.add_column("", no_wrap=True)
    for name in ("APG", "APG without IDP", "IQM", "P(better)", "relative variance"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in study.rows:
        envs = gathered.envs_of(row)
        means = _means_of(gathered, row, score)
        baseline_scores = gathered.baseline_scores(row, SCORES[score])
        baseline = _means(baseline_scores)
        against = statistics.normalised(baseline_scores, baseline)
        relative = statistics.normalised(gathered.scores(row, SCORES[score]), baseline)
        without = [env for env in envs if env != IDP]
        values = [
            _percent(statistics.performance_gain(means, baseline, envs)),
            _percent(statistics.performance_gain(means, baseline, without)),
            _estimate(statistics.iqm(relative, envs)),
            _estimate(statistics.probability_of_improvement(relative, against, envs)),
            _percent(statistics.relative_variance(gathered.scores(row, statistics.final_return), envs)),
        ]
        if any(value != MISSING for value in values):
            table.add_row(row.label, *values)
    return table if table.row_count else None


def relative_variance_table(gathered: Gathered, score: str) -> Table:
    """Standard deviation over seeds / mean of the final policy's return, averaged over environments."""
    table = _table(gathered.study, f"last evaluation; {made_at(gathered)}")
    table.add_column("relative variance", justify="right", no_wrap=True)
    for row in gathered.study.rows:
        if row.summary is not None:
            table.add_row(row.label, "paper", summary_text(gathered, row))
        scores = gathered.scores(row, statistics.final_return)
        ours = _percent(statistics.relative_variance(scores, gathered.envs_of(row)))
        table.add_row("" if row.summary is not None else row.label, "ours", ours)
    return table


def costs_of(gathered: Gathered) -> dict[Row, tuple[float, float | None]]:
    """Seconds per 5000 steps and MiB, of the rows that were measured for the study's task."""
    study, costs = gathered.study, gathered.measured.costs
    if costs is None:
        return {}
    found = {}
    for row in study.rows:
        measured = costs.by_method.get((row.variant.method, row.variant.neuron))
        if measured is not None and (costs.env_id, costs.algo) == (study.envs[0], row.variant.algo):
            found[row] = measured
    return found


def cost_told(gathered: Gathered) -> str:
    costs = gathered.measured.costs
    if not costs_of(gathered) or costs is None:
        return f"ours: not measured yet; {gathered.study.command}"
    return f"ours: measured side by side on one machine by carebn measure cost, {costs.steps} steps of each"


def cost_table(gathered: Gathered, score: str) -> Table:
    """Acting, environment, storing and one update; evaluations do not count. Memory: the peak of a process."""
    study = gathered.study
    table = _table(study, cost_told(gathered))
    for column in study.columns:
        table.add_column(column, justify="right", no_wrap=True)
    costs = costs_of(gathered)
    for row in study.rows:
        table.add_row(row.label, "paper", *(published_text(study, number) for number in row.published))
        ours = [spelled(number, 0) for number in costs.get(row, (None, None))]
        table.add_row("", "ours", *ours, end_section=True)
    return table


ENERGY_TOLD = "ours: synapses alone, counted in whole episodes of the trained policies, at the paper's prices"


def average_energy(gathered: Gathered, row: Row) -> float | None:
    """Over environments; None as soon as one of them has no number."""
    counted = [gathered.energies.get((row, env)) for env in gathered.envs_of(row)]
    return fmean(fmean(energies) for energies in counted if energies) if all(counted) else None


def energy_table(gathered: Gathered, score: str) -> Table:
    study = gathered.study
    table = _table(study, f"{ENERGY_TOLD}; {made_at(gathered)}; in brackets the number of seeds")
    for name in (*map(short, gathered.envs), _summary_name(gathered)):
        table.add_column(name, justify="right", no_wrap=True)
    places = {env: i for i, env in enumerate(study.envs)}
    for row in study.rows:
        numbers = [published_text(study, row.published[places[env]]) for env in gathered.envs]
        table.add_row(row.label, "paper", *numbers, summary_text(gathered, row))
        ours = []
        for env in gathered.envs:
            energies = gathered.energies.get((row, env))
            ours.append(
                MISSING if energies is None else f"{spelled(fmean(energies), study.decimals)} ({len(energies)})"
            )
        table.add_row("", "ours", *ours, spelled(average_energy(gathered, row), 2), end_section=True)
    return table


def distributions_of(gathered: Gathered) -> dict[Row, Distribution]:
    """What was measured on a run of each row; the first where there are several."""
    found: dict[Row, Distribution] = {}
    for row in gathered.study.rows:
        for one in gathered.measured.distributions:
            if belongs(one.config, row.variant, gathered.study.envs[0]):
                found.setdefault(row, one)
    return found


def distributions_table(gathered: Gathered, score: str) -> Table:
    """The distances between what is true and what is believed; the distributions themselves are a picture."""
    table = _table(gathered.study, "ours: Wasserstein distances W1 after so many updates")
    for column in ("layer", "of the feature that moves most", "of the one that moves least"):
        table.add_column(column, justify="right")
    found = distributions_of(gathered)
    for row in gathered.study.rows:
        if row not in found:
            table.add_row(row.label, "ours", MISSING, MISSING, MISSING)
            continue
        one = found[row]
        told = [
            ", ".join(f"{moment.distance:.3f} ({moment.updates})" for moment in moments)
            for moments in (one.most, one.least)
        ]
        table.add_row(row.label, "ours", str(one.layer), *told)
    return table


TABLES: dict[str, Callable[[Gathered, str], Table]] = {
    "relative-variance": relative_variance_table,
    "cost": cost_table,
    "energy": energy_table,
    "distributions": distributions_table,
}  # all others: returns


def tables_of(gathered: Gathered, score: str) -> list[Table]:
    """All that is shown of a study."""
    kind = gathered.study.kind
    first = TABLES.get(kind, returns_table)(gathered, score)
    overall = overall_table(gathered, score) if kind not in TABLES else None
    return [first] if overall is None else [first, overall]


# --- parts ------------------------------------------------------------------------------------------------------------


def _table(study: Study, subtitle: str) -> Table:
    table = Table(title=Text(f"{study.where}: {study.title}\n{subtitle}"), title_justify="left")
    table.add_column("", no_wrap=True)
    table.add_column("", no_wrap=True)
    return table


def _means(scores: Mapping[str, Sequence[float]]) -> dict[str, float]:
    return {env: fmean(values) for env, values in scores.items()}


def _means_of(gathered: Gathered, row: Row, score: str) -> dict[str, float]:
    return _means(gathered.scores(row, SCORES[score]))


def _cell_text(gathered: Gathered, row: Row, env_id: str, score: str) -> str:
    """Missing is said to be missing; runs that are not complete are not counted, but mentioned."""
    if env_id not in gathered.envs_of(row):
        return ""
    cell = gathered.cell(row, env_id)
    if cell.mixed:
        return "mixed budgets"
    if cell.complete:
        mean, std = statistics.mean_and_std([SCORES[score](run.returns) for run in cell.complete])
        spread = std if len(cell.complete) > 1 else None  # one seed has none
        return f"{with_spread(mean, spread, gathered.study.decimals)} ({len(cell.complete)})"
    if cell.unfinished:
        done = max(run.step / run.total for run in cell.unfinished)
        return f"{MISSING} (begun, {done:.0%})"
    return MISSING


def _percent(value: float | None) -> str:
    return MISSING if value is None else f"{spelled(value, 2)}%"


def _estimate(value: Estimate | None) -> str:
    return MISSING if value is None else f"{value.value:.3f} [{value.low:.3f}, {value.high:.3f}]"

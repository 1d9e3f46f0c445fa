"""A study with the runs at hand: the numbers of its table or figure, ready for any renderer.

A cell without a complete run stays empty; nothing is filled in. A study none of whose numbers is there is absent.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from carebn.paper import STUDIES
from carebn.paper.facts import IDP
from carebn.paper.records import Row, Study
from carebn.study.cells import conversion_steps
from carebn.study.evidence.gather import Gathered, gather
from carebn.study.evidence.measured import Measured
from carebn.study.evidence.runs import RunRecord
from carebn.study.evidence.statistics import (
    Estimate,
    final_return,
    iqm,
    max_average_return,
    mean_and_std,
    normalised,
    performance_gain,
    relative_variance,
)
from carebn.study.report.terminal import (
    ENERGY_TOLD,
    average_energy,
    cost_told,
    costs_of,
    distributions_of,
    made_at,
    seeds_told,
)
from carebn.study.views.curves import (
    Curve,
    Trace,
    evaluation_traces,
    exploration_traces,
    mean_curve,
    stratified_curve,
    wasserstein_traces,
)
from carebn.study.views.parts import Absent, Bar, Number, Panel, Table, TableRow, View

POINTS = 100  # of a curve
BINS = 50  # of exploration returns


def view_studies(
    records: Sequence[RunRecord], measured: Measured | None = None, scale: float | None = None
) -> tuple[list[View], list[Absent]]:
    """Every study that has something to show, and those that have not; ``scale``: count runs at this budget alone."""
    views, absent = [], []
    for study in STUDIES.values():
        gathered = gather(study, records, scale, measured=measured)
        view = _view_of(gathered)
        if view is None:
            absent.append(Absent(study, _why_absent(gathered)))
        else:
            views.append(view)
    return views, absent


def view_study(study: Study, records: Sequence[RunRecord], measured: Measured | None = None) -> View | None:
    """None if there is no number of it: too few complete runs, or for what is measured apart, no measurement."""
    return _view_of(gather(study, records, measured=measured))


def _view_of(gathered: Gathered) -> View | None:
    if not MEASURED_APART.get(gathered.study.kind, _complete)(gathered):
        return None
    view = BUILDERS[gathered.study.kind](gathered)
    return view if view.labels else None


def _complete(gathered: Gathered) -> int:
    return sum(len(cell.complete) for cell in gathered.cells.values())


def _why_absent(gathered: Gathered) -> str:
    if gathered.problems:
        return "; ".join(gathered.problems)
    number = _complete(gathered)
    if not number:
        return ""
    return f"{number} complete run{' is' if number == 1 else 's are'} not enough for a number of it"


def _view(gathered: Gathered, made: str = "", **parts: object) -> View:
    budgets = [budget.total_timesteps for budget in gathered.budgets()]
    made = made or f"{made_at(gathered)}; {seeds_told(gathered)}"
    return View(gathered.study, made, sorted(set(budgets)), gathered.problems, **parts)  # type: ignore[arg-type]


# --- tables -----------------------------------------------------------------------------------------------------------


def _returns(gathered: Gathered) -> View:
    """Max average returns per environment; APG, with and without InvertedDoublePendulum; IQM over the baseline."""
    study = gathered.study
    published_baseline = _published(study, study.baseline)
    rows = []
    for row in study.rows:
        numbers = []
        published = dict(zip(study.envs_of(row), row.published, strict=True)) if row.published else {}
        for env in study.envs:
            cell = gathered.cell(row, env)
            scores = [max_average_return(run.returns) for run in cell.complete]
            summary = mean_and_std(scores) if scores else None
            numbers.append(Number(summary, len(scores), len(cell.unfinished), published.get(env)))
        ours, envs = _means(gathered, row), study.envs_of(row)
        baseline = _mean_each(gathered.baseline_scores(row, max_average_return))
        paper = _published(study, row)
        relative = iqm(normalised(gathered.scores(row, max_average_return), baseline), envs)
        summaries = [
            (performance_gain(ours, baseline, envs), row.summary),
            (
                performance_gain(ours, baseline, envs, without=(IDP,)),
                performance_gain(paper, published_baseline, envs, without=(IDP,)),
            ),
            (relative.value if relative else None, None),
        ]
        steps = conversion_steps(row.variant)
        label = row.label if steps is None else f"{row.label} (ours: final policy, T = {steps})"
        rows.append(TableRow(label, numbers, summaries))
    heads = [f"{study.summary_name} %", f"{study.summary_name} % without IDP", "IQM / baseline"]
    return _view(gathered, table=Table(list(study.envs), heads, rows, study.decimals))


def _means(gathered: Gathered, row: Row) -> dict[str, float]:
    """The mean of max average returns over seeds, by environment."""
    return _mean_each(gathered.scores(row, max_average_return))


def _mean_each(scores: Mapping[str, Sequence[float]]) -> dict[str, float]:
    return {env: mean_and_std(values)[0] for env, values in scores.items()}


def _published(study: Study, row: Row | None) -> dict[str, float]:
    if row is None or not row.published:
        return {}
    return {env: number.mean for env, number in zip(study.envs_of(row), row.published, strict=True)}


def _cost(gathered: Gathered) -> View:
    """Time per 5000 steps, and memory, as ``carebn measure cost`` found them."""
    study, costs = gathered.study, costs_of(gathered)
    rows = []
    for row in study.rows:
        ours = costs.get(row, (None, None))
        numbers = [
            Number(None if number is None else (number, 0.0), int(number is not None), 0, published)
            for number, published in zip(ours, row.published, strict=True)
        ]
        rows.append(TableRow(row.label, numbers, []))
    table = Table(list(study.columns), [], rows, study.decimals)
    return _view(gathered, made=cost_told(gathered), table=table)


def _energy(gathered: Gathered) -> View:
    """Of the synapses, as ``carebn energy`` counted them."""
    study = gathered.study
    rows = []
    for row in study.rows:
        numbers = []
        for env, published in zip(study.envs_of(row), row.published, strict=True):
            energies = gathered.energies.get((row, env), [])
            unfinished = len(gathered.cell(row, env).unfinished)
            numbers.append(Number(mean_and_std(energies) if energies else None, len(energies), unfinished, published))
        rows.append(TableRow(row.label, numbers, [(average_energy(gathered, row), row.summary)]))
    table = Table(list(study.envs), [f"{study.summary_name} (nJ)"], rows, study.decimals)
    return _view(gathered, made=f"{ENERGY_TOLD}; {made_at(gathered)}", table=table)


# --- bars -------------------------------------------------------------------------------------------------------------


def _relative_variance(gathered: Gathered) -> View:
    bars = []
    for row in gathered.study.rows:
        value = relative_variance(gathered.scores(row, final_return), gathered.study.envs_of(row))
        bars.append(Bar(row.label, value, None, row.summary))
    return _view(gathered, bars=bars, bar_label="standard deviation over seeds, % of the mean final return")


def _normalised_maximum(gathered: Gathered) -> View:
    """The mean over environments of max average return relative to the baseline's, and the interval of its IQM."""
    study = gathered.study
    bars = []
    for row in study.rows:
        envs = study.envs_of(row)
        baseline = _mean_each(gathered.baseline_scores(row, max_average_return))
        gain = performance_gain(_means(gathered, row), baseline, envs)
        relative: Estimate | None = iqm(normalised(gathered.scores(row, max_average_return), baseline), envs)
        interval = (relative.low * 100, relative.high * 100) if relative else None
        bars.append(Bar(row.label, None if gain is None else gain + 100, interval, row.summary))
    return _view(gathered, bars=bars, bar_label="max average return, % of the ANN's; interval: 95 % of the IQM")


# --- curves -----------------------------------------------------------------------------------------------------------


def _per_environment(
    gathered: Gathered, y_label: str, traces: Callable[[Sequence[RunRecord]], Sequence[Trace]]
) -> View:
    panels = []
    for env in gathered.study.envs:
        lines, missing = [], []
        for row in gathered.study.rows:
            if env not in gathered.study.envs_of(row):
                continue
            curve = mean_curve(traces(gathered.cell(row, env).complete), POINTS)
            if curve is None:
                missing.append(row.label)
            else:
                lines.append((row.label, curve))
        panels.append(Panel(env, "environment steps", y_label, lines, missing))
    return _view(gathered, panels=[panel for panel in panels if panel.lines])


def _curves(gathered: Gathered) -> View:
    return _per_environment(gathered, "return", evaluation_traces)


def _exploration(gathered: Gathered) -> View:
    return _per_environment(gathered, "return while exploring", lambda runs: exploration_traces(runs, BINS))


def _normalised_curves(gathered: Gathered) -> View:
    """Returns relative to the baseline's max average return, averaged over environments; steps relative to the end."""
    study = gathered.study
    lines, missing = [], []
    for row in study.rows:
        envs = study.envs_of(row)
        baseline = _mean_each(gathered.baseline_scores(row, max_average_return))
        strata = []
        if all(baseline.get(env, 0) > 0 for env in envs):
            for env in envs:
                runs = gathered.cell(row, env).complete
                strata.append([
                    ([step / run.total for step in run.steps], [value / baseline[env] for value in run.returns])
                    for run in runs
                ])  # fmt: skip
        curve = stratified_curve(strata, POINTS)
        if curve is None:
            missing.append(row.label)
        else:
            lines.append((row.label, curve))
    panel = Panel("all environments", "share of training", "return / best of the ANN", lines, missing)
    return _view(gathered, panels=[panel])


def _wasserstein(gathered: Gathered) -> View:
    """One panel per layer. What the agent explored with (before re-calibration) is the paper's subject; what it is
    evaluated with is a line of its own where the two differ."""
    study = gathered.study
    cells = {row.label: [run for env in study.envs for run in gathered.cell(row, env).complete] for row in study.rows}
    layers = max((len(row["before"]) for runs in cells.values() for run in runs
                  for row in run.measures.get("wasserstein", [])), default=0)  # fmt: skip
    panels = []
    for layer in range(layers):
        lines, missing = [], []
        for label, runs in cells.items():
            before = mean_curve(wasserstein_traces(runs, layer, "before"), POINTS)
            after = mean_curve(wasserstein_traces(runs, layer, "after"), POINTS)
            if before is None or after is None:
                missing.append(label)
                continue
            lines.append((label, before))
            if after.mean != before.mean:
                lines.append((f"{label}, re-calibrated", after))
        panels.append(Panel(f"layer {layer + 1}", "environment steps", "Wasserstein distance", lines, missing))
    return _view(gathered, panels=panels)


def _distributions(gathered: Gathered) -> View:
    """For each run the feature that moved most and the one that moved least: histograms and believed Gaussians."""
    panels = []
    found = distributions_of(gathered)
    for row, one in found.items():
        for what, moments in (("most", one.most), ("least", one.least)):
            lines = []
            for moment in moments:
                middles = [(a + b) / 2 for a, b in pairwise(moment.edges)]
                told = f"after {moment.updates} updates"
                lines.append((f"{told}, true", _drawn(middles, moment.density)))
                believed = [_bell(x, moment.mean, moment.var) for x in middles]
                lines.append((f"{told}, believed", _drawn(middles, believed)))
            distances = ", ".join(f"{moment.distance:.3f}" for moment in moments)
            title = f"{row.label}, layer {one.layer}, the feature that moves {what}: W1 {distances}"
            panels.append(Panel(title, "input of the normaliser", "density", lines, [], over_time=False))
    missing = [row.label for row in gathered.study.rows if row not in found]
    steps = " and ".join(sorted({f"{int(one.config['total_timesteps']):,}" for one in found.values()}))
    made = f"ours: one run each, after {steps} steps" + (f"; not measured: {', '.join(missing)}" if missing else "")
    return _view(gathered, made=made, panels=panels)


def _bell(x: float, mean: float, var: float) -> float:
    return math.exp(-((x - mean) ** 2) / (2 * (var + 1e-12))) / math.sqrt(2 * math.pi * (var + 1e-12))


def _drawn(x: list[float], y: list[float]) -> Curve:
    """A line that is no mean of anything: without an interval."""
    return Curve(x, y, y, y, [0.0] * len(y), [1] * len(y))


MEASURED_APART: dict[str, Callable[[Gathered], object]] = {
    "cost": costs_of,
    "energy": lambda gathered: gathered.energies,
    "distributions": distributions_of,
}
BUILDERS: dict[str, Callable[[Gathered], View]] = {
    "returns": _returns,
    "cost": _cost,
    "relative-variance": _relative_variance,
    "normalised-maximum": _normalised_maximum,
    "curves": _curves,
    "exploration": _exploration,
    "normalised-curves": _normalised_curves,
    "wasserstein": _wasserstein,
    "energy": _energy,
    "distributions": _distributions,
}

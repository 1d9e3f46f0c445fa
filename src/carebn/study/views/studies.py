"""A study with the runs at hand: the numbers of its table or figure, ready for any renderer.

A cell without a complete run stays empty; nothing is filled in. A study none of whose numbers is there is absent.
"""

from collections.abc import Callable, Sequence

from carebn.paper import OWN, STUDIES
from carebn.paper.records import Study
from carebn.study.cells import Budget
from carebn.study.evidence.gather import Gathered, gather
from carebn.study.evidence.measured import Measured
from carebn.study.evidence.runs import RunRecord
from carebn.study.views.panels import (
    distribution_panels,
    exploration_panels,
    learning_panels,
    normalised_panels,
    sparsity_panels,
    wasserstein_panels,
)
from carebn.study.views.parts import Absent, Bar, Panel, Table, View
from carebn.study.views.tables import cost_table, energy_table, firing_rows, maximum_bars, returns_table, variance_bars

# By the kind of a study. Those without an entry under OWN_TABLES have a table of returns.
OWN_TABLES: dict[str, Callable[[Gathered, str], Table] | None] = {
    "cost": cost_table,
    "energy": energy_table,
    "relative-variance": None,
    "distributions": None,
}
BARS: dict[str, Callable[[Gathered], list[Bar]]] = {
    "relative-variance": variance_bars,
    "normalised-maximum": maximum_bars,
}
BAR_LABELS = {
    "relative-variance": "standard deviation over seeds, % of the mean final return",
    "normalised-maximum": "max average return, % of the ANN's; interval: 95 % of the IQM",
}
PANELS: dict[str, Callable[[Gathered], list[Panel]]] = {
    "curves": learning_panels,
    "exploration": exploration_panels,
    "normalised-curves": normalised_panels,
    "wasserstein": wasserstein_panels,
    "distributions": distribution_panels,
    "sparsity": sparsity_panels,
}


def view_studies(
    records: Sequence[RunRecord], measured: Measured | None = None, scale: float | None = None
) -> tuple[list[View], list[Absent]]:
    """Every study that has something to show, and those that have not; ``scale``: count runs at this budget alone."""
    views, absent = [], []
    for study in (*STUDIES.values(), *OWN):
        gathered = gather(study, records, scale, measured=measured)
        view = view_of(gathered)
        if view.labels:
            views.append(view)
        elif study not in OWN:  # which nobody misses
            absent.append(Absent(study, _why_absent(gathered)))
    return views, absent


def view_study(study: Study, records: Sequence[RunRecord], measured: Measured | None = None) -> View | None:
    """None if there is no number of it: too few complete runs, or for what is measured apart, no measurement."""
    view = view_of(gather(study, records, measured=measured))
    return view if view.labels else None


def view_of(gathered: Gathered, score: str = "max") -> View:
    """All numbers of a study, whether or not there are any."""
    study = gathered.study
    make_table = OWN_TABLES.get(study.kind, returns_table)
    return View(
        study=study,
        envs=gathered.envs,
        score=score,
        made_at=_made_at(gathered),
        made=_made(gathered),
        budgets=sorted({budget.total_timesteps for budget in gathered.budgets()}),
        problems=gathered.problems,
        table=None if make_table is None else make_table(gathered, score),
        bars=BARS[study.kind](gathered) if study.kind in BARS else [],
        bar_label=BAR_LABELS.get(study.kind, ""),
        panels=PANELS[study.kind](gathered) if study.kind in PANELS else [],
        distributions=gathered.distributions() if study.kind == "distributions" else {},
        firing=firing_rows(gathered),
    )


def _why_absent(gathered: Gathered) -> str:
    if gathered.problems:
        return "; ".join(gathered.problems)
    number = sum(len(cell.complete) for cell in gathered.cells.values())
    if not number:
        return ""
    if gathered.study.command:
        return f"{number} complete run{' is' if number == 1 else 's are'} there, but not what is measured on them"
    return f"{number} complete run{' is' if number == 1 else 's are'} not enough for a number of it"


# --- how ours were made, in words -------------------------------------------------------------------------------------


def _made(gathered: Gathered) -> str:
    if gathered.study.kind == "cost":
        return _cost_made(gathered)
    if gathered.study.kind == "distributions":
        return _distributions_made(gathered)
    if gathered.study.kind == "energy":
        measured = "ours: synapses alone, counted in whole episodes of the trained policies, at the paper's prices"
        return f"{measured}; {_made_at(gathered)}"
    return f"{_made_at(gathered)}; {_seeds(gathered)}"


def _made_at(gathered: Gathered) -> str:
    """At which budget our numbers were made."""
    paper = Budget.scaled(1)
    budgets = gathered.budgets()
    if not budgets:
        return "ours: no complete run yet"
    parts = [f"{b} ({b.total_timesteps / paper.total_timesteps:.3g} × the paper's)" for b in budgets]
    return "ours at " + " and ".join(parts)


def _seeds(gathered: Gathered) -> str:
    """How many seeds our numbers are made of; the fewest and the most, where cells differ."""
    counts = {len(cell.complete) for cell in gathered.cells.values() if cell.complete}
    if len(counts) > 1:
        return f"{min(counts)} to {max(counts)} seeds"
    return "1 seed" if counts == {1} else f"{max(counts, default=0)} seeds"


def _cost_made(gathered: Gathered) -> str:
    costs = gathered.measured.costs
    if not gathered.costs() or costs is None:
        return f"ours: not measured yet; {gathered.study.command}"
    return f"ours: measured side by side on one machine by carebn measure cost, {costs.steps} steps of each"


def _distributions_made(gathered: Gathered) -> str:
    found = gathered.distributions()
    missing = [row.label for row in gathered.study.rows if row not in found]
    steps = " and ".join(sorted({f"{int(one.config['total_timesteps']):,}" for one in found.values()}))
    return f"ours: one run each, after {steps} steps" + (f"; not measured: {', '.join(missing)}" if missing else "")

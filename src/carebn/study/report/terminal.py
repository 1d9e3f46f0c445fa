"""Studies as text: the paper's numbers and ours, one under the other."""

from collections.abc import Callable

from rich.table import Table as Grid
from rich.text import Text

from carebn.paper.records import Row
from carebn.study.evidence.scores import SCORES
from carebn.study.evidence.statistics import Estimate
from carebn.study.numbers import MISSING, spelled, with_spread
from carebn.study.views.parts import Number, Table, TableRow, View

SEEDS_TOLD = "in brackets the number of seeds"
FIRING_TOLD = "Every run: its last evaluation, spikes per decision, and firing rates, as carebn energy counted them"


def tables_of(view: View) -> list[Grid]:
    """All that is shown of a study."""
    first = GRIDS.get(view.study.kind, _returns_grid)(view)
    overall = _overall_grid(view) if view.study.kind not in GRIDS else None
    return [grid for grid in (first, overall, _firing_grid(view)) if grid is not None]


def _returns_grid(view: View) -> Grid:
    """Per environment: mean ± standard deviation over seeds, and how many; then the gain over the baseline."""
    table = _table_of(view)
    grid = _grid(view, f"{SCORES[view.score].title}; {view.made_at}; {SEEDS_TOLD}", [short(env) for env in view.envs])
    with_summary = bool(view.study.summary_name) and view.study.kind == "returns"
    if with_summary:
        grid.add_column(_summary_name(view), justify="right", no_wrap=True)
    for row in table.rows:
        if row.row.published:
            summary = [_published_summary(row.row, row.summaries[0][1], "%")] if with_summary else []
            grid.add_row(row.row.label, "paper", *_published(row, table.decimals), *summary)
        ours = [_ours(number, table.decimals) for number in row.numbers]
        gain = [_percent(row.summaries[0][0])] if with_summary else []
        label = "" if row.row.published else row.row.label
        who = "ours" if row.conversion_steps is None else "ours, final"
        grid.add_row(label, who, *ours, *gain, end_section=True)
    return grid


def _overall_grid(view: View) -> Grid | None:
    """Over the environments together, relative to the baseline's mean: a row each; None where there is nothing."""
    baseline = view.study.baseline
    if baseline is None:
        return None
    shown = view.envs if len(view.envs) < len(view.study.envs) else ()
    over = " and ".join(map(short, shown)) or "all environments"
    grid = Grid(title=f"Over {over}, relative to {baseline.label}; 95 % intervals", title_justify="left")
    grid.add_column("", no_wrap=True)
    for name in ("APG", "APG without IDP", "IQM", "P(better)", "relative variance"):
        grid.add_column(name, justify="right", no_wrap=True)
    for row in _table_of(view).rows:
        beside = row.beside_baseline
        assert beside is not None  # there is a baseline
        values = [
            _percent(beside.gain),
            _percent(beside.gain_without_idp),
            _estimate(beside.iqm),
            _estimate(beside.better),
            _percent(row.relative_variance),
        ]
        if any(value != MISSING for value in values):
            grid.add_row(row.row.label, *values)
    return grid if grid.row_count else None


def _firing_grid(view: View) -> Grid | None:
    """Every run whose spikes were counted; None where there is none."""
    if not view.firing:
        return None
    grid = Grid(title=FIRING_TOLD, title_justify="left")
    for column in ("", ""):
        grid.add_column(column, no_wrap=True)
    for column in ("seed", "final return", "spikes", *view.populations):
        grid.add_column(column, justify="right")
    for row in view.firing:
        grid.add_row(short(row.env), row.label, *row.cells(view.populations))
    return grid


def _variance_grid(view: View) -> Grid:
    grid = _grid(view, f"last evaluation; {view.made_at}", ["relative variance"])
    for bar in view.bars:
        printed = bar.row.summary is not None
        if printed:
            grid.add_row(bar.label, "paper", _published_summary(bar.row, bar.published, "%"))
        grid.add_row("" if printed else bar.label, "ours", _percent(bar.value))
    return grid


def _cost_grid(view: View) -> Grid:
    table = _table_of(view)
    grid = _grid(view, view.made, table.columns)
    for row in table.rows:
        grid.add_row(row.row.label, "paper", *_published(row, table.decimals))
        ours = [spelled(None if number.ours is None else number.ours[0], table.decimals) for number in row.numbers]
        grid.add_row("", "ours", *ours, end_section=True)
    return grid


def _energy_grid(view: View) -> Grid:
    table = _table_of(view)
    grid = _grid(view, f"{view.made}; {SEEDS_TOLD}", [*map(short, view.envs), _summary_name(view)])
    for row in table.rows:
        average, published = row.summaries[0]
        numbers = _published(row, table.decimals)
        grid.add_row(row.row.label, "paper", *numbers, _published_summary(row.row, published))
        ours = [
            MISSING if number.ours is None else f"{spelled(number.ours[0], table.decimals)} ({number.seeds})"
            for number in row.numbers
        ]
        grid.add_row("", "ours", *ours, spelled(average, 2), end_section=True)
    return grid


def _distributions_grid(view: View) -> Grid:
    """The distances between what is true and what is believed; the distributions themselves are a picture."""
    grid = _grid(view, "ours: Wasserstein distances W1 after so many updates", [])
    for column in ("layer", "of the feature that moves most", "of the one that moves least"):
        grid.add_column(column, justify="right")
    for row in view.study.rows:
        if row not in view.distributions:
            grid.add_row(row.label, "ours", MISSING, MISSING, MISSING)
            continue
        one = view.distributions[row]
        told = [
            ", ".join(f"{moment.distance:.3f} ({moment.updates})" for moment in moments)
            for moments in (one.most, one.least)
        ]
        grid.add_row(row.label, "ours", str(one.layer), *told)
    return grid


GRIDS: dict[str, Callable[[View], Grid]] = {
    "relative-variance": _variance_grid,
    "cost": _cost_grid,
    "energy": _energy_grid,
    "distributions": _distributions_grid,
}  # all others: returns


# --- parts ------------------------------------------------------------------------------------------------------------


def _table_of(view: View) -> Table:
    assert view.table is not None  # every kind has one, but for the two that are not asked
    return view.table


def _grid(view: View, subtitle: str, columns: list[str]) -> Grid:
    grid = Grid(title=Text(f"{view.study.where}: {view.study.title}\n{subtitle}"), title_justify="left")
    grid.add_column("", no_wrap=True)
    grid.add_column("", no_wrap=True)
    for column in columns:
        grid.add_column(column, justify="right", no_wrap=True)
    return grid


def short(env_id: str) -> str:
    return env_id.replace("InvertedDoublePendulum", "IDP").removeprefix("ALE/")


def _summary_name(view: View) -> str:
    """The heading of the last column; over some of the environments it is another number than the paper's."""
    some = len(view.envs) < len(view.study.envs)
    return view.study.summary_name + (f"\nof these {len(view.envs)}" if some else "")


def _published(row: TableRow, decimals: int) -> list[str]:
    numbers = [number.published for number in row.numbers]
    return ["" if number is None else with_spread(number.mean, number.std, decimals) for number in numbers]


def _published_summary(row: Row, summary: float | None, unit: str = "") -> str:
    if summary is None:
        return "" if row.summary is None else MISSING
    return f"{spelled(summary, 2)}{unit}"


def _ours(number: Number, decimals: int) -> str:
    """Missing is said to be missing; runs that are not complete are not counted, but mentioned."""
    if number.outside:
        return ""
    if number.mixed:
        return "mixed budgets"
    if number.ours is not None:
        mean, std = number.ours
        spread = std if number.seeds > 1 else None  # one seed has none
        return f"{with_spread(mean, spread, decimals)} ({number.seeds})"
    return f"{MISSING} (begun, {number.done:.0%})" if number.unfinished else MISSING


def _percent(value: float | None) -> str:
    return MISSING if value is None else f"{spelled(value, 2)}%"


def _estimate(value: Estimate | None) -> str:
    return MISSING if value is None else f"{value.value:.3f} [{value.low:.3f}, {value.high:.3f}]"

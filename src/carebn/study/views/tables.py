"""Tables: our numbers and the paper's, row by row; and the bars of its figures, which are a number per row."""

from statistics import fmean

from carebn.paper.facts import IDP
from carebn.paper.records import Row
from carebn.study.cells import conversion_steps
from carebn.study.evidence.gather import Gathered
from carebn.study.evidence.scores import SCORES
from carebn.study.evidence.statistics import mean_and_std, performance_gain, relative_variance
from carebn.study.views.comparison import Comparison, compare
from carebn.study.views.parts import Bar, FiringRow, Number, Table, TableRow

# --- tables -----------------------------------------------------------------------------------------------------------


def returns_table(gathered: Gathered, score: str) -> Table:
    """Scores per environment; of a study with a baseline also the gain over it (with and without
    InvertedDoublePendulum) and the IQM relative to it."""
    study = gathered.study
    rows = []
    for row in study.rows:
        beside = None if study.baseline is None else compare(gathered, row, study.baseline, score)
        rows.append(
            TableRow(
                row,
                [_return(gathered, row, env, score) for env in gathered.envs],
                [] if beside is None else _summaries(gathered, row, beside),
                conversion_steps(row.variant),
                beside,
                final_variance(gathered, row),
            )
        )
    name = study.summary_name
    heads = [f"{name} %", f"{name} % without IDP", "IQM / baseline"] if study.baseline is not None else []
    return Table(list(gathered.envs), heads, rows, study.decimals)


def firing_rows(gathered: Gathered) -> list[FiringRow]:
    """Every run whose spikes were counted, seed by seed."""
    return [
        FiringRow(env, row.label, run.seed, SCORES["final"].of(run), firing)
        for env in gathered.envs
        for row in gathered.study.rows
        for run, firing in sorted(gathered.firing.get((row, env), []), key=lambda counted: counted[0].seed)
    ]


def _return(gathered: Gathered, row: Row, env: str, score: str) -> Number:
    cell = gathered.cell(row, env)
    scores = [SCORES[score].of(run) for run in cell.complete]
    return Number(
        mean_and_std(scores) if scores else None,
        len(scores),
        len(cell.unfinished),
        gathered.study.published(row).get(env),
        max((run.step / run.total for run in cell.unfinished), default=0.0),
        cell.mixed,
        env not in gathered.envs_of(row),
    )


def _summaries(gathered: Gathered, row: Row, beside: Comparison) -> list[tuple[float | None, float | None]]:
    return [
        (beside.gain, published_summary(gathered, row)),
        (beside.gain_without_idp, _published_gain(gathered, row, without=(IDP,))),
        (beside.iqm.value if beside.iqm else None, None),
    ]


def published_summary(gathered: Gathered, row: Row) -> float | None:
    """The paper's last column over the environments that are shown: as printed over all of them, over some worked out
    from its numbers for these. A number of a figure is of all environments or none."""
    envs = gathered.envs_of(row)
    if envs == gathered.study.envs_of(row):
        return row.summary
    ours = _published_means(gathered, row)
    if not envs or not ours:
        return None
    return fmean(ours.values()) if gathered.study.kind == "energy" else _published_gain(gathered, row)


def _published_gain(gathered: Gathered, row: Row, without: tuple[str, ...] = ()) -> float | None:
    baseline = gathered.study.baseline
    theirs = {} if baseline is None else _published_means(gathered, baseline)
    return performance_gain(_published_means(gathered, row), theirs, gathered.envs_of(row), without)


def _published_means(gathered: Gathered, row: Row) -> dict[str, float]:
    """The paper's means of the environments that are shown."""
    return {env: number.mean for env, number in gathered.study.published(row).items() if env in gathered.envs}


def cost_table(gathered: Gathered, score: str) -> Table:
    """Time per 5000 steps, and memory, as ``carebn measure cost`` found them: acting, environment, storing and one
    update; evaluations do not count. Memory is the peak of a process."""
    study, costs = gathered.study, gathered.costs()
    rows = []
    for row in study.rows:
        ours = costs.get(row, (None, None))
        numbers = [
            Number(None if number is None else (number, 0.0), int(number is not None), 0, published)
            for number, published in zip(ours, row.published, strict=True)
        ]
        rows.append(TableRow(row, numbers, []))
    return Table(list(study.columns), [], rows, study.decimals)


def energy_table(gathered: Gathered, score: str) -> Table:
    """Of the synapses, as ``carebn energy`` counted them; the average needs every environment."""
    study = gathered.study
    rows = []
    for row in study.rows:
        numbers = []
        for env in gathered.envs:
            energies = gathered.energies.get((row, env), [])
            ours = mean_and_std(energies) if energies else None
            unfinished = len(gathered.cell(row, env).unfinished)
            numbers.append(Number(ours, len(energies), unfinished, study.published(row)[env]))
        counted = [gathered.energies.get((row, env)) for env in gathered.envs_of(row)]
        average = fmean(fmean(energies) for energies in counted if energies) if all(counted) else None
        rows.append(TableRow(row, numbers, [(average, published_summary(gathered, row))]))
    return Table(list(gathered.envs), [f"{study.summary_name} (nJ)"], rows, study.decimals)


# --- bars -------------------------------------------------------------------------------------------------------------


def final_variance(gathered: Gathered, row: Row) -> float | None:
    """Standard deviation over seeds / mean of the final policy's return, averaged over environments, in per cent."""
    return relative_variance(gathered.scores(row, "final"), gathered.envs_of(row))


def variance_bars(gathered: Gathered) -> list[Bar]:
    return [
        Bar(row, final_variance(gathered, row), None, published_summary(gathered, row)) for row in gathered.study.rows
    ]


def maximum_bars(gathered: Gathered) -> list[Bar]:
    """The mean over environments of max average return relative to the baseline's, and the interval of its IQM."""
    study = gathered.study
    assert study.baseline is not None
    bars = []
    for row in study.rows:
        beside = compare(gathered, row, study.baseline)
        interval = None if beside.iqm is None else (beside.iqm.low * 100, beside.iqm.high * 100)
        bars.append(Bar(row, None if beside.gain is None else beside.gain + 100, interval, row.summary))
    return bars

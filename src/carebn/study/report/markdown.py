"""The report as plain Markdown tables, for a README, a pull request or a terminal."""

from collections.abc import Sequence

from carebn.study.evidence.runs import Runs
from carebn.study.numbers import MISSING, spelled, with_spread
from carebn.study.views.explorer import Line, totals
from carebn.study.views.parts import Absent, Bar, Number, Panel, Table, View

MARKS = {"above": "▲ ", "below": "▼ "}


def render_markdown(runs: Runs, environments: dict[str, list[Line]], views: list[View], absent: list[Absent]) -> str:
    total = totals(runs.records)
    number = "1 run" if total.runs == 1 else f"{total.runs:,} runs"
    blocks = ["# CaRe-BN report", f"{number}, {total.complete:,} complete."]
    if runs.problems or runs.gaps():
        blocks += ["\n".join(f"- {safe(problem)}" for problem in (*runs.problems, *runs.gaps()))]
    blocks.append("## All runs")
    blocks.append("± is one standard deviation over seeds. Unfinished runs count with the evaluations they have.")
    for env, lines in environments.items():
        rows = [
            [
                line.label,
                _pair(line.best, line.seeds),
                _pair(line.last, line.seeds),
                f"{line.seeds}",
                f"{line.complete} of {line.begun}",
            ]
            for line in lines
        ]
        last = "last ten evaluations" if all(line.has_ten for line in lines) else "last evaluations (ten, or all)"
        heads = ["method", "max average return", last, "seeds", "complete"]
        blocks += [f"### {safe(env)}", grid(heads, rows)]
    blocks.append("## Beside the paper")
    for view in views:
        blocks += _view(view)
    if absent:
        blocks.append("Nothing to show here:")
        blocks.append("\n".join(f"- {study.where} (`{study.made_by}`){_because(why)}" for study, why in absent))
    return "\n\n".join(blocks) + "\n"


def _because(why: str) -> str:
    return f": {safe(why)}" if why else ""


def _view(view: View) -> list[str]:
    study = view.study
    blocks = [f"### {study.where}: {study.title}"]
    blocks.append(f"{view.made[0].upper()}{view.made[1:]}.")
    if study.note:
        blocks.append(study.note)
    if view.shows == "table" and view.table is not None:
        blocks.append(_table(view.table))
    elif view.shows == "bars":
        blocks += [f"{view.bar_label}:", _bars(view.bars)]
    else:
        blocks += [_panel(panel) for panel in view.panels]
    if view.firing:
        rows = [[row.env, row.label, *row.cells(view.populations)] for row in view.firing]
        blocks.append(grid(["", "", "seed", "final return", "spikes per decision", *view.populations], rows, 2))
    return [*blocks, *map(safe, view.problems)]


def _table(table: Table) -> str:
    """Rows and columns of which there is a run; the others are named below."""
    places, columns = table.begun()
    rows = [
        [row.label, *(_number(row.numbers[i], table.decimals) for i in columns), *(_beside(*p) for p in row.summaries)]
        for row in (table.rows[place] for place in places)
    ]
    table_text = grid(["", *(table.columns[i] for i in columns), *table.summary_columns], rows)
    without = [row.label for place, row in enumerate(table.rows) if place not in places]
    without += [name for place, name in enumerate(table.columns) if place not in columns]
    return table_text + (f"\n\nWithout a run here: {safe(', '.join(without))}." if without else "")


def _number(number: Number, decimals: int) -> str:
    if number.ours is None:
        ours = f"unfinished ({number.unfinished})" if number.unfinished else MISSING
    else:
        ours = f"{_pair(number.ours, number.seeds, decimals)} (n {number.seeds})"
    if number.published is None:
        return ours
    paper = with_spread(number.published.mean, number.published.std, decimals)
    difference = f", {MARKS.get(number.mark, '')}{number.difference_told}" if number.difference_told else ""
    return f"{ours}, paper {paper}{difference}"


def _bars(bars: Sequence[Bar]) -> str:
    missing = [bar.label for bar in bars if bar.value is None and bar.published is None]
    rows = [
        [bar.label, spelled(bar.value), _interval(bar.interval), spelled(bar.published)]
        for bar in bars
        if bar.label not in missing
    ]  # fmt: skip
    return grid(["", "ours", "95 % interval", "paper"], rows) + _missing(missing)


def _missing(labels: Sequence[str]) -> str:
    return f"\n\nMissing: {safe(', '.join(labels))}." if labels else ""


def _panel(panel: Panel) -> str:
    """The end of every curve that has one."""
    if not panel.over_time:
        return f"{safe(panel.title)} (drawn in the other formats)."
    rows = [
        [
            label,
            spelled(curve.mean[-1]),
            _interval((curve.low[-1], curve.high[-1]) if curve.runs[-1] > 1 else None),
            f"{curve.runs[-1]}",
        ]
        for label, curve in panel.lines
    ]
    table_text = grid(["", "mean", "95 % interval", "n"], rows)
    return f"{safe(panel.title)}, {panel.y_label} at the end:\n\n{table_text}{_missing(panel.missing)}"


def grid(heads: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """A table; the first ``left`` columns are words, the others numbers."""
    lines = [heads, [*["---"] * left, *["---:"] * (len(heads) - left)], *rows]
    return "\n".join("| " + " | ".join(safe(word) for word in line) + " |" for line in lines)


def safe(text: str) -> str:
    """No word of a run's makes a column, a line or an element of its own."""
    plain = " ".join(text.split())
    for sign, escaped in (("\\", "\\\\"), ("|", "\\|"), ("<", "&lt;"), ("`", "\\`"), ("[", "\\[")):
        plain = plain.replace(sign, escaped)
    return plain


def _pair(pair: tuple[float, float] | None, seeds: int, decimals: int | None = None) -> str:
    """Mean ± standard deviation; one seed has none."""
    return MISSING if pair is None else with_spread(pair[0], pair[1] if seeds > 1 else None, decimals)


def _interval(interval: tuple[float, float] | None) -> str:
    """One run has none."""
    return MISSING if interval is None else " … ".join(map(spelled, interval))


def _beside(ours: float | None, paper: float | None) -> str:
    return spelled(ours, 2) + ("" if paper is None else f", paper {spelled(paper, 2)}")

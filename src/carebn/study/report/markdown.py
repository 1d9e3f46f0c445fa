"""The report as plain Markdown tables, for a README, a pull request or a terminal."""

from collections.abc import Iterable, Sequence

from carebn.study.records import Study
from carebn.study.report.explorer import Line
from carebn.study.report.views import Bar, Number, Panel, Table, View
from carebn.study.runs import Runs

MISSING = "–"
MARKS = {"above": "▲ ", "below": "▼ "}


def render_markdown(runs: Runs, environments: dict[str, list[Line]], views: list[View], absent: list[Study]) -> str:
    complete = sum(run.complete for run in runs.records)
    blocks = ["# CaRe-BN report", f"{len(runs.records):,} runs, {complete:,} complete."]
    if runs.problems:
        blocks += ["\n".join(f"- {_safe(problem)}" for problem in runs.problems)]
    blocks.append("## All runs")
    blocks.append("± is one standard deviation over seeds. Unfinished runs count with the evaluations they have.")
    for env, lines in environments.items():
        rows = [
            [
                line.label,
                _pair(line.best, line.seeds),
                _pair(line.last, line.seeds),
                f"{line.seeds}",
                f"{line.complete}",
            ]
            for line in lines
        ]
        heads = ["method", "max average return", "last ten evaluations", "seeds", "complete"]
        blocks += [f"### {_safe(env)}", _grid(heads, rows)]
    blocks.append("## Beside the paper")
    for view in views:
        blocks += _view(view)
    if absent:
        missing = ", ".join(f"{study.where} (`{study.made_by}`)" for study in absent)
        blocks.append(f"Nothing to show here: {missing}.")
    return "\n\n".join(blocks) + "\n"


def _view(view: View) -> list[str]:
    study = view.study
    blocks = [f"### {study.where}: {study.title}"]
    blocks.append(f"{view.made[0].upper()}{view.made[1:]}.")
    if study.note:
        blocks.append(study.note)
    if view.table is not None:
        blocks.append(_table(view.table))
    if view.bars:
        blocks += [f"{view.bar_label}:", _bars(view.bars)]
    for panel in view.panels:
        blocks.append(_panel(panel))
    return [*blocks, *map(_safe, view.problems)]


def _table(table: Table) -> str:
    rows = [
        [row.label, *(_number(n, table.decimals) for n in row.numbers), *(_beside(*pair) for pair in row.summaries)]
        for row in table.rows
    ]
    return _grid(["", *table.columns, *table.summary_columns], rows)


def _number(number: Number, decimals: int) -> str:
    if number.ours is None:
        ours = f"unfinished ({number.unfinished})" if number.unfinished else MISSING
    else:
        ours = f"{_pair(number.ours, number.seeds, decimals)} (n {number.seeds})"
    if number.published is None:
        return ours
    paper = f"{number.published.mean:.{decimals}f}"
    if number.published.std is not None:
        paper += f" ± {number.published.std:.{decimals}f}"
    difference = "" if number.difference is None else f" {MARKS.get(number.mark, '')}{number.difference:+.1f} %"
    return f"{ours}, paper {paper}{difference}"


def _bars(bars: Iterable[Bar]) -> str:
    rows = [
        [bar.label, _one(bar.value), MISSING if bar.interval is None else "{:.2f} … {:.2f}".format(*bar.interval),
         _one(bar.published)]
        for bar in bars
    ]  # fmt: skip
    return _grid(["", "ours", "95 % interval", "paper"], rows)


def _panel(panel: Panel) -> str:
    """The end of every curve that has one."""
    if not panel.over_time:
        return f"{_safe(panel.title)} (drawn in the other formats)."
    rows = [
        [label, _one(curve.mean[-1]), f"{curve.low[-1]:.3g} … {curve.high[-1]:.3g}", f"{curve.runs[-1]}"]
        for label, curve in panel.lines
    ]
    rows += [[label, MISSING, MISSING, "0"] for label in panel.missing]
    return f"{_safe(panel.title)}, {panel.y_label} at the end:\n\n" + _grid(["", "mean", "95 % interval", "n"], rows)


def _grid(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *rows]
    return "\n".join("| " + " | ".join(_safe(word) for word in line) + " |" for line in lines)


def _safe(text: str) -> str:
    """No word of a run's makes a column, a line or an element of its own."""
    plain = " ".join(text.split())
    for sign, escaped in (("\\", "\\\\"), ("|", "\\|"), ("<", "&lt;"), ("`", "\\`"), ("[", "\\[")):
        plain = plain.replace(sign, escaped)
    return plain


def _pair(pair: tuple[float, float] | None, seeds: int, decimals: int = 1) -> str:
    """Mean ± standard deviation; one seed has none."""
    if pair is None:
        return MISSING
    return f"{pair[0]:.{decimals}f}" + (f" ± {pair[1]:.{decimals}f}" if seeds > 1 else "")


def _one(value: float | None) -> str:
    return MISSING if value is None else f"{value:.4g}"


def _beside(ours: float | None, paper: float | None) -> str:
    text = MISSING if ours is None else f"{ours:.2f}"
    return text if paper is None else f"{text}, paper {paper:.2f}"

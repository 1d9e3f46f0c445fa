"""Figures for print: one for each study and each environment, as PNG or PDF."""

import re
import textwrap
from collections.abc import Callable, Iterator
from io import BytesIO
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from carebn.study.views.curves import Curve
from carebn.study.views.explorer import Line
from carebn.study.views.parts import View
from carebn.training.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Told apart by people with any colour vision, and on a grey printer by their dashes.
COLOURS = ("#c0392b", "#2457c5", "#0a8754", "#b06c00", "#7b3fb5", "#0c8599", "#c2328c", "#5f6b2d", "#6b5344", "#4b5563")
DASHES = ("-", "--", ":", "-.")
# Fonts that stay text in a PDF; sizes of a two-column page.
STYLE: dict[Any, Any] = {
    "font.size": 8, "axes.titlesize": 8.5, "axes.labelsize": 8, "legend.fontsize": 7.5, "xtick.labelsize": 7,
    "ytick.labelsize": 7, "axes.spines.top": False, "axes.spines.right": False, "axes.linewidth": 0.7,
    "lines.linewidth": 1.3, "pdf.fonttype": 42, "axes.grid": True, "grid.alpha": 0.25, "grid.linewidth": 0.5,
}  # fmt: skip
PANEL_WIDTH, PANEL_HEIGHT, COLUMNS = 2.4, 2.0, 3
LETTER, LINE = 0.058, 0.15  # inches that a letter and a line of a legend take


def write_figures(environments: dict[str, list[Line]], views: list[View], directory: Path, kind: str) -> list[Path]:
    """All figures, each in a file named after its study or environment; returns the files."""
    import matplotlib as mpl  # takes half a second: only when wanted

    written = []
    with mpl.rc_context(STYLE):
        for name, figure in _all_figures(environments, views):
            path = directory / f"{name}.{kind}"
            # No date and no version: the same runs, the same file.
            metadata: dict[str, Any] = {"CreationDate": None} if kind == "pdf" else {"Software": None}
            data = BytesIO()
            figure.savefig(data, format=kind, dpi=200, metadata=metadata)
            write_atomically(path, data.getvalue())
            written.append(path)
    return written


def _all_figures(environments: dict[str, list[Line]], views: list[View]) -> Iterator[tuple[str, "Figure"]]:
    for view in views:
        yield f"study-{view.study.name}", study_figure(view)
    taken: set[str] = set()
    for env, lines in environments.items():
        curves = [
            (f"{line.label}, {line.seeds} seed{'s' * (line.seeds > 1)}", line.evaluation)
            for line in lines
            if line.evaluation is not None
        ]
        if curves:
            yield f"curves-{_file_name(env, taken)}", curves_figure([(env, "environment steps", "return", curves)])


def study_figure(view: View) -> "Figure":
    figures: dict[str, Callable[[View], Figure]]
    figures = {"table": _table_figure, "bars": _bars_figure, "panels": _panels_figure}
    return figures[view.shows](view)


def curves_figure(panels: list[tuple[str, str, str, list[tuple[str, Curve]]]], caption: str = "") -> "Figure":
    """Panels side by side with one legend below: mean over seeds, shaded by its 95 % interval."""
    from matplotlib.figure import Figure

    columns = min(COLUMNS, len(panels))
    rows = -(-len(panels) // columns)
    wide = PANEL_WIDTH * columns if len(panels) > 1 else 4.2
    high = (PANEL_HEIGHT if len(panels) > 1 else 2.9) * rows + 0.2
    figure = Figure(figsize=(wide, high), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    labels = list(dict.fromkeys(label for _, _, _, lines in panels for label, _ in lines))
    labels.sort(key=lambda label: "CaRe-BN" not in label)  # ours takes the first colours, so it looks alike everywhere
    look = {
        label: (COLOURS[i % len(COLOURS)], DASHES[i // len(COLOURS) % len(DASHES)]) for i, label in enumerate(labels)
    }
    handles: dict[str, Any] = {}
    for axes, (title, x_label, y_label, lines) in zip(grid.flat, panels, strict=False):
        for label, curve in lines:
            colour, dash = look[label]
            marker = "o" if len(curve.x) == 1 else ""
            (handles[label],) = axes.plot(
                curve.x, curve.mean, dash, color=colour, marker=marker, label=_wrapped(label, wide - 0.6)
            )
            axes.fill_between(curve.x, curve.low, curve.high, color=colour, alpha=0.16, linewidth=0)
        axes.set_title(_wrapped(title, wide / columns - 0.5))
        axes.set_xlabel(x_label)
        axes.set_ylabel(y_label)
        if max(curve.x[-1] for _, curve in lines) > 1:
            axes.xaxis.set_major_formatter(_steps)
        axes.margins(x=0.02)
        if len({x for _, curve in lines for x in curve.x}) == 1:  # an axis around one place would tell nothing
            axes.set_xlim(*sorted((0, 1.05 * lines[0][1].x[0] or 1)))
    for axes in list(grid.flat)[len(panels) :]:
        axes.remove()
    _legend_below(figure, list(handles.values()), [_wrapped(label, wide - 0.6) for label in handles], caption)
    return figure


def _legend_below(figure: "Figure", handles: list[Any], labels: list[str], caption: str) -> None:
    """Under the panels, in as many columns as the longest label leaves room for; the figure grows by its height."""
    wide, high = figure.get_size_inches()
    longest = max((len(line) for label in labels for line in label.splitlines()), default=0)
    columns = max(1, int(wide / (longest * LETTER + 0.55)))
    title = _wrapped(caption, wide - 0.2)
    lines = len(title.splitlines()) + sum(label.count("\n") + 1 for label in labels) / columns + 1
    figure.set_size_inches(wide, high + LINE * lines)
    figure.legend(
        handles, labels, loc="outside lower center", ncols=columns, frameon=False, title=title,
        title_fontsize=STYLE["legend.fontsize"],
    )  # fmt: skip


def _panels_figure(view: View) -> "Figure":
    panels = [(p.title, p.x_label, p.y_label, p.lines) for p in view.panels if p.lines]
    return curves_figure(panels, view.made)


def _table_figure(view: View) -> "Figure":
    """Ours beside the paper's with standard deviations, one panel for each environment of which there are runs. Dots:
    the axes do not begin at nought, and nobody should compare lengths."""
    from matplotlib.figure import Figure

    table = view.table
    assert table is not None
    _, begun = table.begun()
    columns = min(COLUMNS, len(begun))
    rows = -(-len(begun) // columns)
    height = 0.5 + 0.2 * len(table.rows)
    figure = Figure(figsize=(PANEL_WIDTH * columns + 0.9, (height + 0.35) * rows + 0.4), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, sharey=True)
    handles: dict[str, Any] = {}
    places = range(len(table.rows))
    for axes, i in zip(grid.flat, begun, strict=False):
        for place, row in zip(places, table.rows, strict=True):
            number = row.numbers[i]
            if number.ours is not None:
                mean, std = number.ours
                handles["ours"] = axes.errorbar(
                    mean, place - 0.14, xerr=std if number.seeds > 1 else 0, fmt="o", color=COLOURS[1], ms=4.5, lw=0.8,
                    capsize=1.8,
                )  # fmt: skip
            if number.published is not None:
                handles["paper"] = axes.errorbar(
                    number.published.mean, place + 0.14, xerr=number.published.std or 0, fmt="D", color=COLOURS[0],
                    ms=3, lw=0.8, capsize=1.8, mfc="white",
                )  # fmt: skip
        axes.set_title(_plain(table.columns[i]))
        axes.set_yticks(places, [_plain(row.label) for row in table.rows])
        axes.grid(axis="y", visible=False)
        axes.set_xlabel({"returns": "max average return", "energy": "nJ per decision"}.get(view.study.kind, ""))
        axes.set_ylim(len(table.rows) - 0.4, -0.6)
    for axes in list(grid.flat)[len(begun) :]:
        axes.remove()
    names = sorted(handles)  # ours first, whichever was drawn first
    _legend_below(figure, [handles[name] for name in names], names, view.made)
    return figure


def _bars_figure(view: View) -> "Figure":
    from matplotlib.figure import Figure

    bars = [bar for bar in view.bars if bar.value is not None or bar.published is not None]
    missing = [bar.label for bar in view.bars if bar.value is None]
    figure = Figure(figsize=(4.8, 1.1 + 0.24 * len(bars)), layout="constrained")
    axes: Axes = figure.subplots()
    for place, bar in zip(count(), bars):
        if bar.value is not None:
            axes.barh(place, bar.value, 0.62, color=COLOURS[1], alpha=0.75)
        if bar.interval is not None:
            axes.plot(bar.interval, (place, place), color="#333333", lw=1, marker="|", ms=5)
        if bar.published is not None:
            axes.plot(bar.published, place, "D", color=COLOURS[0], ms=4)
    axes.set_xlim(left=0)
    axes.set_yticks(range(len(bars)), [_plain(bar.label) for bar in bars])
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    paper = "red: the paper's" if any(bar.published is not None for bar in bars) else ""
    told = [view.bar_label, view.made, paper, f"missing: {', '.join(missing)}" if missing else ""]
    axes.set_xlabel("\n".join(_wrapped(line, 3.4) for line in told if line))
    return figure


def _steps(value: float, _: object) -> str:
    if abs(value) >= 1e6:
        return f"{value / 1e6:g}M"
    return f"{value / 1e3:g}k" if abs(value) >= 1e3 else f"{value:g}"


def _wrapped(text: str, inches: float) -> str:
    return _plain("\n".join(textwrap.wrap(text, max(10, int(inches / LETTER)))))


def _plain(text: str) -> str:
    """Dollar signs start formulas in matplotlib; a name is no formula."""
    return text.replace("$", r"\$")


def _file_name(env_id: str, taken: set[str]) -> str:
    base = re.sub(r"[^\w.-]+", "-", env_id).strip("-.")[:80] or "environment"
    name = next(n for n in (base, *(f"{base}-{i}" for i in range(2, 10_000))) if n not in taken)
    taken.add(name)
    return name

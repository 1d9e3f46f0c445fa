"""The report as one self-contained page: markup, style, script and data in a single file that needs no network."""

import base64
import hashlib
import json
import math
from importlib.resources import files
from typing import Any

from carebn import __version__
from carebn.paper.facts import STEPS as PAPER_STEPS
from carebn.study.evidence.runs import RunRecord, Runs
from carebn.study.views.curves import Curve
from carebn.study.views.explorer import Line, SeedLine, totals, with_most_data
from carebn.study.views.parts import Absent, Bar, Number, Panel, Table, View

DIGITS = 7  # significant ones, of what is drawn: more than are read off, so that nothing is rounded twice


def render_page(runs: Runs, environments: dict[str, list[Line]], views: list[View], absent: list[Absent]) -> str:
    data = _Packer().pack(runs, environments, views, absent)
    parts = {name: _asset(name) for name in ("page.css", "page.js")}
    fields = {
        "style": parts["page.css"],
        "script": parts["page.js"],
        "style_hash": _hash(parts["page.css"]),
        "script_hash": _hash(parts["page.js"]),
        "data": embedded_json(data),
    }
    page = _asset("page.html")
    for name, value in fields.items():  # "data" comes last: what runs say is never searched for fields
        page = page.replace("{{" + name + "}}", value, 1)
    return page


def embedded_json(data: Any) -> str:
    """JSON that cannot end the element it stands in, whatever its strings say."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _asset(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """By its content security policy the page runs this very script and no other."""
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


def _rounded(value: float | None) -> float | None:
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.{DIGITS}g}")


class _Packer:
    """Turns records and views into what the script reads; steps shared by many curves are kept once."""

    def __init__(self) -> None:
        self.grids: dict[tuple[float, ...], int] = {}
        self.versions: dict[str, int] = {}

    def pack(
        self, runs: Runs, environments: dict[str, list[Line]], views: list[View], absent: list[Absent]
    ) -> dict[str, Any]:
        records = runs.records
        total = totals(records)
        packed_runs = [self.run(run) for run in records]
        packed_environments = [
            {"id": env, "lines": [self.line(line) for line in lines]} for env, lines in environments.items()
        ]
        packed_views = [self.view(view) for view in views]
        return {
            "version": __version__,
            "paperSteps": PAPER_STEPS,
            "facts": [
                [f"{total.runs:,}", "runs" if total.runs != 1 else "run"],
                [f"{total.complete:,}", "complete"],
                [f"{len(environments):,}", "environments" if len(environments) != 1 else "environment"],
                [f"{total.steps:,}", "environment steps"],
                _time_spent(total.seconds),
            ],
            "problems": runs.problems,
            "gaps": runs.gaps(),
            "environments": packed_environments,
            "opens": with_most_data(environments),
            "studies": packed_views,
            "absent": [
                {"where": s.where, "title": s.title, "command": s.made_by, "why": why} for s, why in absent
            ],
            "runs": packed_runs,
            "versions": [json.loads(text) for text in self.versions],
            "grids": list(self.grids),
        }  # fmt: skip

    def run(self, run: RunRecord) -> dict[str, Any]:
        versions = self.versions.setdefault(json.dumps(run.versions, sort_keys=True), len(self.versions))
        neuron = "" if run.neuron == "none" else f", {run.neuron}"
        return {
            "name": run.directory.name,
            "env": run.env_id,
            "method": f"{run.method}{neuron}, {run.algo}",
            "seed": run.seed,
            "step": run.step,
            "total": run.total,
            "complete": run.complete,
            "best": run.best,
            "seconds": _rounded(run.seconds),
            "speed": _rounded(run.speed),
            "processor": run.timing.processor,
            "processorSeconds": _rounded(run.timing.processor_seconds),
            "mebibytes": _rounded(run.timing.mebibytes),
            "command": run.command,
            "versions": versions,
        }

    def curve(self, curve: Curve | None) -> dict[str, Any] | None:
        if curve is None:
            return None
        grid = self.grids.setdefault(tuple(curve.x), len(self.grids))
        names = ("mean", "low", "high", "std")
        packed = {name: [_rounded(value) for value in getattr(curve, name)] for name in names}
        return {"grid": grid, "runs": curve.runs, **packed}

    def line(self, line: Line) -> dict[str, Any]:
        return {
            "label": line.label,
            "evaluation": self.curve(line.evaluation),
            "exploration": self.curve(line.exploration),
            "seeds": line.seeds,
            "begun": line.begun,
            "complete": line.complete,
            "best": _spread(line.best, line.seeds),
            "last": _spread(line.last, line.seeds),
            "hasTen": line.has_ten,
            "seconds": None if line.seconds is None else [_rounded(value) for value in line.seconds],
            "bySeed": [self.seed(one) for one in line.by_seed],
        }

    def seed(self, one: SeedLine) -> dict[str, Any]:
        return {
            "seed": one.seed,
            "grid": self.grids.setdefault(tuple(one.steps), len(self.grids)),
            "returns": [_rounded(value) for value in one.returns],
            "seconds": None if one.seconds is None else [_rounded(value) for value in one.seconds],
        }

    def view(self, view: View) -> dict[str, Any]:
        study = view.study
        return {
            "name": study.name,
            "where": study.where,
            "title": study.title,
            "note": study.note,
            "made": view.made,
            "reduced": view.reduced,
            "problems": view.problems,
            "table": _table(view.table) if view.shows == "table" and view.table is not None else None,
            "bars": [_bar(bar) for bar in view.bars],
            "barLabel": view.bar_label,
            "labels": view.labels,
            "panels": [self.panel(panel) for panel in view.panels],
        }

    def panel(self, panel: Panel) -> dict[str, Any]:
        return {
            "title": panel.title,
            "xLabel": panel.x_label,
            "yLabel": panel.y_label,
            "lines": [{"label": label, "curve": self.curve(curve)} for label, curve in panel.lines],
            "missing": panel.missing,
        }


def _time_spent(seconds: float) -> list[str]:
    size, unit = (3600, "hour") if seconds >= 5400 else (60, "minute") if seconds >= 90 else (1, "second")
    number = f"{seconds / size:,.{int(unit == 'hour')}f}"
    return [number, f"{unit}{'s' * (number != '1')} of training"]


def _finite(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else value


def _spread(pair: tuple[float, float] | None, seeds: int) -> list[float | None] | None:
    """Mean and standard deviation, as they are: rounded where they are told. One seed has none."""
    return None if pair is None else [_finite(pair[0]), _finite(pair[1]) if seeds > 1 else None]


def _bar(bar: Bar) -> dict[str, Any]:
    interval = None if bar.interval is None else [_finite(edge) for edge in bar.interval]
    return {"label": bar.label, "value": _finite(bar.value), "interval": interval, "published": bar.published}


def _table(table: Table) -> dict[str, Any]:
    rows = [
        {
            "label": row.label,
            "numbers": [_number(number) for number in row.numbers],
            "summaries": [[_finite(ours), _finite(paper)] for ours, paper in row.summaries],
        }
        for row in table.rows
    ]
    rows_begun, columns_begun = table.begun()
    return {
        "columns": table.columns,
        "summaries": table.summary_columns,
        "decimals": table.decimals,
        "rows": rows,
        "rowsBegun": rows_begun,
        "columnsBegun": columns_begun,
    }


def _number(number: Number) -> dict[str, Any]:
    published = number.published
    return {
        "ours": _spread(number.ours, number.seeds),
        "seeds": number.seeds,
        "unfinished": number.unfinished,
        "published": None if published is None else [published.mean, published.std],
        "difference": number.difference_told,
        "mark": number.mark,
    }

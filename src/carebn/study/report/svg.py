"""Learning curves as an SVG of our own: the same runs give the same bytes on every machine, whatever is installed."""

import math
from collections.abc import Sequence
from html import escape

from carebn.study.report.figures import COLOURS
from carebn.study.views.results import TaskCurve

WIDTH, HEIGHT = 760, 380  # of the picture without its legend
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 44, 44  # margins of the axes
KEY_WIDTH, KEY_HEIGHT = 220, 22  # of a line of the legend
DARK = ("#ff7b6b", "#7ba7ff", "#4fd08f", "#f0b04a", "#c79bff", "#5cd3e6", "#ff86cf", "#c3d06c", "#d8b49c", "#b4bcc9")


def curves_svg(title: str, curves: Sequence[TaskCurve]) -> str:
    """The mean over seeds with its 95 % interval, and every seed as a thin line."""
    ours_first = sorted(curves, key=lambda curve: "CaRe-BN" not in curve.label)  # the same colour everywhere
    colour = {curve.label: i % len(COLOURS) for i, curve in enumerate(ours_first)}
    across, up = _Scale.across(curves), _Scale.up(curves)
    columns = max(1, (WIDTH - LEFT) // KEY_WIDTH)
    high = HEIGHT + KEY_HEIGHT * (-(-len(curves) // columns)) + 8
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {high}" width="{WIDTH}" height="{high}"'
        f' role="img" aria-label="{escape(title)}">',
        _style(),
        f'<rect class="ground" width="{WIDTH}" height="{high}"/>',
        f'<text class="title" x="{LEFT}" y="20">{escape(title)}</text>',
        f'<text x="{LEFT}" y="36">return: mean over seeds, its 95 % interval, and every seed</text>',
        *_axes(across, up),
    ]
    for curve in reversed(ours_first):  # ours on top
        parts += _line(curve, colour[curve.label], across, up)
    for i, curve in enumerate(ours_first):
        x, y = LEFT + i % columns * KEY_WIDTH, HEIGHT + 6 + i // columns * KEY_HEIGHT
        number = max(curve.mean.runs)
        told = f"{curve.label}, {number} seed{'s' * (number != 1)}"
        parts.append(f'<line class="mean c{colour[curve.label]}" x1="{x}" x2="{x + 24}" y1="{y}" y2="{y}"/>')
        parts.append(f'<text x="{x + 30}" y="{y + 4}">{escape(told)}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _style() -> str:
    def palette(colours: Sequence[str], ground: str, ink: str, grid: str) -> str:
        lines = " ".join(f".c{i} {{ stroke: {one}; }} .b{i} {{ fill: {one}; }}" for i, one in enumerate(colours))
        return f".ground {{ fill: {ground}; }} text {{ fill: {ink}; }} .grid {{ stroke: {grid}; }} {lines}"

    light = palette(COLOURS, "#ffffff", "#444b55", "#e1e4ea")
    dark = palette(DARK, "#14161b", "#c5cbd6", "#323742")
    return (
        '<style>text { font: 12px system-ui, "Segoe UI", Roboto, sans-serif; } .title { font-weight: 600; '
        "font-size: 14px; } polyline, line { fill: none; } .mean { stroke-width: 2; } .seed { stroke-width: 0.8; "
        f"opacity: 0.4; }} .band {{ opacity: 0.15; }} {light} @media (prefers-color-scheme: dark) {{ {dark} }}</style>"
    )


class _Scale:
    """From a number to a place, with round marks on the way."""

    def __init__(self, low: float, high: float, start: float, end: float, marks: int) -> None:
        self.low, self.high = (low, high) if high > low else (low - 1, low + 1)
        self.start, self.end = start, end
        raw = (self.high - self.low) / marks
        power = 10.0 ** math.floor(math.log10(raw))
        step = next(m * power for m in (1, 2, 5, 10) if m * power >= raw * (1 - 1e-9))
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        self.marks = [round(i * step, 10) for i in range(first, last + 1)]

    def __call__(self, value: float) -> str:
        place = self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)
        return f"{place:.1f}"

    @classmethod
    def across(cls, curves: Sequence[TaskCurve]) -> "_Scale":
        return cls(0, max(curve.mean.x[-1] for curve in curves), LEFT, WIDTH - RIGHT, 8)

    @classmethod
    def up(cls, curves: Sequence[TaskCurve]) -> "_Scale":
        values = [value for curve in curves for _, returns in curve.seeds for value in returns]
        values += [value for curve in curves for value in (*curve.mean.low, *curve.mean.high)]
        room = (max(values) - min(values)) * 0.03
        return cls(min(values) - room, max(values) + room, HEIGHT - BOTTOM, TOP, 6)


def _axes(across: _Scale, up: _Scale) -> list[str]:
    parts = []
    for mark in up.marks:
        y = up(mark)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{float(y) + 4:.1f}" text-anchor="end">{_told(mark)}</text>')
    for mark in across.marks:
        anchor = "end" if float(across(mark)) > WIDTH - 30 else "middle"  # else it would leave the picture
        parts.append(f'<text x="{across(mark)}" y="{HEIGHT - BOTTOM + 16}" text-anchor="{anchor}">{_told(mark)}</text>')
    parts.append(f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 12}" text-anchor="end">environment steps</text>')
    return parts


def _told(mark: float) -> str:
    return f"{mark:,.10g}".replace("-", "−")


def _line(curve: TaskCurve, colour: int, across: _Scale, up: _Scale) -> list[str]:
    def points(x: Sequence[float], y: Sequence[float]) -> str:
        return " ".join(f"{across(a)},{up(b)}" for a, b in zip(x, y, strict=True))

    mean = curve.mean
    parts = [f'<polyline class="seed c{colour}" points="{points(*trace)}"/>' for trace in curve.seeds]
    if max(mean.runs) > 1 and len(mean.x) > 1:
        band = f"{points(mean.x, mean.low)} {points(mean.x[::-1], mean.high[::-1])}"
        parts.append(f'<polygon class="band b{colour}" points="{band}"/>')
    if len(mean.x) == 1:  # one evaluation is a dot
        dot = f'<circle class="b{colour}" cx="{across(mean.x[0])}" cy="{up(mean.mean[0])}" r="4"/>'
        return [*parts, dot]
    return [*parts, f'<polyline class="mean c{colour}" points="{points(mean.x, mean.mean)}"/>']

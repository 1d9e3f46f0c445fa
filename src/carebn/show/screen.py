"""The frames of a film: the environment, and beside it, scrolling in time with it, what every layer does.

What does not change is drawn once; a raster is an array that moves to the left and gets new columns at its right end.
"""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, Self

import matplotlib
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from carebn.measure.spikes import Decision, Population
from carebn.show.drawn_environment import Picture
from carebn.show.rows import Rows, plan_rows
from carebn.training.environment import Env, Spaces

Colour = tuple[int, int, int]

BACKGROUND: Colour = (13, 15, 20)
STRIPES: tuple[Colour, Colour] = ((20, 22, 30), (32, 35, 47))  # even and odd decisions
TEXT: Colour = (232, 234, 240)
DIM: Colour = (150, 156, 168)
BAR: Colour = (90, 200, 250)
CHOSEN: Colour = (255, 205, 90)
ANALOGUE: Colour = (225, 215, 255)
SPIKES: tuple[Colour, ...] = ((255, 205, 90), (95, 210, 255), (130, 240, 150), (255, 140, 175))

DESIGN = (1920, 1080)  # all measures below are for this size and scale with it


class Controls(NamedTuple):
    """What the policy decides: an action within bounds, or the values of discrete actions."""

    names: Sequence[str]
    low: NDArray[np.float32] | None  # None: discrete actions
    high: NDArray[np.float32] | None

    @classmethod
    def of(cls, env: Env, spaces: Spaces) -> Self:
        if spaces.low is not None:
            return cls([str(i + 1) for i in range(len(spaces.low))], spaces.low, spaces.high)
        meanings = getattr(env.unwrapped, "get_action_meanings", None)
        return cls(meanings() if meanings is not None else [str(i) for i in range(spaces.actions or 0)], None, None)


def unit_of(name: str, spiking: bool) -> str:
    """What a population is made of."""
    return "neurons" if spiking else "values" if name == "input" else "ReLU units"


class Panel(NamedTuple):
    name: str
    neurons: int
    spiking: bool
    counted: int  # steps that a value counts the spikes of
    rows: Rows
    top: int
    colour: Colour

    @property
    def unit(self) -> str:
        return unit_of(self.name, self.spiking)


@cache
def _font(pixels: int) -> Any:
    path = Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf"  # everybody has this one
    return ImageFont.truetype(path, pixels)


def brightness(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """In [0, 1]: a spike is one; an analogue value x is tanh |x|."""
    return np.tanh(np.abs(values)).astype(np.float32)


def columns(
    values: NDArray[np.float32], spiking: bool, rows: Rows, width: int, colour: Colour, back: Colour
) -> Picture:
    """The picture of one decision's values [T, N]: time to the right, neurons downwards. Spikes are in [0, 1]."""
    shown = values.T[:: rows.every]
    share = (shown if spiking else brightness(shown))[..., None]
    pixels = np.array(back, np.float32) * (1 - share) + np.array(colour, np.float32) * share
    return np.rint(pixels).astype(np.uint8).repeat(rows.pixels, 0).repeat(width, 1)


class Screen:
    """``add`` a decision, then ``frame`` gives the picture of that moment."""

    def __init__(
        self,
        size: tuple[int, int],
        title: str,
        populations: Sequence[Population],
        controls: Controls,
        rate: float | None,
        speed: float,
    ) -> None:
        self.size = size
        self.controls, self.rate, self.speed = controls, rate, speed
        s = self._scaled
        self.left, self.view_top = s(40), s(96)
        self.view_size = s(620), s(620)
        self.raster_left, self.raster_width = s(720), s(1160)
        self.steps = max(p.values.shape[0] for p in populations)
        self.column = self._column_width()
        self.window = self.raster_width // (self.column * self.steps)  # decisions
        self.raster_width = self.window * self.column * self.steps
        self.panels = self._panels(populations)
        self.rasters = [self._empty(panel) for panel in self.panels]
        self.decisions = 0
        self.latest: Decision | None = None
        self.background = self._background(title)

    def _scaled(self, measure: int) -> int:
        return max(1, round(measure * self.size[0] / DESIGN[0]))

    def _column_width(self) -> int:
        """About a second in the window, but at least two pixels a step, and no broader than need be."""
        per_second = (self.rate or 20.0) * self.steps
        return int(np.clip(self.raster_width / per_second, 2, self._scaled(12)))

    def _panels(self, populations: Sequence[Population]) -> list[Panel]:
        top, bottom, heading = self._scaled(14), self.size[1] - self._scaled(62), self._scaled(28)
        sizes = [p.values.shape[2] for p in populations]
        planned = plan_rows(sizes, bottom - top - heading * len(sizes))
        panels, spiking = [], 0
        for population, rows in zip(populations, planned, strict=True):
            top += heading
            colour = SPIKES[spiking % len(SPIKES)] if population.spiking else ANALOGUE
            spiking += population.spiking
            name, values, fires, counted = population
            panels.append(Panel(name, values.shape[2], fires, counted, rows, top, colour))
            top += rows.height
        return panels

    def _empty(self, panel: Panel) -> Picture:
        return np.full((panel.rows.height, self.raster_width, 3), STRIPES[0], np.uint8)

    # --- what does not change ----------------------------------------------------------------------------------------

    def _text(self, draw: Any, x: int, y: int, text: str, pixels: int, colour: Colour, anchor: str = "ls") -> None:
        draw.text((x, y), text, fill=colour, font=_font(self._scaled(pixels)), anchor=anchor)

    def _background(self, title: str) -> Picture:
        image = Image.new("RGB", self.size, BACKGROUND)
        draw = ImageDraw.Draw(image)
        s = self._scaled
        pixels = 30
        while pixels > 10 and draw.textlength(title, font=_font(s(pixels))) > self.view_size[0]:
            pixels -= 1
        self._text(draw, self.left, s(62), title, pixels, TEXT)
        for panel in self.panels:
            what = f"{panel.neurons} {panel.unit}"
            if not panel.spiking:
                what += ", not spikes: brightness is tanh |x|"
            elif panel.counted > 1:
                what += f": brightness is the share of {panel.counted} steps with a spike"
            if panel.rows.every > 1:
                what += f", one in {panel.rows.every} shown"
            self._text(draw, self.raster_left, panel.top - s(7), panel.name, 20, panel.colour)
            indent = draw.textlength(panel.name + "  ", font=_font(s(20)))
            self._text(draw, self.raster_left + int(indent), panel.top - s(7), what, 17, DIM)
        self._draw_time_axis(draw)
        return np.asarray(image)

    def _draw_time_axis(self, draw: Any) -> None:
        s = self._scaled
        last = self.panels[-1]
        y = last.top + last.rows.height + s(4)
        right = self.raster_left + self.raster_width
        per_decision = self.column * self.steps
        each = f"each stripe: one decision of {self.steps} steps" if self.steps > 1 else "each column: one decision"
        if self.rate is None:
            self._text(draw, self.raster_left, y + s(28), f"last {self.window} decisions; {each}", 17, DIM)
            self._text(draw, right, y + s(28), "now", 17, TEXT, "rs")
            return
        per_second = self.rate * per_decision
        tick = next(t for t in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 1e9) if t * per_second >= s(150))
        for i in range(int(self.raster_width / (tick * per_second)) + 1):
            x = right - round(i * tick * per_second)
            draw.line((x, y, x, y + s(6)), fill=DIM)
            text = "now" if i == 0 else f"−{i * tick:g} s"
            self._text(draw, x, y + s(26), text, 17, TEXT if i == 0 else DIM, "rs" if i == 0 else "ms")
        self._text(draw, self.raster_left, y + s(50), each, 17, DIM)

    # --- what does ---------------------------------------------------------------------------------------------------

    def clear(self) -> None:
        """A new episode."""
        self.rasters = [self._empty(panel) for panel in self.panels]
        self.decisions = 0
        self.latest = None

    def add(self, decision: Decision) -> None:
        """The decision for one observation."""
        for panel, raster, population in zip(self.panels, self.rasters, decision.populations, strict=True):
            values = population.values[:, 0] / np.float32(population.counted)
            back = STRIPES[self.decisions % 2 if panel.spiking else 0]
            width = self.column * self.steps // values.shape[0]
            new = columns(values, panel.spiking, panel.rows, width, panel.colour, back)
            raster[:, : -new.shape[1]] = raster[:, new.shape[1] :].copy()
            raster[:, -new.shape[1] :] = new
        self.decisions += 1
        self.latest = decision

    def frame(self, view: Picture, score: float, elapsed: int, note: str = "") -> Picture:
        """``elapsed``: environment steps taken so far; the newest decision is the one about to be carried out."""
        picture = self.background.copy()
        right = self.raster_left + self.raster_width
        for panel, raster in zip(self.panels, self.rasters, strict=True):
            picture[panel.top : panel.top + panel.rows.height, self.raster_left : right] = raster
        image = Image.fromarray(picture)
        self._paste_view(image, view)
        draw = ImageDraw.Draw(image)
        s = self._scaled
        if self.latest is not None:
            for panel, population in zip(self.panels, self.latest.populations, strict=True):
                rate = f"{population.rate:.0%} {'firing' if panel.spiking else 'active'}"
                self._text(draw, right, panel.top - s(7), rate, 17, TEXT, "rs")
            self._draw_controls(draw, self.latest)
        y = self.view_top + self.view_size[1] + s(44)
        self._text(draw, self.left, y, f"return {score:,.1f}", 30, TEXT)
        step = f"decision {self.decisions}"
        if self.rate is not None:
            step += f"   {elapsed / self.rate:.2f} s"
        if self.speed != 1:
            step += f"   at {self.speed:g} × speed"
        self._text(draw, self.left + self.view_size[0], y, step, 20, DIM, "rs")
        if note:
            self._text(draw, self.left + s(12), self.view_top + s(34), note, 22, CHOSEN)
        return np.asarray(image)

    def _paste_view(self, image: Any, view: Picture) -> None:
        """As large as fits; enlarged by a whole factor first, so that an Atari game keeps its sharp pixels."""
        width, height = self.view_size
        factor = min(width / view.shape[1], height / view.shape[0])
        size = int(view.shape[1] * factor), int(view.shape[0] * factor)
        sharp = max(1, int(np.ceil(factor)))
        picture = Image.fromarray(view.repeat(sharp, 0).repeat(sharp, 1))
        if size != picture.size:
            picture = picture.resize(size, Image.Resampling.BILINEAR)
        image.paste(picture, (self.left + (width - size[0]) // 2, self.view_top + (height - size[1]) // 2))

    def _bounds(self) -> str:
        low, high = self.controls.low, self.controls.high
        assert low is not None
        assert high is not None
        same = (low == low[0]).all() and (high == high[0]).all()
        return f"from {low[0]:g} to {high[0]:g}" if same else "each bar from its lower to its upper bound"

    def _draw_controls(self, draw: Any, decision: Decision) -> None:
        """A bar per action dimension from zero (or the nearest bound); for discrete actions a bar per value."""
        s = self._scaled
        names, low, high = self.controls
        values = decision.output[0]
        top, bottom = self.view_top + self.view_size[1] + s(66), self.size[1] - s(24)
        heading = "value Q of each action; yellow: chosen" if low is None else f"action, {self._bounds()}"
        self._text(draw, self.left, top + s(20), heading, 18, DIM)
        top += s(32)
        lines = max(1, (bottom - top) // s(20))
        blocks = -(-len(values) // lines)
        lines = -(-len(values) // blocks)
        line = min(s(36), (bottom - top) // lines)
        block_width = self.view_size[0] // blocks
        pixels = max(8, min(18, int(line * DESIGN[0] / self.size[0] * 0.8)))
        name_width = s(20) + int(max(draw.textlength(n, font=_font(s(pixels))) for n in names))
        if low is None or high is None:
            spread = max(float(values.max() - values.min()), 1e-9)
            shares = [(0.0, 0.04 + 0.96 * float(v - values.min()) / spread) for v in values]
        else:
            origin = (np.clip(0.0, low, high) - low) / (high - low)
            shares = list(zip(origin, (values - low) / (high - low), strict=True))
        for i, (name, value, (start, stop)) in enumerate(zip(names, values, shares, strict=True)):
            x, y = self.left + (i // lines) * block_width, top + (i % lines) * line
            chosen = low is None and i == int(decision.action[0])
            self._text(draw, x, y + line // 2, name, pixels, CHOSEN if chosen else TEXT, "lm")
            a, b = x + name_width, x + block_width - s(100)
            pad = max(1, line // 6)
            draw.rectangle((a, y + pad, b, y + line - pad), fill=STRIPES[1])
            first, second = sorted((a + round(start * (b - a)), a + round(stop * (b - a))))
            draw.rectangle((first, y + pad, second, y + line - pad), fill=CHOSEN if chosen else BAR)
            if low is not None:
                zero = a + round(start * (b - a))
                draw.line((zero, y + pad - 1, zero, y + line - pad + 1), fill=TEXT)
            number = f"{value:+.2f}" if abs(value) < 1000 else f"{value:+.3g}"
            self._text(draw, x + block_width - s(18), y + line // 2, number, pixels, TEXT, "rm")

"""One decision as a picture: the observation above, the action below, and between them every layer, step by step."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from carebn.measure.spikes import Decision, Population
from carebn.show.screen import Controls

COLOURS = ("tab:orange", "tab:blue", "tab:green", "tab:red")
DPI = 150
INCHES = 13.0
PIXELS_PER_NEURON = 3  # at least
MOST_TICKS = 30  # on an axis
SEPARATED = 150  # neurons up to which each is told from its neighbours by a line


def figure(title: str, observation: NDArray[Any], decision: Decision, controls: Controls) -> Any:
    """``decision`` of the single ``observation``. An image per layer: neurons to the right, steps downwards."""
    from matplotlib.figure import Figure  # takes half a second: only when wanted

    populations = [p for p in decision.populations if p.name != "input"]  # the observation is drawn anyway
    widest = max(p.values.shape[2] for p in populations)
    width = max(INCHES, PIXELS_PER_NEURON * widest / DPI / 0.85)
    heights = [1.3, *(0.55 + 0.17 * p.values.shape[0] for p in populations), 1.3]
    picture = Figure(figsize=(width, sum(heights) + 0.9 + 0.35 * len(heights)), layout="constrained")
    picture.suptitle(title, fontsize=11)
    axes = picture.subplots(len(heights), 1, height_ratios=heights)
    encoded = populations[0].name == "encoder"
    _observation(axes[0], observation, populations[0].values.shape[2] if encoded else None)
    spiking = 0
    for ax, population in zip(axes[1:-1], populations, strict=True):
        _population(ax, population, COLOURS[spiking % len(COLOURS)] if population.spiking else "Purples")
        spiking += population.spiking
    _decision(axes[-1], decision, controls, populations[-1].values.shape[2])
    return picture


def _number(axes: Any, number: int, share: float, what: str) -> None:
    """Below the middle of each place, ``share`` wide, its number, from 1 as everywhere here; of many only some."""
    step = next(size * 10**power for power in range(9) for size in (1, 2, 5) if number <= MOST_TICKS * size * 10**power)
    shown = sorted({1, *range(step, number + 1, step)})
    axes.set_xticks([(i - 0.5) * share for i in shown], list(map(str, shown)))
    axes.set_xlim(0, number * share)
    axes.set_xlabel(what, fontsize=8, labelpad=1)


def _observation(axes: Any, observation: NDArray[Any], neurons: int | None) -> None:
    """Each value above its population of encoder neurons."""
    share = 1 if neurons is None else neurons / observation.size
    axes.bar((np.arange(observation.size) + 0.5) * share, observation, width=0.8 * share, color="dimgrey")
    axes.axhline(0, color="black", linewidth=0.6)
    above = "" if neurons is None else f", each above its {round(share)} encoder neurons"
    axes.set_title(f"observation: {observation.size} values{above}", loc="left", fontsize=9)
    _number(axes, observation.size, share, "value")
    axes.tick_params(labelsize=7)


def _population(axes: Any, population: Population, colour: str) -> None:
    from matplotlib.colors import LinearSegmentedColormap

    values = population.values[:, 0]
    steps, neurons = values.shape
    grid = {"aspect": "auto", "interpolation": "nearest", "extent": (0, neurons, steps + 0.5, 0.5)}
    if population.spiking:
        shades = LinearSegmentedColormap.from_list("", ["whitesmoke", colour])
        axes.imshow(values, cmap=shades, vmin=0, vmax=population.counted, **grid)
        told = f"{population.active} spikes, {population.rate:.1%} of {steps * population.counted} × {neurons} fire"
        if population.counted > 1:
            told += f"; the most: {int(values.max())}"
    else:
        axes.imshow(values, cmap=colour, vmin=min(0.0, float(values.min())), **grid)
        told = f"activity, not spikes: {population.rate:.1%} active, darkest {values.max():.3g}"
    for edge in range(1, steps):
        axes.axhline(edge + 0.5, color="white", linewidth=1.2)
    for edge in range(1, neurons if neurons <= SEPARATED else 1):
        axes.axvline(edge, color="white", linewidth=0.8)
    unit = "neurons" if population.spiking else "ReLU units"
    axes.set_title(f"{population.name}: {neurons} {unit}", loc="left", fontsize=9)
    axes.set_title(told, loc="right", fontsize=9)
    axes.set_yticks(range(1, steps + 1))
    by_step = population.spiking and population.counted == 1
    axes.set_ylabel("step" if by_step else "", fontsize=8)
    if not by_step:
        axes.set_yticks([])
    _number(axes, neurons, 1, "neuron" if population.spiking else "unit")
    axes.tick_params(labelsize=7)


def _decision(axes: Any, decision: Decision, controls: Controls, neurons: int) -> None:
    """Each action below its population; or the values of discrete actions, the chosen one in colour."""
    values = decision.output[0]
    if controls.low is None or controls.high is None:
        best = int(decision.action[0])
        colours = ["tab:red" if i == best else "lightgrey" for i in range(values.size)]
        axes.bar(controls.names, values, color=colours)
        axes.set_title(f"value Q of each action; chosen: {controls.names[best]}", loc="left", fontsize=9)
    else:
        places = (np.arange(values.size) + 0.5) * neurons / values.size
        width = 0.8 * neurons / values.size
        span = controls.high - controls.low
        axes.bar(places, span, bottom=controls.low, width=width, color="whitesmoke", edgecolor="lightgrey")
        axes.bar(places, values, width=width, color="tab:red")
        axes.axhline(0, color="black", linewidth=0.6)
        room = 0.05 * span.max()  # outside of both bounds
        axes.set_ylim(controls.low.min() - room, controls.high.max() + room)
        axes.set_title("action: " + "  ".join(f"{v:+.3f}" for v in values), loc="left", fontsize=9)
        axes.set_title("grey: its bounds", loc="right", fontsize=9)
        _number(axes, values.size, neurons / values.size, "action")
    axes.tick_params(labelsize=7)

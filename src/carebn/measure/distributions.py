"""The paper's first figure, from runs: what reaches a normaliser, and what it believes, as updates go on.

A run's last checkpoint is loaded beside the run, which stays as it is; then some updates are made, and between them the
true distribution of a feature (a large replay sample through the network with the statistics in use) is drawn with the
estimated Gaussian: for the feature that moved most, and for the one that moved least.
"""

from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from carebn.limits import UPDATES, check_most, check_work
from carebn.measure.activations import estimated, norm_inputs, normalisers
from carebn.measure.wasserstein import gaussian_distance
from carebn.training import seeds
from carebn.training.config import TrainConfig
from carebn.training.files import as_json, write_atomically
from carebn.training.policy import read_config, spaces_of_run
from carebn.training.run_state import RunState
from carebn.training.worlds import Trust

OBSERVATIONS = 2048
BINS = 69  # of a histogram
FORMATS = (".png", ".pdf")
MOST_SNAPSHOTS = 100  # more cannot be told apart in a figure


@dataclass(frozen=True)
class Snapshot:
    """Of one layer after ``updates`` updates."""

    updates: int
    samples: NDArray[Any]  # [n, F]
    mean: NDArray[Any]  # [F], estimated
    var: NDArray[Any]
    distance: NDArray[Any]  # [F], W1 between the two


def snapshots(
    run_dir: Path, layer: int, number: int, updates: int, trust: Trust = False
) -> tuple[TrainConfig, list[Snapshot]]:
    """``number`` snapshots with ``updates`` updates between two of them. ``layer`` counts from 1."""
    config = replace(read_config(run_dir, trust), run_dir=run_dir).checked()
    spaces, _ = spaces_of_run(run_dir, config, trust)
    state = RunState(config, spaces)
    agent, replay = state.agent, state.replay
    norms = normalisers(agent.policy)
    if not norms:
        raise ValueError(f"{run_dir} has no distributions to show: method {config.method} has no normaliser")
    if not 1 <= layer <= len(norms):
        raise ValueError(f"--layer must lie between 1 and {len(norms)} for {run_dir}, got {layer}")
    state.restore_newest(run_dir, config)
    sample = replay.sample_obs(OBSERVATIONS, np.random.default_rng(seeds.number(config.seed, seeds.MEASUREMENT)))
    device = next(agent.policy.parameters()).device
    taken = []
    for i in range(number):
        if i:
            for _ in range(updates):
                agent.update(replay, state.streams["update"])
        inputs = norm_inputs(agent.policy, sample.to(device))[layer - 1]
        *_, (values, mean, var) = estimated(norms[layer - 1], inputs)  # of the last step, where steps have their own
        distance = gaussian_distance(values, mean, var)
        arrays = (tensor.detach().cpu().numpy().copy() for tensor in (values, mean, var, distance))
        taken.append(Snapshot(i * updates, *arrays))
    return config, taken


def most_and_least_moving(taken: list[Snapshot]) -> tuple[int, int]:
    """The features whose true mean moved most and least between first and last, relative to their spread."""
    first, last = taken[0].samples, taken[-1].samples
    spread = first.std(0)
    drift = np.abs(last.mean(0) - first.mean(0)) / np.where(spread > 0, spread, np.inf)
    alive = np.flatnonzero(spread > 0)
    if not len(alive):
        raise ValueError("no feature of this layer varies at all: there is no distribution to draw")
    return int(alive[drift[alive].argmax()]), int(alive[drift[alive].argmin()])


def _told_apart(methods: list[str], run_dirs: tuple[Path, ...]) -> list[str]:
    """A run goes by its method; where several have the same one, by the name of its directory too."""
    names = [run_dir.resolve().name for run_dir in run_dirs]
    places = [str(run_dir) if names.count(name) > 1 else name for run_dir, name in zip(run_dirs, names, strict=True)]
    return [
        method if methods.count(method) == 1 else f"{place}\n{method}"
        for method, place in zip(methods, places, strict=True)
    ]


def bins_of(taken: list[Snapshot], feature: int) -> NDArray[Any]:
    """Edges that all snapshots of a feature share; the outermost hundredth of the samples may lie outside."""
    everything = np.concatenate([snapshot.samples[:, feature] for snapshot in taken])
    low, high = np.percentile(everything, [0.5, 99.5])
    reach = max(high - low, 1e-6) * 0.15
    return np.linspace(low - reach, high + reach, BINS + 1)


def as_numbers(run_dir: Path, config: TrainConfig, layer: int, taken: list[Snapshot]) -> dict[str, Any]:
    """What is drawn of one run, as plain numbers."""

    def moments(feature: int) -> list[dict[str, Any]]:
        edges = bins_of(taken, feature)
        width = edges[1] - edges[0]
        return [
            {
                "updates": snapshot.updates,
                "edges": edges.tolist(),
                "density": (
                    np.histogram(snapshot.samples[:, feature], edges)[0] / (len(snapshot.samples) * width)
                ).tolist(),
                "mean": float(snapshot.mean[feature]),
                "var": float(snapshot.var[feature]),
                "distance": float(snapshot.distance[feature]),
            }
            for snapshot in taken
        ]

    most, least = most_and_least_moving(taken)
    about = {"run": run_dir.resolve().name, "config": config.as_json(), "layer": layer}
    return about | {"most": moments(most), "least": moments(least)}


def draw_distributions(
    run_dirs: tuple[Path, ...], out: Path, layer: int, number: int, updates: int, trust: Trust = False
) -> Path:
    """A row for each run: left the feature that moved most, right the one that moved least.

    Returns the file beside the figure that has the numbers.
    """
    if out.suffix not in FORMATS:
        raise ValueError(f"--out must end in .png or .pdf, got {out}")
    if number < 2 or updates < 1:
        raise ValueError("--snapshots must be at least 2 and --updates at least 1")
    check_most("--snapshots", number, MOST_SNAPSHOTS)
    check_work("--updates", updates, UPDATES)
    torch.set_num_threads(1)
    measured = [snapshots(run_dir, layer, number, updates, trust) for run_dir in run_dirs]
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 2.3 * len(measured) + 0.3), layout="constrained")
    grid = figure.subplots(len(measured), 2, squeeze=False)
    names = _told_apart([config.method for config, _ in measured], run_dirs)
    for row, name, (_, taken) in zip(grid, names, measured, strict=True):
        for axes, feature, what in zip(row, most_and_least_moving(taken), ("fast", "slowly"), strict=True):
            bins = bins_of(taken, feature)
            x = np.linspace(bins[0], bins[-1], 300)
            for snapshot in taken:
                colour = colormaps["viridis"](0.1 + 0.75 * snapshot.updates / taken[-1].updates)
                label = f"after {snapshot.updates} updates, W1 {snapshot.distance[feature]:.3f}"
                values = snapshot.samples[:, feature]
                axes.hist(values, bins, density=True, histtype="stepfilled", color=colour, alpha=0.25)
                sigma = np.sqrt(snapshot.var[feature] + 1e-12)
                bell = np.exp(-0.5 * ((x - snapshot.mean[feature]) / sigma) ** 2) / (sigma * np.sqrt(2 * np.pi))
                axes.plot(x, bell, color=colour, lw=1.3, label=label)
            axes.set_title(f"{name}, layer {layer}, feature {feature}: moves {what}", fontsize=8.5)
            axes.tick_params(labelsize=7)
            axes.set_yticks([])
            axes.spines[["top", "right", "left"]].set_visible(False)
            axes.legend(fontsize=6.5, frameon=False)
            axes.set_xlabel("input of the normaliser (filled: true; line: estimated)", fontsize=7.5)
    data = BytesIO()
    metadata: dict[str, Any] = {"CreationDate": None} if out.suffix == ".pdf" else {"Software": None}
    figure.savefig(data, format=out.suffix[1:], dpi=200, metadata=metadata)
    numbers = out.with_suffix(".json")
    rows = [
        as_numbers(run_dir, config, layer, taken) for run_dir, (config, taken) in zip(run_dirs, measured, strict=True)
    ]
    out.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(out, data.getvalue())
    write_atomically(numbers, as_json({"runs": rows}))
    return numbers

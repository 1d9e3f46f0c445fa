"""Panels of lines: learning curves, exploration, distances and distributions, each over the seeds that there are."""

import math
from collections.abc import Callable, Sequence
from dataclasses import fields
from itertools import pairwise
from statistics import fmean

from carebn.study.evidence.gather import Gathered
from carebn.study.evidence.runs import RunRecord
from carebn.study.evidence.scores import SCORES
from carebn.study.views.comparison import mean_of_each
from carebn.study.views.curves import (
    Curve,
    Trace,
    evaluation_traces,
    exploration_traces,
    mean_curve,
    stratified_curve,
    wasserstein_traces,
)
from carebn.study.views.parts import Panel

POINTS = 100  # of a curve
BINS = 50  # of exploration returns


def learning_panels(gathered: Gathered) -> list[Panel]:
    return _per_environment(gathered, "return", evaluation_traces)


def exploration_panels(gathered: Gathered) -> list[Panel]:
    return _per_environment(gathered, "return while exploring", lambda runs: exploration_traces(runs, BINS))


def _per_environment(
    gathered: Gathered, y_label: str, traces: Callable[[Sequence[RunRecord]], Sequence[Trace]]
) -> list[Panel]:
    panels = []
    for env in gathered.envs:
        rows = [row for row in gathered.study.rows if env in gathered.envs_of(row)]
        curves = [(row.label, mean_curve(traces(gathered.cell(row, env).complete), POINTS)) for row in rows]
        panels.append(_panel(env, "environment steps", y_label, curves))
    return [panel for panel in panels if panel.lines]


def _panel(title: str, x_label: str, y_label: str, curves: Sequence[tuple[str, Curve | None]]) -> Panel:
    lines = [(label, curve) for label, curve in curves if curve is not None]
    return Panel(title, x_label, y_label, lines, [label for label, curve in curves if curve is None])


def normalised_panels(gathered: Gathered) -> list[Panel]:
    """Returns relative to the baseline's max average return, averaged over environments; steps relative to the end."""
    study = gathered.study
    assert study.baseline is not None
    curves = []
    for row in study.rows:
        envs = gathered.envs_of(row)
        baseline = mean_of_each(gathered.comparable(row, study.baseline, "max")[1])
        strata: list[list[Trace]] = []
        if all(baseline.get(env, 0) > 0 for env in envs):
            for env in envs:
                runs = gathered.cell(row, env).complete
                strata.append([
                    ([step / run.total for step in run.steps], [value / baseline[env] for value in run.returns])
                    for run in runs
                ])  # fmt: skip
        curves.append((row.label, stratified_curve(strata, POINTS)))
    return [_panel("all environments", "share of training", "return / best of the ANN", curves)]


def wasserstein_panels(gathered: Gathered) -> list[Panel]:
    """One panel per layer. What the agent explored with (before re-calibration) is the paper's subject; what it is
    evaluated with is a line of its own where the two differ."""
    rows = gathered.study.rows
    cells = {row.label: [run for env in gathered.envs for run in gathered.cell(row, env).complete] for row in rows}
    layers = max((len(row["before"]) for runs in cells.values() for run in runs
                  for row in run.measures.get("wasserstein", [])), default=0)  # fmt: skip
    panels = []
    for layer in range(layers):
        curves: list[tuple[str, Curve | None]] = []
        for label, runs in cells.items():
            before = mean_curve(wasserstein_traces(runs, layer, "before"), POINTS)
            after = mean_curve(wasserstein_traces(runs, layer, "after"), POINTS)
            curves.append((label, None if after is None else before))
            if before is not None and after is not None and after.mean != before.mean:
                curves.append((f"{label}, re-calibrated", after))
        panels.append(_panel(f"layer {layer + 1}", "environment steps", "Wasserstein distance", curves))
    return panels


def sparsity_panels(gathered: Gathered) -> list[Panel]:
    """Final return against spikes per decision: a dot for every row, joined in the order of their spikes."""
    panels = []
    for env in gathered.envs:
        points, missing = [], []
        for row in (row for row in gathered.study.rows if env in gathered.envs_of(row)):
            found = gathered.firing.get((row, env))
            if found:
                spikes = fmean(firing.spikes for _, firing in found)
                # every run at the same place, so that their returns are averaged as those of a curve are
                dot = mean_curve([([spikes], [SCORES["final"].of(run)]) for run, _ in found], POINTS)
                assert dot is not None
                points.append((row.label, dot))
            else:
                missing.append(row.label)
        dots = sorted((dot for _, dot in points), key=lambda dot: dot.x[0])
        joined = Curve(*([getattr(dot, f.name)[0] for dot in dots] for f in fields(Curve)))
        lines = [("all of them", joined)] * (len(dots) > 1) + points
        panels.append(Panel(env, "spikes per decision", "final return", lines, missing, over_time=False))
    return [panel for panel in panels if panel.lines]


def distribution_panels(gathered: Gathered) -> list[Panel]:
    """For each run the feature that moved most and the one that moved least: histograms and believed Gaussians."""
    panels = []
    for row, one in gathered.distributions().items():
        for what, moments in (("most", one.most), ("least", one.least)):
            lines = []
            for moment in moments:
                middles = [(a + b) / 2 for a, b in pairwise(moment.edges)]
                told = f"after {moment.updates} updates"
                lines.append((f"{told}, true", _drawn(middles, moment.density)))
                believed = [_bell(x, moment.mean, moment.var) for x in middles]
                lines.append((f"{told}, believed", _drawn(middles, believed)))
            distances = ", ".join(f"{moment.distance:.3f}" for moment in moments)
            title = f"{row.label}, layer {one.layer}, the feature that moves {what}: W1 {distances}"
            panels.append(Panel(title, "input of the normaliser", "density", lines, [], over_time=False))
    return panels


def _bell(x: float, mean: float, var: float) -> float:
    return math.exp(-((x - mean) ** 2) / (2 * (var + 1e-12))) / math.sqrt(2 * math.pi * (var + 1e-12))


def _drawn(x: list[float], y: list[float]) -> Curve:
    """A line that is no mean of anything: without an interval."""
    return Curve(x, y, y, y, [0.0] * len(y), [1] * len(y))

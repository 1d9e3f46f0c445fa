"""The return of a converted policy against its number of time steps, beside that of the ANN it came from."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from carebn.conversion import Conversion, Converted, Simulation
from carebn.training.evaluation import Evaluation
from carebn.training.files import as_json, write_atomically
from carebn.training.policy import Policy


@dataclass(frozen=True)
class TimeStepsCurve:
    ann: Evaluation
    converted: list[tuple[Simulation, Evaluation]]

    def share(self, result: Evaluation) -> float | None:
        """Of the ANN's mean return; None where that is not positive, and a share would mean nothing."""
        return result.mean / self.ann.mean if self.ann.mean > 0 else None


def time_steps_curve(
    ann: Policy,
    converted: Policy,
    conversion: Conversion,
    time_steps: Sequence[int],
    episodes: int,
    max_steps: int | None = None,
) -> TimeStepsCurve:
    """The same episodes for the ANN and for each number of steps; afterwards ``converted`` takes as many as before."""
    network = converted.network
    assert isinstance(network, Converted)
    before, results = network.simulation, []
    try:
        for steps in time_steps:
            network.simulation = replace(conversion, time_steps=steps).simulation(float(network.delay))
            results.append((network.simulation, converted.evaluate(episodes, max_steps=max_steps)))
    finally:
        network.simulation = before
    return TimeStepsCurve(ann.evaluate(episodes, max_steps=max_steps), results)


def print_time_steps_curve(curve: TimeStepsCurve) -> None:
    table = Table("time steps", "steps left out", "mean return", "std", "of the ANN's", box=None)
    for column in table.columns:
        column.justify = "right"
    for simulation, score in curve.converted:
        share = curve.share(score)
        table.add_row(
            str(simulation.time_steps), str(simulation.read_out_from), f"{score.mean:.1f}", f"{score.std:.1f}",
            "–" if share is None else f"{100 * share:.1f} %",
        )  # fmt: skip
    table.add_row("ANN", "", f"{curve.ann.mean:.1f}", f"{curve.ann.std:.1f}", "")
    Console(highlight=False).print(table)


def plot_time_steps_curve(curve: TimeStepsCurve, directory: Path, title: str) -> Path:
    """``time_steps.png``, and its numbers as ``time_steps.json``."""
    from matplotlib.figure import Figure  # takes half a second: only when wanted

    rows = [
        {"time_steps": s.time_steps, "read_out_from": s.read_out_from, "returns": r.returns, "mean_return": r.mean}
        for s, r in curve.converted
    ]
    ann = {"returns": curve.ann.returns, "mean_return": curve.ann.mean}
    write_atomically(directory / "time_steps.json", as_json({"ann": ann, "converted": rows}))
    figure = Figure(figsize=(6.5, 3.8), layout="constrained")
    axes = figure.add_subplot()
    steps = [s.time_steps for s, _ in curve.converted]
    axes.errorbar(
        steps, [r.mean for _, r in curve.converted], [r.std for _, r in curve.converted],
        marker="o", ms=4, capsize=3, label="converted, mean ± std",
    )  # fmt: skip
    axes.axhline(curve.ann.mean, color="grey", ls="--", label="ANN")
    axes.set(xscale="log", xlabel="time steps per decision", ylabel="return", title=title)
    axes.set_xticks(steps, map(str, steps))
    axes.set_xticks([], minor=True)
    axes.title.set_fontsize(10)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    path = directory / "time_steps.png"
    figure.savefig(path, dpi=150, metadata={"Software": None})  # no version stamp: the same curve, the same file
    return path

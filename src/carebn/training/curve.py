"""The learning curve of a run as a picture."""

from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from carebn.training.files import write_atomically
from carebn.training.record import read_rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot_curve(run_dir: Path, title: str) -> Path | None:
    """Writes ``curve.png``; None if there is nothing to show yet."""
    figure = curve_figure(read_rows(run_dir / "metrics.jsonl"), title)
    if figure is None:
        return None
    data = BytesIO()
    figure.savefig(data, dpi=150, metadata={"Software": None})  # no version stamp: the same curve, the same file
    path = run_dir / "curve.png"
    write_atomically(path, data.getvalue())
    return path


def curve_figure(rows: list[dict[str, Any]], title: str) -> "Figure | None":
    """Evaluations and training episodes against steps. The band reaches from the worst to the best episode of an
    evaluation: mean ± standard deviation would leave what is possible where most episodes reach the same limit."""
    from matplotlib.figure import Figure  # takes half a second: only when wanted

    evaluations = [row for row in rows if "eval/mean_return" in row]
    episodes = [(row["step"], row["charts/episodic_return"]) for row in rows if "charts/episodic_return" in row]
    if not evaluations:
        return None
    figure = Figure(figsize=(6.5, 4.0), layout="constrained")
    axes = figure.add_subplot()
    if episodes:
        axes.plot(*zip(*episodes, strict=True), ".", ms=3, alpha=0.4, color="grey", label="training episodes")
    steps = [row["step"] for row in evaluations]
    means = [row["eval/mean_return"] for row in evaluations]
    returns = [row.get("returns") or [row["eval/mean_return"]] for row in evaluations]
    low, high = [min(values) for values in returns], [max(values) for values in returns]
    (line,) = axes.plot(steps, means, marker="o", ms=3, label="evaluation, mean")
    number = max(map(len, returns))
    if number > 1:
        told = f"worst to best of its {number} episodes"
        if len(steps) > 1:
            axes.fill_between(steps, low, high, alpha=0.25, color=line.get_color(), linewidth=0, label=told)
        else:
            axes.vlines(steps, low, high, alpha=0.5, color=line.get_color(), label=told)
    axes.set(xlabel="environment steps", ylabel="return", title=title)
    axes.set_xlim(left=0)  # where training began; and one evaluation alone still has an axis
    axes.xaxis.set_major_formatter(lambda step, _: f"{step:,.10g}")
    axes.title.set_fontsize(10)
    axes.grid(alpha=0.3)
    figure.legend(fontsize=8, loc="outside lower center", ncols=3, frameon=False)
    return figure

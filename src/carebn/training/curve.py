"""The learning curve of a run as a picture."""

from pathlib import Path

from carebn.training.record import read_rows


def plot_curve(run_dir: Path, title: str) -> Path | None:
    """Evaluation returns (mean ± std) and training returns against steps; None if there is nothing to show yet."""
    from matplotlib.figure import Figure  # takes half a second: only when wanted

    rows = read_rows(run_dir / "metrics.jsonl")
    evaluations = [(r["step"], r["eval/mean_return"], r["eval/std_return"]) for r in rows if "eval/mean_return" in r]
    episodes = [(r["step"], r["charts/episodic_return"]) for r in rows if "charts/episodic_return" in r]
    if not evaluations:
        return None
    figure = Figure(figsize=(6.5, 3.8), layout="constrained")
    axes = figure.add_subplot()
    if episodes:
        axes.plot(*zip(*episodes, strict=True), ".", ms=2, alpha=0.4, color="grey", label="training episodes")
    steps, means, stds = zip(*evaluations, strict=True)
    low, high = ([m + sign * s for m, s in zip(means, stds, strict=True)] for sign in (-1, 1))
    axes.fill_between(steps, low, high, alpha=0.25)
    axes.plot(steps, means, marker="o", ms=3, label="evaluation, mean ± std")
    axes.set(xlabel="environment steps", ylabel="return", title=title)
    axes.title.set_fontsize(10)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    path = run_dir / "curve.png"
    figure.savefig(path, dpi=150, metadata={"Software": None})  # no version stamp: the same curve, the same file
    return path

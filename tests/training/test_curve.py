"""The picture of a run's learning curve."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from carebn.training.curve import curve_figure, plot_curve

# An environment whose return cannot exceed 100: nine episodes reach it and one fails.
RETURNS = [100.0] * 9 + [0.0]


def evaluation(step: int, returns: list[float]) -> dict[str, Any]:
    mean, std = float(np.mean(returns)), float(np.std(returns))
    return {"step": step, "eval/mean_return": mean, "eval/std_return": std, "returns": returns}


def test_the_band_stays_within_what_the_episodes_reached() -> None:
    figure = curve_figure([evaluation(500, RETURNS), evaluation(1000, [100.0] * 10)], "title")
    assert figure is not None
    [band] = figure.axes[0].collections
    heights = band.get_paths()[0].vertices[:, 1]
    assert (heights.min(), heights.max()) == (0.0, 100.0)  # mean + std would be 120
    [line] = figure.axes[0].lines
    assert list(line.get_ydata()) == [90.0, 100.0]
    said = [text.get_text() for text in figure.legends[0].get_texts()]
    assert said == ["evaluation, mean", "worst to best of its 10 episodes"]


def test_one_evaluation_has_an_axis_from_nought() -> None:
    figure = curve_figure([evaluation(500, RETURNS)], "title")
    assert figure is not None
    [axes] = figure.axes
    assert axes.get_xlim()[0] == 0
    figure.draw_without_rendering()
    names = [label.get_text() for label in axes.get_xticklabels()]
    assert len(set(names)) == len(names)


def test_evaluations_without_their_episodes_have_no_band() -> None:
    rows = [{"step": step, "eval/mean_return": 5.0, "eval/std_return": 1.0} for step in (1, 2)]
    figure = curve_figure(rows, "title")
    assert figure is not None
    assert len(figure.axes[0].collections) == 0
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["evaluation, mean"]


def test_the_same_curve_is_the_same_file(tmp_path: Path) -> None:
    assert curve_figure([{"step": 3, "charts/episodic_return": 1.0}], "title") is None
    (tmp_path / "metrics.jsonl").write_text(json.dumps(evaluation(500, RETURNS)) + "\n")
    path = plot_curve(tmp_path, "title")
    assert path is not None
    before = path.read_bytes()
    assert before.startswith(b"\x89PNG")
    assert plot_curve(tmp_path, "title") == path
    assert path.read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["curve.png", "metrics.jsonl"]

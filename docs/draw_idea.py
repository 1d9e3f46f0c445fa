"""Draws the pictures of docs/idea.md with the package's own layers: ``python docs/draw_idea.py``.

Every SVG in ``docs/figures`` carries the numbers that it shows, as JSON in its description, and the tests compute them
again. With ``--check`` nothing is drawn: it says whether the pictures show what the code computes today.
"""

import argparse
import json
import re
import sys
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import torch

from carebn import CaReBN, make_norm, recalibrate

HERE = Path(__file__).parent
FIGURES = HERE / "figures"
RUNS = HERE.parent / "results" / "runs" / "InvertedDoublePendulum-v4"

FEATURES, BATCH, STEPS = 128, 64, 240  # alike but for their noise; a small batch, so that noise can be seen
REST, MOVE = (40, 100), (100, 130)  # batches over which errors are averaged; the first forty are for settling
RULES = {"average, 0.01": 0.01, "average, 0.1": 0.1, "average, 0.5": 0.5, "CaRe's gain": None}
COLOURS = {
    "average, 0.01": "#0072b2", "average, 0.1": "#009e73", "average, 0.5": "#e69f00", "CaRe's gain": "#d55e00",
    "bn": "#0072b2", "re": "#009e73", "ca": "#e69f00", "care-bn": "#d55e00",
}  # fmt: skip
Data = dict[str, Any]  # plain: numbers, lists and dictionaries


def truth() -> np.ndarray:
    """The mean that is to be followed: at rest, on the move (six standard deviations in 30 batches), at rest."""
    return np.interp(np.arange(STEPS), [MOVE[0] - 1, MOVE[1] - 1], [0.0, 6.0])


def samples(mean: float, rng: np.random.Generator) -> torch.Tensor:
    return torch.from_numpy(rng.normal(mean, 1.0, (BATCH, FEATURES)).astype(np.float32))


def layer(momentum: float | None) -> Any:
    norm = CaReBN(FEATURES) if momentum is None else make_norm("bn", FEATURES, momentum=momentum)
    return norm.train()


def followed(momentum: float | None, recalibrate_every: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """The moving mean after every batch, and the gain that CaRe took: ``[steps, features]`` each.

    All rules see the same batches. Those for re-calibration come from a generator of their own.
    """
    rng, replay = np.random.default_rng(0), np.random.default_rng(1)
    norm, means, gains = layer(momentum), [], []
    for step, mean in enumerate(truth()):
        before, batch = norm.running_mean.clone(), samples(mean, rng)
        norm(batch)
        gains.append(((norm.running_mean - before) / (batch.mean(0) - before)).numpy())
        if recalibrate_every and (step + 1) % recalibrate_every == 0:
            recalibrate(norm, [samples(mean, replay) for _ in range(100)])
        means.append(norm.running_mean.numpy().copy())
    return np.array(means), np.array(gains)


def error(means: np.ndarray) -> np.ndarray:
    """How far off, after every batch: root mean square over the features."""
    return np.sqrt(((means - truth()[:, None]) ** 2).mean(1))


def rounded(values: Any) -> Any:
    return np.round(np.asarray(values, dtype=float), 4).tolist()


def noise_and_delay() -> Data:
    of_rule = {name: followed(momentum)[0] for name, momentum in RULES.items()}
    return {
        "truth": rounded(truth()),
        "one feature": {name: rounded(means[:, 0]) for name, means in of_rule.items()},
        "error": {name: rounded(error(means)) for name, means in of_rule.items()},
        "error at rest": {name: rounded(error(means)[slice(*REST)].mean()) for name, means in of_rule.items()},
        "error on the move": {name: rounded(error(means)[slice(*MOVE)].mean()) for name, means in of_rule.items()},
    }


def gain() -> Data:
    _, gains = followed(None)
    return {
        "one feature": rounded(gains[:, 0]),
        "mean": rounded(gains.mean(1)),
        "at rest": rounded(gains[slice(*REST)].mean()),
        "on the move": rounded(gains[slice(*MOVE)].mean()),
    }


def recalibration() -> Data:
    every = 40
    off = {"CaRe's gain": error(followed(None)[0]), "and re-calibrated": error(followed(None, every)[0])}
    at = np.arange(every - 1, STEPS, every)
    return {
        "every": every,
        "error": {name: rounded(values) for name, values in off.items()},
        "just before": rounded(off["CaRe's gain"][at].mean()),
        "just after": rounded(off["and re-calibrated"][at].mean()),
        "one batch later": rounded(off["and re-calibrated"][at[:-1] + 1].mean()),
    }


def wasserstein() -> Data:
    """Of what acts in evaluations: means over the committed seeds, layer by layer."""
    found: Data = {}
    for method in ("bn", "ca", "re", "care-bn"):
        files = sorted(RUNS.glob(f"{method}-0.03-seed*/measure-wasserstein.jsonl"))
        runs = [[json.loads(line) for line in file.read_text().splitlines()] for file in files]
        distances = np.array([[row["after"] for row in rows] for rows in runs])  # [seeds, evaluations, layers]
        found[method] = {
            "seeds": len(runs),
            "steps": [row["step"] for row in runs[0]],
            "layers": rounded(distances.mean(0).T),
            "mean of layers": rounded(distances.mean((0, 1))),
        }
    return found


def draw_noise_and_delay(data: Data, plt: Any) -> Any:
    figure, (top, bottom) = plt.subplots(2, 1, figsize=(8, 6), sharex=True, layout="constrained")
    for name, means in data["one feature"].items():
        top.plot(means, color=COLOURS[name], label=name, linewidth=1.1)
        bottom.plot(data["error"][name], color=COLOURS[name], label=name, linewidth=1.1)
    top.plot(data["truth"], color="black", label="truth", linewidth=1.6, linestyle="--")
    top.set(ylabel="moving mean of one feature", title="A mean that rests, moves and rests, and four that follow it")
    top.legend(frameon=False, loc="upper left")
    bottom.set(xlabel="batches", ylabel=f"error, {FEATURES} features", yscale="log")
    for axes in (top, bottom):
        axes.axvspan(*MOVE, color="#eeeeee", zorder=0)
    return figure


def draw_gain(data: Data, plt: Any) -> Any:
    figure, axes = plt.subplots(figsize=(8, 3.4), layout="constrained")
    axes.plot(data["one feature"], color="#cccccc", linewidth=0.8, label="one feature")
    axes.plot(data["mean"], color=COLOURS["CaRe's gain"], linewidth=1.6, label=f"mean of {FEATURES} features")
    for name, momentum in RULES.items():
        if momentum is not None:
            axes.axhline(momentum, color=COLOURS[name], linestyle=":", linewidth=1.2, label=name)
    axes.axvspan(*MOVE, color="#eeeeee", zorder=0)
    axes.set(xlabel="batches", ylabel="gain K", ylim=(0, 1.02), title="How much of the gap one batch closes")
    axes.legend(frameon=False, ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.2))
    return figure


def draw_recalibration(data: Data, plt: Any) -> Any:
    figure, axes = plt.subplots(figsize=(8, 3.4), layout="constrained")
    plain, mended = data["error"]["CaRe's gain"], data["error"]["and re-calibrated"]
    at = range(data["every"] - 1, STEPS, data["every"])
    axes.plot(mended, color="#0072b2", linewidth=1.1, label="re-calibrated as well")
    axes.plot(plain, color="#d55e00", linewidth=1.1, label="CaRe's gain alone")
    axes.plot(at, [mended[i] for i in at], "o", color="#0072b2", markersize=5, label="just re-calibrated")
    axes.axvspan(*MOVE, color="#eeeeee", zorder=0)
    axes.set(
        xlabel="batches", ylabel="error", yscale="log", title=f"Re-calibration from 100 batches, every {data['every']}"
    )
    axes.legend(frameon=False, ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.2))
    return figure


def draw_wasserstein(data: Data, plt: Any) -> Any:
    figure, columns = plt.subplots(1, 3, figsize=(9, 3.4), layout="constrained")
    for i, axes in enumerate(columns):
        for method, of in data.items():
            axes.plot(of["steps"], of["layers"][i], color=COLOURS[method], label=f"{method}, {of['seeds']} seeds")
        axes.set(title=f"layer {i + 1}" if i < 2 else "output populations", xlabel="steps", ylim=(0, None))
    columns[0].set_ylabel("Wasserstein distance")
    columns[1].legend(frameon=False, loc="lower right")
    return figure


PICTURES: dict[str, tuple[Callable[[], Data], Callable[[Data, Any], Any]]] = {
    "noise-and-delay": (noise_and_delay, draw_noise_and_delay),
    "gain": (gain, draw_gain),
    "recalibration": (recalibration, draw_recalibration),
    "wasserstein": (wasserstein, draw_wasserstein),
}


def shown(svg: str) -> Data:
    """The numbers that a picture was drawn from."""
    found = re.search(r"<dc:description>(.*?)</dc:description>", svg, re.DOTALL)
    if found is None:
        raise ValueError("this SVG has no numbers in its description")
    data: Data = json.loads(unescape(found[1]))
    return data


def alike(a: Any, b: Any) -> bool:
    """But for the last digits, in which processors differ."""
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(alike(a[key], b[key]) for key in a)
    if np.shape(a) != np.shape(b):
        return False
    return bool(np.allclose(np.asarray(a, float), np.asarray(b, float), rtol=1e-3, atol=2e-3))


def draw(into: Path) -> None:
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    into.mkdir(parents=True, exist_ok=True)
    plain = {
        "svg.hashsalt": "carebn",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "figure.facecolor": "white",
    }
    with plt.rc_context(plain):
        for name, (numbers, picture) in PICTURES.items():
            data = numbers()
            figure = picture(data, plt)
            figure.savefig(into / f"{name}.svg", metadata={"Date": None, "Description": json.dumps(data)})
            plt.close(figure)
            print(into / f"{name}.svg")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="draw nothing; fail if a picture is not up to date")
    if not parser.parse_args().check:
        draw(FIGURES)
        return
    old = [
        name for name, (numbers, _) in PICTURES.items()
        if not alike(numbers(), shown((FIGURES / f"{name}.svg").read_text()))
    ]  # fmt: skip
    if old:
        sys.exit(f"not up to date in docs/figures: {', '.join(old)}; python docs/draw_idea.py draws them again")


if __name__ == "__main__":
    main()

"""CrossQ with CaRe-BN beside CrossQ with its own BatchRenorm, on Pendulum: a curve per seed, and the figure of both.

    python examples/crossq_care.py run --norm care --seed 0 --out runs/crossq      # once per norm and seed
    python examples/crossq_care.py draw --out runs/crossq                          # crossq.svg and what it says

A run that is done is not made again, so the same commands go on where they were stopped, seed by seed.
"""

import argparse
import json
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

NORMS = {"care": "CaRe-BN", "renorm": "BatchRenorm"}


def _budget(steps: int, width: int | None) -> str:
    return f"{steps}-w{width}" if width else f"{steps}"


def run(norm: str, seed: int, out: Path, steps: int, width: int | None, interval: int, episodes: int) -> None:
    path = out / f"{norm}-{seed}-{_budget(steps, width)}.json"
    if path.exists():
        print(f"{path} is there already")
        return
    import torch

    try:
        from sb3_contrib import CrossQ
    except ImportError:
        sys.exit("this example needs sb3-contrib: pip install stable-baselines3 sb3-contrib")
    from stable_baselines3.common.callbacks import CallbackList, EvalCallback
    from stable_baselines3.common.env_util import make_vec_env

    from carebn.integrations.crossq import CaReCrossQPolicy
    from carebn.integrations.sb3 import RecalibrateCallback

    torch.set_num_threads(1)
    policy = CaReCrossQPolicy if norm == "care" else "MlpPolicy"
    sizes = {"net_arch": {"pi": [width, width], "qf": [width, width]}} if width else {}
    model = CrossQ(policy, "Pendulum-v1", seed=seed, device="cpu", policy_kwargs=sizes)
    with TemporaryDirectory() as log:  # EvalCallback remembers its evaluations only while it logs them
        evaluate = EvalCallback(
            make_vec_env("Pendulum-v1", seed=1000 + seed), eval_freq=interval, n_eval_episodes=episodes, verbose=0,
            log_path=log,
        )  # fmt: skip
        callbacks = [RecalibrateCallback(interval), evaluate] if norm == "care" else [evaluate]
        model.learn(steps, callback=CallbackList(callbacks))
    means = [float(np.mean(returns)) for returns in evaluate.evaluations_results]
    curve = list(zip(evaluate.evaluations_timesteps, means, strict=True))
    out.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".part")
    said = {"norm": norm, "seed": seed, "steps": steps, "width": width, "episodes": episodes, "curve": curve}
    beside.write_text(json.dumps(said) + "\n")
    os.replace(beside, path)
    print(f"{norm}, seed {seed}: {curve[-1][1]:.0f} after {curve[-1][0]:,} steps")


def numbers(out: Path, steps: int, width: int | None) -> dict[str, Any]:
    """What the figure shows: for each norm the interquartile mean over seeds, with its 95 % interval."""
    from carebn.study.evidence.statistics import iqm

    found = {}
    for norm, name in NORMS.items():
        files = sorted(out.glob(f"{norm}-*-{_budget(steps, width)}.json"))
        curves = [json.loads(path.read_text())["curve"] for path in files]
        if not curves:
            print(f"{name}: no runs of {steps:,} steps in {out}")
            continue
        returns = np.array(curves)[:, :, 1]  # [seeds, evaluations]
        middle = np.array([iqm({"": list(column)}, [""]) for column in returns.T])
        found[name] = {
            "seeds": len(curves), "steps": [step for step, _ in curves[0]], "iqm": middle[:, 0].round(1).tolist(),
            "low": middle[:, 1].round(1).tolist(), "high": middle[:, 2].round(1).tolist(),
            "last": returns[:, -1].round(1).tolist(),
        }  # fmt: skip
    return found


def draw(out: Path, steps: int, width: int | None, figure_path: Path | None) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams |= {"svg.hashsalt": "carebn", "figure.facecolor": "white"}
    data = numbers(out, steps, width)
    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    for (name, of), colour in zip(data.items(), ("#d55e00", "#0072b2"), strict=False):
        axes.plot(of["steps"], of["iqm"], color=colour, label=f"{name}, {of['seeds']} seeds")
        axes.fill_between(of["steps"], of["low"], of["high"], alpha=0.2, color=colour)
        print(f"{name}: last evaluations {of['iqm'][-1]} ({of['low'][-1]} … {of['high'][-1]}), seeds {of['last']}")
    title = "CrossQ on Pendulum-v1: interquartile mean over seeds, 95 % interval"
    axes.set(title=title, xlabel="environment steps", ylabel="return")
    axes.legend(frameon=False)
    path = figure_path or out / "crossq.svg"
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="svg", metadata={"Date": None, "Description": json.dumps(data)})  # with its numbers
    print(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["run", "draw"])
    parser.add_argument("--norm", choices=NORMS, default="care")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument(
        "--width", type=int, help="of all hidden layers; else CrossQ's own, 256 and 1024 in the critics"
    )
    parser.add_argument("--interval", type=int, default=500, help="steps between evaluations")
    parser.add_argument("--episodes", type=int, default=5, help="of an evaluation")
    parser.add_argument("--figure", type=Path, help="the SVG to draw; else crossq.svg among the runs")
    parser.add_argument("--out", type=Path, default=Path("runs/crossq"))
    args = parser.parse_args()
    if args.what == "draw":
        draw(args.out, args.steps, args.width, args.figure)
    else:
        run(args.norm, args.seed, args.out, args.steps, args.width, args.interval, args.episodes)


if __name__ == "__main__":
    main()

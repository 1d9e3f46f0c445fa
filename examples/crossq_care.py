"""CrossQ with CaRe-BN beside CrossQ with its own BatchRenorm, on Pendulum: a curve per seed, and the figure of both.

    python examples/crossq_care.py run --norm care --seed 0 --out runs/crossq      # once per norm and seed
    python examples/crossq_care.py draw --out runs/crossq                          # crossq.png and a table

A run that is done is not made again, so the same commands go on where they were stopped, seed by seed.
"""

import argparse
import json
import os
import sys
from pathlib import Path

import numpy as np

NORMS = {"care": "CaRe-BN", "renorm": "BatchRenorm"}


def run(norm: str, seed: int, out: Path, steps: int, interval: int, episodes: int) -> None:
    path = out / f"{norm}-{seed}-{steps}.json"
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
    model = CrossQ(policy, "Pendulum-v1", seed=seed, device="cpu")
    evaluate = EvalCallback(
        make_vec_env("Pendulum-v1", seed=1000 + seed), eval_freq=interval, n_eval_episodes=episodes, verbose=0,
        log_path=str(path.with_suffix("")),
    )  # fmt: skip
    callbacks = [RecalibrateCallback(interval), evaluate] if norm == "care" else [evaluate]
    model.learn(steps, callback=CallbackList(callbacks))
    means = [float(np.mean(returns)) for returns in evaluate.evaluations_results]
    curve = list(zip(evaluate.evaluations_timesteps, means, strict=True))
    beside = path.with_suffix(".part")
    beside.write_text(json.dumps({"norm": norm, "seed": seed, "steps": steps, "curve": curve}))
    os.replace(beside, path)
    print(f"{norm}, seed {seed}: {curve[-1][1]:.0f} after {curve[-1][0]:,} steps")


def draw(out: Path, steps: int) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    runs = [json.loads(path.read_text()) for path in sorted(out.glob(f"*-{steps}.json"))]
    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    for norm, name in NORMS.items():
        curves = [np.array(r["curve"]) for r in runs if r["norm"] == norm]
        if not curves:
            print(f"{name}: no runs of {steps:,} steps in {out}")
            continue
        returns = np.stack([curve[:, 1] for curve in curves])
        (line,) = axes.plot(curves[0][:, 0], returns.mean(0), label=f"{name}, {len(curves)} seeds")
        axes.fill_between(curves[0][:, 0], returns.min(0), returns.max(0), alpha=0.2, color=line.get_color())
        last = returns[:, -1]
        print(f"{name}: last evaluations {last.mean():.0f} ± {last.std():.0f}, seeds {last.round().tolist()}")
    axes.set(title="CrossQ on Pendulum-v1: mean, lowest and highest seed", xlabel="environment steps", ylabel="return")
    axes.legend()
    figure.savefig(out / "crossq.png", dpi=150)
    print(out / "crossq.png")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["run", "draw"])
    parser.add_argument("--norm", choices=NORMS, default="care")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--interval", type=int, default=500, help="steps between evaluations")
    parser.add_argument("--episodes", type=int, default=5, help="of an evaluation")
    parser.add_argument("--out", type=Path, default=Path("runs/crossq"))
    args = parser.parse_args()
    if args.what == "draw":
        draw(args.out, args.steps)
    else:
        run(args.norm, args.seed, args.out, args.steps, args.interval, args.episodes)


if __name__ == "__main__":
    main()

"""How soon eight environments solve InvertedDoublePendulum-v4, beside one.

    python benchmarks/bench_envs.py [--seeds 5] [--threads 2] [--out results/bench_envs.json]

Solved is a run at its first evaluation (ten episodes without noise) with a mean return above 9,000: one of the ten that
falls half-way already brings it below. All sides are evaluated after every 250 updates. Counted until then: environment
steps, updates, and the processor's and the clock's seconds, without imports and evaluations, which only tell when to
stop. Updates take most of the time, so what more environments can save is updates, where one does not bring enough to
learn from.

The sides take turns, seed by seed: one environment and eight, each with every default; then, at higher rates, one; one
with an update every eighth step; and eight with the same. Each run has a process of its own. What is measured is
written at once, and an interrupted benchmark goes on where it was; ``--again`` forgets it.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ENV_ID, METHOD = "InvertedDoublePendulum-v4", "care-bn"
SOLVED = 9_000  # mean return
EVERY = 250  # updates between evaluations
MOST = 40_000  # updates, after which a run is given up
WARM_UP = 1_000  # steps

RATES = {"actor_learning_rate": 3e-3, "critic_learning_rate": 3e-3, "tau": 0.05}
FEWER = {"updates_per_step": 0.125}
EIGHT = "eight"  # the side that all others are compared with
SIDES: dict[str, dict[str, Any]] = {
    "one, defaults": {},
    "eight, defaults": {"num_envs": 8},
    "one, same rates": RATES,
    "one, same options": RATES | FEWER,
    EIGHT: RATES | FEWER | {"num_envs": 8},
}


def options_of(side: str) -> dict[str, Any]:
    own = SIDES[side]
    per_step = own.get("updates_per_step", 1.0)
    return {
        "method": METHOD,
        "learning_starts": WARM_UP,
        "total_timesteps": WARM_UP + round(MOST / per_step),
        "eval_interval": round(EVERY / per_step),
        "checkpoint_interval": 10**9,
        **own,
    }


def until_solved(side: str, seed: int, threads: int, most: int | None = None) -> dict[str, Any]:
    """One run in this process."""
    import carebn
    from carebn.training.config import TrainConfig
    from carebn.training.schedule import updates_until

    options = options_of(side)
    if most is not None:
        options["total_timesteps"] = most
    config = TrainConfig(ENV_ID, seed=seed, threads=threads, **options).checked()
    measured: dict[str, Any] = {"solved": False}

    began = worked = 0.0  # moved on by every evaluation, which then counts nothing

    def watch(event: Any) -> bool:
        nonlocal began, worked
        if event.kind == "before_evaluation":
            measured.update(processor=time.process_time() - worked, wall=time.monotonic() - began)
        if event.kind == "evaluation":
            began, worked = time.monotonic() - measured["wall"], time.process_time() - measured["processor"]
            solved = event.mean_return > SOLVED
            measured.update(solved=solved, steps=event.step, updates=updates_until(config, event.step))
        return not measured["solved"]

    with tempfile.TemporaryDirectory() as scratch:
        began, worked = time.monotonic(), time.process_time()
        carebn.train(
            ENV_ID, seed=seed, threads=threads, run_dir=Path(scratch) / "run", quiet=True, callback=watch, **options
        )
    return measured


def in_own_process(side: str, seed: int, threads: int, most: int | None = None) -> dict[str, Any]:
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
    words = ["--side", side, "--seed", str(seed), "--threads", str(threads), *(["--most", str(most)] if most else [])]
    environment = {**os.environ, **dict.fromkeys(names, str(threads))}
    said = subprocess.run([sys.executable, __file__, *words], env=environment, stdout=subprocess.PIPE, check=True)
    found: dict[str, Any] = json.loads(said.stdout)
    return found


def conditions(threads: int) -> dict[str, Any]:
    """What makes two measurements comparable: those of others are not gone on with."""
    from importlib.metadata import version

    from carebn.machine import cores, processor

    return {
        "processor": processor(), "cores": cores(), "threads": threads, "torch": version("torch"),
        "solved": SOLVED, "sides": {side: options_of(side) for side in SIDES},
    }  # fmt: skip


def measured_before(out: Path, now: dict[str, Any]) -> dict[str, Any]:
    try:
        found = json.loads(out.read_text())
    except (OSError, ValueError):
        return {}
    runs: dict[str, Any] = found.get("runs", {}) if found.get("conditions") == now else {}
    return runs


def show(runs: dict[str, Any], seeds: int) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"{ENV_ID}, {METHOD}, until solved")
    for column in ("seed", "environments", "steps", "updates", "processor s", "wall s", "wall ÷ eight's"):
        table.add_column(column, justify="left" if column == "environments" else "right")
    for seed in range(seeds):
        table.add_section()
        eight = runs[f"{EIGHT} {seed}"]
        for side in SIDES:
            run = runs[f"{side} {seed}"]
            ratio = f"{'' if run['solved'] else 'above '}{run['wall'] / eight['wall']:.2f}" if eight["solved"] else ""
            figures = [f"{run['steps']:,}", f"{run['updates']:,}", f"{run['processor']:.0f}", f"{run['wall']:.0f}"]
            table.add_row(str(seed), side + ("" if run["solved"] else " (not solved)"), *figures, ratio)
    console = Console(width=None if sys.stdout.isatty() else 110)
    console.print(table)
    pairs = [("one, defaults", "eight, defaults"), *((side, EIGHT) for side in SIDES if side.startswith("one"))]
    for one, eight in pairs:
        sides = [[runs[f"{name} {seed}"] for seed in range(seeds)] for name in (one, eight)]
        ratios = (
            f"{what} {sum(run[what] for run in sides[0]) / sum(run[what] for run in sides[1]):.2f}"
            for what in ("updates", "processor", "wall")
        )
        sooner = sum(b["solved"] and b["wall"] < a["wall"] for a, b in zip(*sides, strict=True))
        console.print(f"({one}) ÷ ({eight}), all seeds: {', '.join(ratios)}; sooner by the clock: {sooner} of {seeds}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("results/bench_envs.json"))
    parser.add_argument("--again", action="store_true", help="measure what has been measured before, too")
    parser.add_argument("--side", choices=tuple(SIDES), help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--most", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        print(json.dumps(until_solved(options.side, options.seed, options.threads, options.most)))
        return
    now = conditions(options.threads)
    runs = {} if options.again else measured_before(options.out, now)
    print(f"{now['processor']}, {now['cores']} cores; {options.threads} threads a run")
    for side in SIDES:
        in_own_process(side, 0, options.threads, most=WARM_UP + 16)  # compiles what is kept on disk from then on
    for seed in range(options.seeds):
        for side in SIDES:
            name = f"{side} {seed}"
            if name not in runs:
                load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
                runs[name] = in_own_process(side, seed, options.threads) | {"load before": load}
                options.out.parent.mkdir(parents=True, exist_ok=True)
                part = options.out.with_suffix(".part")
                part.write_text(json.dumps({"conditions": now, "runs": runs}, indent=1) + "\n")
                part.replace(options.out)
            run = runs[name]
            end = "solved" if run["solved"] else "not solved"
            print(f"seed {seed}, {side}: {end} after {run['updates']:,} updates, {run['wall']:.0f} s", flush=True)
    show(runs, options.seeds)


if __name__ == "__main__":
    main()

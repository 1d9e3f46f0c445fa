"""Run directories without training: the files that a run writes, with made-up numbers."""

import json
import math
import random
from pathlib import Path
from typing import Any

from carebn.study.plan import NEURONS, Task
from carebn.training.files import sha256

VERSIONS = {"python": "3.11.7", "carebn": "0.1.0", "torch": "2.13.0"}

# A program that runs the command line and tells how much memory it took.
PROBE = """
import sys
from carebn import cli
try:
    cli.main()
finally:  # not getrusage, whose figure is inherited from the process that started this one
    peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
    print("peak MiB", int(peak.split()[1]) // 1024, file=sys.stderr)
"""


def write_run(
    directory: Path,
    method: str = "care-bn",
    env_id: str = "Hopper-v4",
    seed: int = 0,
    total: int = 20_000,
    done: int | None = None,
    level: float = 1000.0,
    episodes: int = 20,
    wasserstein: bool = False,
    every: int = 5_000,
    **options: Any,
) -> Path:
    """A run that rises towards ``level``; ``done`` < ``total``: it was stopped there."""
    rng = random.Random(f"{method} {env_id} {seed}")
    directory.mkdir(parents=True)
    config = {
        "env_id": env_id, "algo": "td3", "method": method, "neuron": "clif", "seed": seed, "total_timesteps": total,
        "time_steps": 5, "threads": 1, "device": "cpu", **options,
    }  # fmt: skip
    done = total if done is None else done
    (directory / "config.json").write_text(json.dumps(config))
    (directory / "command.txt").write_text(f"carebn train --env-id {env_id} --method {method} --seed {seed}\n")
    (directory / "versions.json").write_text(json.dumps(VERSIONS))
    steps = sorted({*range(every, done + 1, every), *([done] if done == total else [])})

    def score(step: int) -> float:
        return level * (1 - math.exp(-3 * step / total)) + rng.gauss(0, level / 50)

    rows: list[dict[str, Any]] = [
        {
            "step": step,
            "eval/mean_return": score(step),
            "eval/std_return": level / 20,
            "returns": [level * 0.937 + i for i in range(10)],
            "lengths": [1000] * 10,
        }
        for step in steps
    ]
    for i in range(episodes):
        step = (i + 1) * done // episodes
        rows.append({"step": step, "charts/episodic_return": score(step) / 2, "charts/episodic_length": 50})
    rows.sort(key=lambda row: row["step"])
    (directory / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    timing = [{"step": s, "charts/SPS": 100.0, "time/elapsed": s / 100, "time/evaluation": 1.0} for s in steps]
    (directory / "timing.jsonl").write_text("".join(json.dumps(row) + "\n" for row in timing))
    if wasserstein:
        layers = [{"step": s, "before": [0.2, 0.3, 0.1], "after": [0.1, 0.2 + rng.random() / 10, 0.05]} for s in steps]
        (directory / "measure-wasserstein.jsonl").write_text("".join(json.dumps(row) + "\n" for row in layers))
    if done == total:
        (directory / "policy.safetensors").write_bytes(b"")
        (directory / "checkpoint" / f"{total:09d}").mkdir(parents=True)
        (directory / "checkpoint" / f"{total:09d}" / "manifest.json").write_text("{}")
    return directory


def write_planned_run(root: Path, task: Task, name: str, seed: int, **options: Any) -> Path:
    """A run of the plan, at its budget and with its options."""
    budget, method = task.budget, name.partition("@")[0]
    given = {
        "algo": task.algo, "neuron": "none" if method == "ann" else NEURONS[task.algo],
        "learning_starts": budget.learning_starts, "eval_interval": budget.eval_interval,
        "total": budget.total_timesteps, "every": budget.eval_interval,
    }  # fmt: skip
    if "@" in name:
        given["norm_momentum"] = float(name.partition("@")[2])
    return write_run(root / task.file / f"{name}-{seed}", method, task.env_id, seed, **given | options)


def write_converted_run(directory: Path, env_id: str, score: float, method: str = "ann-snn", **options: Any) -> Path:
    """A run of a method that converts its ANN at the end, and the one evaluation of the converted policy."""
    steps = {"ann-snn": 100, "crpi": 8}[method]
    write_run(directory, method, env_id, neuron="none", conversion_steps=steps, **options)
    (directory / f"converted-T{steps}").mkdir()
    (directory / f"converted-T{steps}" / "evaluation.json").write_text(
        json.dumps({"mean_return": score, "std_return": 1.0, "returns": [score] * 10})
    )
    return directory


def write_costs(
    directory: Path,
    costs: dict[str, tuple[float, float]],
    env_id: str = "Ant-v4",
    algo: str = "td3",
    neuron: str = "clif",
) -> None:
    """As ``carebn measure cost`` leaves them."""
    rows = [{"method": m, "neuron": neuron, "seconds": s, "mebibytes": b} for m, (s, b) in costs.items()]
    data = {"env_id": env_id, "algo": algo, "steps": 400, "costs": rows}
    (directory / "training-cost.json").write_text(json.dumps(data))


def write_energy(run: Path, nanojoule: float) -> None:
    """As ``carebn energy`` leaves it, what a table needs of it."""
    policy = sha256((run / "policy.safetensors").read_bytes())
    prices = {"paper": nanojoule, "45nm": 7 * nanojoule}
    every = {name: 30 * price for name, price in prices.items()}  # encoder, membranes and decoder as well
    data = {"policy": policy, "network": {"synapses_total": {"nanojoule": prices}, "total": {"nanojoule": every}}}
    (run / "energy.json").write_text(json.dumps(data))

"""What training costs with each normaliser: time and memory per 5000 steps, all measured in one go.

Time: every method has a run of its own past its warm-up; they take turns in short slices within one process, so that
whatever else the machine does falls on all alike, and the median slice of each counts. A step is acting, the
environment, storing and one update, as in the paper's table. Memory: the peak of a fresh process that trains one
method for as long as it takes to get warm, so that its replay is nearly empty.
"""

import multiprocessing
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from carebn.limits import UPDATES, check_work
from carebn.machine import peak_memory
from carebn.training.config import TrainConfig
from carebn.training.loop import Run

STEPS_OF_THE_TABLE = 5000
SLICE = 20  # steps before the next method has its turn
WARM_UP = 300  # random steps first: something to sample from


@dataclass(frozen=True)
class Cost:
    method: str
    neuron: str
    seconds: float  # per 5000 steps
    mebibytes: float | None  # peak of the process, where the system tells it


def measure_costs(
    env_id: str, algo: str, methods: tuple[str, ...], steps: int, progress: Callable[[str], None]
) -> list[Cost]:
    """``steps`` steps of each method, scaled to 5000."""
    if not methods:
        raise ValueError("name at least one method to measure")
    if len(set(methods)) != len(methods):
        raise ValueError("each method is measured once; one is named twice")
    if steps < SLICE:
        raise ValueError(f"--steps must be at least {SLICE}, got {steps}")
    check_work("--steps", steps, UPDATES)
    configs = {method: _config(env_id, algo, method) for method in methods}  # before anything costly: mistakes
    spawn = multiprocessing.get_context("spawn")
    memory = {}
    for number, (method, config) in enumerate(configs.items(), 1):
        progress(f"memory of {method}, {number} of {len(configs)}")
        with spawn.Pool(1) as pool:
            memory[method] = pool.apply(_peak_memory, (config,))
    times = _time_in_turns(configs, steps, progress)
    return [Cost(method, configs[method].neuron, times[method], memory[method]) for method in methods]


def _config(env_id: str, algo: str, method: str) -> TrainConfig:
    config = TrainConfig(env_id=env_id, algo=algo, method=method, learning_starts=WARM_UP, quiet=True)
    return config.checked()


def _time_in_turns(configs: dict[str, TrainConfig], steps: int, progress: Callable[[str], None]) -> dict[str, float]:
    rounds = -(-steps // SLICE)
    with tempfile.TemporaryDirectory() as directory:
        runs = {}
        for number, (method, config) in enumerate(configs.items(), 1):
            progress(f"warm-up of {method}, {number} of {len(configs)}")
            runs[method] = _warm_run(config, Path(directory) / method)
        slices: dict[str, list[float]] = {method: [] for method in runs}
        for done in range(rounds):
            if done % max(1, rounds // 10) == 0:  # about ten times
                progress(f"time of all in turns, {done * SLICE:,} of {steps:,} steps each")
            for method, run in runs.items():
                began = time.perf_counter()
                for _ in range(SLICE):
                    run.make_step()
                slices[method].append(time.perf_counter() - began)
        for run in runs.values():
            run.close()
    return {method: median(seconds) / SLICE * STEPS_OF_THE_TABLE for method, seconds in slices.items()}


def _warm_run(config: TrainConfig, directory: Path) -> Run:
    """A run past its random steps and its first, compiling, updates."""
    run = Run(replace(config, run_dir=directory))
    run.open()
    while run.step < WARM_UP + SLICE:
        run.make_step()
    return run


def _peak_memory(config: TrainConfig) -> float | None:
    with tempfile.TemporaryDirectory() as directory:
        run = _warm_run(config, Path(directory) / "run")
        run.close()
    return peak_memory()

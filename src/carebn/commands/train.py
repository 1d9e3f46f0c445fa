"""``carebn train``."""

import sys

from carebn.training import InterruptedRun, Run, TrainConfig
from carebn.training.curve import plot_curve

Config = TrainConfig


def run(config: TrainConfig) -> int:
    run = Run(config)
    try:
        worked = run.train()
    except InterruptedRun as stop:
        print(stop, file=sys.stderr)
        return 130
    picture = plot_curve(run.directory, run.config.title())
    if not worked:
        print(f"this run is complete: {run.directory}")
    if run.best is not None:
        print(f"best mean return: {run.best:.1f}")
    print(f"policy: {run.directory / 'policy.safetensors'}\nlearning curve: {picture}")
    print(f"next: carebn evaluate {run.directory}")
    return 0

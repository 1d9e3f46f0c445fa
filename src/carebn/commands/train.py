"""``carebn train``."""

import sys

from carebn.reading import read_object
from carebn.training import InterruptedRun, Run, TrainConfig
from carebn.training.conversion import finish_conversion
from carebn.training.curve import plot_curve

Config = TrainConfig


def run(config: TrainConfig) -> int:
    run = Run(config)
    try:
        worked = run.train()
    except InterruptedRun as stop:
        print(stop, file=sys.stderr)
        return stop.code
    picture = plot_curve(run.directory, run.config.title())
    if not worked:
        print(f"this run is complete: {run.directory}")
    if run.best is not None:
        print(f"best mean return on the way: {run.best:.1f}; the saved policy is the one after the last step")
    policy = run.directory
    converted = finish_conversion(run.directory)
    if converted is not None:
        score = read_object(converted / "evaluation.json")["mean_return"]
        print(f"converted to a spiking policy: mean return {score:.1f}")
        policy = converted
    print(f"policy: {policy / 'policy.safetensors'}\nlearning curve: {picture}")
    print(f"next: carebn evaluate {policy}")
    return 0

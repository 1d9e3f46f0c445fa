"""``carebn train``."""

import sys

from carebn.checksums import read_sealed
from carebn.training import InterruptedRun, Run, TrainConfig
from carebn.training.conversion import finish_conversion
from carebn.training.curve import plot_curve
from carebn.training.identity import resumed as as_stored
from carebn.training.worlds import ask, modules_of

Config = TrainConfig


def resumed(config: TrainConfig, words: list[str]) -> TrainConfig:
    """With what a run that is there already says itself; modules that only its file names need the user's word."""
    found = as_stored(config, words)
    ask(found, config.trust or modules_of(config))
    return found


def run(config: TrainConfig) -> int:
    run = Run(config)
    try:
        worked = run.train()
    except InterruptedRun as stop:
        print(stop, file=sys.stderr)
        return stop.code
    picture = plot_curve(run.directory, run.config.title())
    if not worked:
        for text in run.warnings:
            print(f"warning: {text}", file=sys.stderr)
        print(f"this run is complete: {run.directory}")
    if run.best is not None:
        kept = "" if run.best_policy is None else "; --which best takes its policy in place of the last"
        print(f"best mean return on the way: {run.best:.1f}{kept}")
    policy = run.directory
    converted = finish_conversion(run.directory, run.make)
    if converted is not None:
        score = read_sealed(converted / "evaluation.json")["mean_return"]
        print(f"converted to a spiking policy: mean return {score:.1f}")
        policy = converted
    print(f"policy: {policy / 'policy.safetensors'}\nlearning curve: {picture}")
    print(f"next: carebn evaluate {policy}")
    return 0

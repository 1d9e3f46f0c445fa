"""The command line: ``carebn train``, ``carebn evaluate``."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro


def _limit_threads(arguments: list[str]) -> None:
    """Thread pools take their size when their library is loaded, so it has to be known before that."""
    threads = "1"
    for i, word in enumerate(arguments):
        if word == "--threads" and i + 1 < len(arguments):
            threads = arguments[i + 1]
        elif word.startswith("--threads="):
            threads = word.partition("=")[2]
    if threads.isdigit():
        for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
            os.environ[name] = threads


@dataclass(frozen=True)
class EvaluateConfig:
    """Play noise-free episodes with a trained policy."""

    run: tyro.conf.Positional[Path]
    """Run directory."""
    episodes: int = 10
    """How many episodes."""
    seed: int = 1_000_000
    """Seed of the first episode; the others follow. The default is outside of what training uses."""


def _train(config: object) -> int:
    from carebn.training import InterruptedRun, Run, TrainConfig
    from carebn.training.curve import plot_curve

    assert isinstance(config, TrainConfig)
    if config.track:
        raise ValueError("--track is not available yet: this version does not log to Weights & Biases")
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


def _evaluate(config: EvaluateConfig) -> int:
    from carebn.training.environment import make_env
    from carebn.training.evaluation import evaluate
    from carebn.training.policy import load

    if config.episodes < 1:
        raise ValueError(f"--episodes must be at least 1, got {config.episodes}")
    if config.seed < 0:
        raise ValueError(f"--seed must not be negative, got {config.seed}")
    policy = load(config.run)
    envs = [make_env(policy.config.env_id, policy.config.import_modules) for _ in range(config.episodes)]
    result = evaluate(
        lambda obs: policy.predict(obs)[0], envs, range(config.seed, config.seed + len(envs)), policy.config.env_id
    )
    for i, (score, length) in enumerate(zip(result.returns, result.lengths, strict=True)):
        print(f"episode {i + 1}: return {score:.1f} in {length} steps")
    print(f"mean return {result.mean:.1f} ± {result.std:.1f} over {config.episodes} episodes")
    return 0


def main() -> None:
    arguments = sys.argv[1:]
    _limit_threads(arguments)
    from carebn.training.config import TrainConfig  # after the thread limits, because it loads torch

    commands = tyro.extras.SubcommandApp()
    chosen: list[object] = []

    @commands.command(name="train")
    def train(config: Annotated[TrainConfig, tyro.conf.arg(name="")]) -> None:
        chosen.append(config)

    train.__doc__ = TrainConfig.__doc__

    @commands.command(name="evaluate")
    def evaluate(config: Annotated[EvaluateConfig, tyro.conf.arg(name="")]) -> None:
        chosen.append(config)

    evaluate.__doc__ = EvaluateConfig.__doc__
    commands.cli(prog="carebn", description="Spiking reinforcement learning with CaRe-BN.", args=arguments)
    (config,) = chosen
    try:
        code = _evaluate(config) if isinstance(config, EvaluateConfig) else _train(config)
    except (ValueError, OSError) as mistake:
        print(f"carebn: {mistake}", file=sys.stderr)
        code = 1
    sys.exit(code)


if __name__ == "__main__":
    main()

"""A real sweep, small: two methods, two of the paper's environments, two seeds, a few thousand steps each."""

from pathlib import Path

from carebn.measure.observers import observers_for
from carebn.training import Run, TrainConfig

METHODS = ("bn", "care-bn")
ENVS = ("InvertedDoublePendulum-v4", "Hopper-v4")
SEEDS = (0, 1)
STEPS = 3_000


def train_tiny_sweep(directory: Path) -> None:
    """With the paper's network and options, so that the runs count for its studies; learning starts late."""
    for env_id in ENVS:
        for method in METHODS:
            for seed in SEEDS:
                config = TrainConfig(
                    env_id=env_id, method=method, seed=seed, total_timesteps=STEPS, learning_starts=STEPS - 30,
                    eval_interval=STEPS // 2, checkpoint_interval=STEPS, log_interval=1_000, quiet=True,
                    measure=("wasserstein",) if env_id == ENVS[0] else (),
                    run_dir=directory / f"{env_id}__{method}__s{seed}",
                )  # fmt: skip
                Run(config, observers=observers_for(config)).train()

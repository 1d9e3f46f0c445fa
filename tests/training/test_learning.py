"""Agents learn: every algorithm solves a quick task, with a spiking network and with an ordinary one.

How far one run gets hangs on rounding, and so on the processor. Each has a few seeds to show that it can: who does not
learn fails with all of them.
"""

from pathlib import Path
from typing import Any

import pytest

from carebn.training import Run, TrainConfig
from carebn.training.callbacks import Event

pytestmark = pytest.mark.slow

POINT_MASS = {
    "env_id": "PointMass-v0",
    "import_modules": ("quick_tasks",),
    "total_timesteps": 2500,
    "learning_starts": 500,
    "hidden": (64, 64),
    "batch_size": 64,
    "eval_interval": 500,
    "eval_episodes": 5,
    "checkpoint_interval": 2500,
    "recalibration_batches": 20,
    "actor_learning_rate": 1e-3,
    "critic_learning_rate": 1e-3,
    "tau": 0.005,
}
SOLVED = -10.0  # an untrained actor scores about -90, a good one -1
SEEDS = 3


def best_return(wanted: float, directory: Path, **options: Any) -> float:
    """Of the first run that reaches ``wanted``, which then has shown what it can, or of the best."""

    def not_yet(event: Event) -> bool:
        return event.best_return is None or event.best_return < wanted

    found = []
    for seed in range(SEEDS):
        run = Run(TrainConfig(seed=seed, run_dir=directory / str(seed), quiet=True, **options), callback=not_yet)
        run.train()
        assert run.best is not None
        found.append(run.best)
        if run.best >= wanted:
            break
    return max(found)


@pytest.mark.parametrize(
    ("algo", "method"),
    [("td3", "care-bn"), ("ddpg", "care-bn"), ("sac", "care-bn"), ("td3", "vanilla"), ("td3", "ann")],
)
def test_a_point_mass_is_brought_to_rest(
    algo: str, method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    assert best_return(SOLVED, tmp_path, algo=algo, method=method, **POINT_MASS) >= SOLVED


def test_a_spiking_q_network_balances_the_cart_pole(tmp_path: Path) -> None:
    balanced = 300  # steps out of 500; an untrained network balances for about ten
    best = best_return(
        balanced,
        tmp_path,
        env_id="CartPole-v1",
        algo="dqn",
        total_timesteps=9000,
        learning_starts=1000,
        hidden=(64, 64),
        batch_size=64,
        critic_learning_rate=5e-4,
        target_interval=100,
        epsilon_decay_steps=2000,
        eval_interval=1000,
        eval_episodes=5,
        checkpoint_interval=9000,
        recalibration_batches=20,
    )
    assert best >= balanced

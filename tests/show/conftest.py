"""Tiny trained runs."""

from pathlib import Path
from typing import Any

import pytest

from carebn.show.drawn_environment import working_backend
from carebn.training import Run, TrainConfig

RUNS: dict[str, dict[str, Any]] = {
    "idp": {"env_id": "InvertedDoublePendulum-v4"},
    "hopper": {"env_id": "Hopper-v4", "algo": "sac"},
    "ann": {"env_id": "Hopper-v4", "method": "ann", "algo": "ddpg"},
    "pong": {"env_id": "ALE/Pong-v5", "algo": "dqn"},
    "pong-ann": {"env_id": "ALE/Pong-v5", "algo": "dqn", "method": "ann"},
    "cartpole": {"env_id": "CartPole-v1", "algo": "dqn"},
}


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory):
    """``trained(name)``: the run of that name, trained once for forty steps without an evaluation."""
    made: dict[str, Path] = {}

    def directory(name: str) -> Path:
        if name not in made:
            made[name] = tmp_path_factory.mktemp(name) / "run"
            run = Run(TrainConfig(
                total_timesteps=40, learning_starts=20, hidden=(16, 12), batch_size=8, eval_episodes=1,
                recalibration_batches=2, run_dir=made[name], quiet=True, **RUNS[name],
            ))  # fmt: skip
            run.open()
            while run.step < 40:
                run.make_step()
            run.save()
            run.close()
        return made[name]

    return directory


@pytest.fixture(scope="session")
def mujoco_draws() -> None:
    if working_backend() is None:
        pytest.skip("MuJoCo cannot draw on this machine: neither EGL nor OSMesa")

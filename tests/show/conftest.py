"""Tiny trained runs, and the command line in this process."""

import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from carebn import cli
from carebn.show.stage import working_backend
from carebn.training import Run, TrainConfig

RUNS: dict[str, dict[str, Any]] = {
    "idp": {"env_id": "InvertedDoublePendulum-v4"},
    "hopper": {"env_id": "Hopper-v4", "algo": "sac"},
    "ann": {"env_id": "Hopper-v4", "method": "ann", "algo": "ddpg"},
    "pong": {"env_id": "ALE/Pong-v5", "algo": "dqn"},
    "pong-ann": {"env_id": "ALE/Pong-v5", "algo": "dqn", "method": "ann"},
    "cartpole": {"env_id": "CartPole-v1", "algo": "dqn"},
}


class Said(NamedTuple):
    code: int
    out: str
    err: str


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


@pytest.fixture
def carebn(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path):
    """Runs the command in this process, in an empty directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    for library in ("OMP", "MKL", "OPENBLAS", "NUMBA"):
        monkeypatch.setenv(f"{library}_NUM_THREADS", "1")  # so that what it sets is put back afterwards

    def call(*words: object) -> Said:
        monkeypatch.setattr(sys, "argv", ["carebn", *map(str, words)])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        out, err = capfd.readouterr()
        return Said(stop.value.code if isinstance(stop.value.code, int) else 0, out, err)

    return call


@pytest.fixture(scope="session")
def mujoco_draws() -> None:
    if working_backend() is None:
        pytest.skip("MuJoCo cannot draw on this machine: neither EGL nor OSMesa")

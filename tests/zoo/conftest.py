"""Finished runs of two seeds, tiny; and a zoo of one's own with an entry of them."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from carebn.training import Run, TrainConfig
from carebn.zoo.entry import add
from carebn.zoo.names import VARIABLE

NAME = "pendulum-care"


def config(directory: Path, seed: int = 0, **options: object) -> TrainConfig:
    values: dict[str, object] = {
        "env_id": "InvertedPendulum-v4", "seed": seed, "total_timesteps": 60, "learning_starts": 20, "hidden": (16, 12),
        "batch_size": 8, "eval_interval": 30, "checkpoint_interval": 30, "eval_episodes": 2, "recalibration_batches": 2,
        "run_dir": directory, "quiet": True,
    }  # fmt: skip
    return TrainConfig(**(values | options))  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with ``seed0``, ``seed1`` and ``ann``."""
    place = tmp_path_factory.mktemp("runs")
    for seed in (0, 1):
        Run(config(place / f"seed{seed}", seed)).train()
    Run(config(place / "ann", method="ann")).train()
    return place


@pytest.fixture
def runs(originals: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(originals, tmp_path / "runs"))


@pytest.fixture(scope="session")
def original_zoo(originals: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    zoo = tmp_path_factory.mktemp("zoo") / "animals"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, str(zoo))
        add([originals / "seed0", originals / "seed1"], NAME, episodes=12)
        add([originals / "ann"], "pendulum-ann", episodes=12)
    return zoo


@pytest.fixture
def zoo(original_zoo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where names are looked for."""
    place = Path(shutil.copytree(original_zoo, tmp_path / "animals"))
    monkeypatch.setenv(VARIABLE, str(place))
    return place


@pytest.fixture
def contents() -> Callable[[Path], dict[str, bytes]]:
    def read(directory: Path) -> dict[str, bytes]:
        return {str(p.relative_to(directory)): p.read_bytes() for p in sorted(directory.rglob("*")) if p.is_file()}

    return read

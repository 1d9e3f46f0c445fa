"""Before learning: the paper's share of the budget, unless the user says otherwise; without learning, no run."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from carebn.paper import STUDIES
from carebn.study.cells import Budget, config_of
from carebn.training import Run, TrainConfig
from carebn.training.policy import read_config

SMALL: dict[str, Any] = {
    "env_id": "Pendulum-v1", "method": "ann", "hidden": (8,), "eval_episodes": 1, "eval_interval": 1000, "quiet": True,
}  # fmt: skip


@pytest.mark.parametrize(
    ("options", "learning_starts", "random_steps"),
    [
        ({}, 25_000, 25_000),
        ({"total_timesteps": 20_000}, 488, 488),
        ({"total_timesteps": 102_500}, 2_500, 2_500),
        ({"total_timesteps": 3_000}, 256, 256),  # a batch
        ({"total_timesteps": 3_000, "batch_size": 64}, 73, 73),
        ({"total_timesteps": 10_000_000}, 25_000, 25_000),
        ({"algo": "dqn", "total_timesteps": 3_000}, 128, 128),  # its own batch
        ({"method": "pop-san-original"}, 1_000, 10_000),
        ({"method": "pop-san-original", "total_timesteps": 102_500}, 100, 1_000),
        # What the user names is kept, and what belongs to it is as it was.
        ({"total_timesteps": 20_000, "learning_starts": 25_000}, 25_000, 25_000),
        ({"total_timesteps": 20_000, "learning_starts": 1_000}, 1_000, 1_000),
        ({"total_timesteps": 20_000, "random_steps": 7}, 488, 7),
        ({"total_timesteps": 20_000, "learning_starts": 9, "random_steps": 7}, 9, 7),
        ({"method": "pop-san-original", "total_timesteps": 10_250, "learning_starts": 250}, 250, 10_000),
    ],
)
def test_it_follows_the_budget(options: dict[str, Any], learning_starts: int, random_steps: int) -> None:
    config = TrainConfig(**options).checked()
    assert (config.learning_starts, config.random_steps) == (learning_starts, random_steps)
    assert config.checked() == config
    stored = TrainConfig.from_json(json.loads(json.dumps(config.as_json())))
    assert replace(stored, total_timesteps=2_000_000).checked().learning_starts == learning_starts  # resolved once


@pytest.mark.parametrize("scale", [0.001, 0.01, 0.1, 1, 2])
def test_studies_have_their_own_share(scale: float) -> None:
    """With or without a word from here, a study's warm-up is that of its budget."""
    budget = Budget.scaled(scale)
    cell = next(STUDIES["main"].cells())
    assert config_of(cell, budget).learning_starts == config_of(cell, budget).random_steps == round(25_000 * scale)


@pytest.mark.parametrize(
    "options",
    [
        {"total_timesteps": 200},  # shorter than a batch
        {"total_timesteps": 300, "learning_starts": 300},
        {"total_timesteps": 20_000, "learning_starts": 25_000},
        {"total_timesteps": 49, "learning_starts": 10, "update_interval": 50},
        {"total_timesteps": 99, "learning_starts": 50, "update_interval": 50},
    ],
)
def test_a_run_that_never_learns_is_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"would never learn: it ends after .*--learning-starts.*lower the") as told:
        Run(TrainConfig(**SMALL | options, run_dir=tmp_path / "run")).train()
    assert "\n" not in str(told.value)
    assert not (tmp_path / "run").exists()


def test_one_update_is_enough(tmp_path: Path) -> None:
    options = SMALL | {"total_timesteps": 100, "learning_starts": 50, "update_interval": 50, "batch_size": 8}
    run = Run(TrainConfig(**options, run_dir=tmp_path))
    assert run.train()
    assert run.agent.updates == 50


def test_a_short_run_learns_and_stores_its_numbers(tmp_path: Path) -> None:
    run = Run(TrainConfig(**SMALL, total_timesteps=270, run_dir=tmp_path))
    assert run.train()
    assert run.agent.updates == 270 - 256
    stored = json.loads((tmp_path / "config.json").read_bytes())
    assert (stored["learning_starts"], stored["random_steps"]) == (256, 256)
    assert "--learning-starts 256 --random-steps 256" in (tmp_path / "command.txt").read_text()


def test_a_run_that_was_begun_with_another_warm_up_goes_on_with_it(tmp_path: Path) -> None:
    """As one begun when the warm-up was 25,000 steps whatever the budget, and warned if that was too long."""
    Run(TrainConfig(**SMALL, total_timesteps=270, run_dir=tmp_path)).train()
    old = json.loads((tmp_path / "config.json").read_bytes()) | {"learning_starts": 25_000, "random_steps": 25_000}
    (tmp_path / "config.json").write_text(json.dumps(old))
    (tmp_path / "checksums.json").unlink(missing_ok=True)  # which such a run does not have
    again = Run(TrainConfig(**SMALL, total_timesteps=270, run_dir=tmp_path))
    assert again.config.learning_starts == again.config.random_steps == 25_000
    assert not again.train()  # it is complete
    assert read_config(tmp_path).learning_starts == 25_000
    with pytest.raises(ValueError, match="learning_starts is 25000 there and 256 here"):
        Run(TrainConfig(**SMALL, total_timesteps=270, learning_starts=256, run_dir=tmp_path)).train()

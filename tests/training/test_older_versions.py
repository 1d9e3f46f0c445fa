"""A run directory that version 0.1.0 has made: it opens, plays, exports, goes on and grows."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from carebn import load
from carebn.checksums import Vouched
from carebn.deploy import load as load_exported
from carebn.training.record import read_rows

OLD = Path(__file__).parent / "run_of_0_1_0"  # dqn with CaRe-BN on CartPole-v1, 45 steps


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return Path(shutil.copytree(OLD, tmp_path / "run"))


def test_its_policy_decides_as_it_did(run: Path) -> None:
    policy = load(run)
    assert policy.config.method == "care-bn"
    observations = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)
    actions = policy.predict(observations)[0]
    # as version 0.1.0 decided
    assert "".join(map(str, actions)) == "0011110101100110010011111001000110001111"
    assert policy.evaluate(episodes=1).mean > 0


def test_it_is_exported(run: Path, tmp_path: Path, carebn: Any) -> None:
    said = carebn("export", run, "--to", "numpy", "--out", "policy.npz", "--observations", "50")
    assert said.code == 0, said.err
    exported = load_exported(tmp_path / "policy.npz")
    observations = np.random.default_rng(1).normal(size=(40, 4)).astype(np.float32)
    assert np.array_equal(exported.predict(observations)[0], load(run).predict(observations)[0])


def test_it_grows(run: Path, carebn: Any) -> None:
    before = read_rows(run / "metrics.jsonl")
    said = carebn("train", "--run-dir", run, "--total-timesteps", "74", "--quiet")
    assert said.code == 0, said.err
    after = read_rows(run / "metrics.jsonl")
    kept = [row for row in before if row["step"] < 45]
    assert after[: len(kept)] == kept
    assert after[-1]["step"] == 74
    assert "eval/mean_return" in after[-1]
    assert json.loads((run / "config.json").read_text())["total_timesteps"] == 74
    Vouched(run).check("config.json", "versions.json", "command.txt")
    assert load(run).predict(np.zeros(4, np.float32))[0] in (0, 1)

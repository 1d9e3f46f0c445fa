"""docs/fidelity.md: every option it names exists, means something, and builds."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import tyro

from carebn.training import TrainConfig
from carebn.training.build import make_agent
from carebn.training.environment import Spaces
from carebn.training.methods import METHODS

DOCUMENT = Path(__file__).parents[2] / "docs" / "fidelity.md"
OPTIONS = sorted({span for span in re.findall(r"`([^`]+)`", DOCUMENT.read_text()) if span.startswith("--")})
BOX = Spaces(4, np.float32, None, np.full(2, -1, np.float32), np.full(2, 1, np.float32))
BYTES = Spaces(128, np.uint8, 4, None, None)


def test_there_are_many() -> None:
    assert len(OPTIONS) > 40
    assert set(METHODS) - set(re.findall(r"--method ([\w-]+)", " ".join(OPTIONS))) == {
        "ann", "bntt", "tebn", "tab", "ca", "re",
    }  # fmt: skip  # nothing differs there


@pytest.mark.parametrize("words", OPTIONS)
def test_it_builds_something_else_than_the_default(words: str) -> None:
    given = tyro.cli(TrainConfig, args=shlex.split(words))
    config = given.checked()
    default = TrainConfig(algo=config.algo).checked()
    assert config.as_json() != default.as_json()
    options = [word[2:].replace("-", "_") for word in shlex.split(words) if word.startswith("--")]
    for name in set(options) - {"algo"}:
        assert getattr(config, name) == getattr(given, name)  # what was asked for is what is built
    discrete = config.algo == "dqn"
    agent = make_agent(config, BYTES if discrete else BOX)
    obs = np.zeros((2, 128), np.uint8) if discrete else np.zeros((2, 4), np.float32)
    assert len(agent.act(obs, None)) == 2


def test_the_tables_are_whole() -> None:
    rows = [line for line in DOCUMENT.read_text().splitlines() if line.startswith("| ") and "`--" in line]
    assert len(rows) > 25
    assert all(row.count(" | ") in (2, 4) for row in rows)

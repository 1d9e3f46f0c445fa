"""The example: the exported policy as a process of its own, asked by the simulator for every action."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from forked import Warm

from carebn import load
from carebn.deploy.c_export import compiler

EXAMPLE = Path(__file__).parents[2] / "examples" / "closed_loop"
TRAINED = Path(__file__).parent / "trained_clif"
pytestmark = [pytest.mark.slow, pytest.mark.skipif(compiler() is None, reason="no C compiler")]


@pytest.mark.parametrize("board", ["computer", "cortex-m4", "riscv32"])
def test_the_return_is_as_trained(board, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLE))
    from board import BOARDS, Built, drawn
    from closed_loop import exported, play

    if BOARDS[board].missing():
        pytest.skip(f"needs {' and '.join(BOARDS[board].missing())}; make chip-test installs them")
    monkeypatch.setenv("PYTHONPATH", ":".join(sys.path))
    source, policy = exported(TRAINED, "int8", tmp_path)
    built = Built(source, board)
    rows = drawn(500, policy.obs_dim, 11)
    env = load(TRAINED).make_env()
    with built.start() as line:
        assert np.array_equal(line.decide(rows[:70])[:, :-1], policy.decide(rows[:70]))
        assert np.array_equal(line.decide_drawn(500, 11)[:, :-1], policy.decide(rows))
        if board == "computer":  # the others play in make chip-test
            assert play(line, policy, env, 3_000_000) > 9000
    assert sum(built.frames().values()) < 500


OWN = """
import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete


class Lights(gym.Env):
    observation_space = Dict(lamp=Discrete(3), place=Box(-1, 1, (2, 2), np.float32))
    action_space = Discrete(3, start=4)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        assert action in (4, 5, 6), action
        return self.observation_space.sample(), float(action), False, False, {}


gym.register("Lights-v0", entry_point=Lights, max_episode_steps=8)
"""


def test_an_environment_of_ones_own(warm: Warm, tmp_path):
    """Its module is named to the script, which hands the name on; without it, the export's own sentence is read."""
    (tmp_path / "lights.py").write_text(OWN)
    (tmp_path / "besides.py").write_text("")
    train = ["--env-id", "Lights-v0", "--import", "lights", "--algo", "dqn", "--total-timesteps", "60", "--quiet"]
    train += ["--learning-starts", "20", "--hidden", "8", "--batch-size", "8", "--eval-episodes", "1"]

    def said(*words):
        environment = os.environ | {"PYTHONPATH": ":".join(word for word in sys.path if word)}
        return subprocess.run([sys.executable, *words], cwd=tmp_path, capture_output=True, text=True, env=environment)

    assert warm.said(["train", *train, "--run-dir", "run"], tmp_path).code == 0
    script = str(EXAMPLE / "closed_loop.py")
    refused = said(script, "run")
    assert refused.returncode == 1
    assert "add --import lights" in refused.stderr
    assert "Traceback" not in refused.stderr
    played = said(script, "run", "--import", "lights", "--import", "besides", "--episodes", "2")
    assert played.returncode == 0, played.stderr
    lines = played.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["exporting", "building", "playing", "seed", "seed"]
    assert all(32 <= float(word) <= 48 for line in lines[3:] for word in line.split() if word.count(".") == 1)
    nothing = said(script, "nothing")
    assert nothing.returncode == 1
    assert nothing.stderr.startswith("closed_loop: nothing is not a run directory")

"""The example: the exported policy as a process of its own, asked by the simulator for every action."""

import sys
from pathlib import Path

import numpy as np
import pytest

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

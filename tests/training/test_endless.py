"""An environment of a user's whose episodes never end: real commands, real signals, and nothing lost."""

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from forked import Forked, Warm

pytestmark = pytest.mark.slow

PATIENCE = 60  # seconds: generous, because a test machine may be busy; without an answer it would be for ever
WORLD = """
import os, time
import gymnasium as gym, numpy as np

class Endless(gym.Env):
    metadata = {"render_modes": ["rgb_array"], "render_fps": 1000}
    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    made = 0

    def __init__(self, render_mode=None):
        self.render_mode = render_mode
        Endless.made += 1
        self.number = Endless.made  # the first is the one that a training acts in

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.array([self.np_random.uniform(), 0], np.float32), {}

    def step(self, action):
        self.t += 1
        if os.path.exists("slow") and (self.number > 1 or self.render_mode):
            open("working", "w").close()
            time.sleep(0.05)
        while os.path.exists("stuck") and self.number == 1 and self.t == 35:
            open("working", "w").close()
            time.sleep(0.01)
        return np.array([np.sin(self.t), action[0]], np.float32), float(action[0]), False, False, {}

    def render(self):
        return np.zeros((64, 64, 3), np.uint8)

gym.register("Endless-v0", Endless)
"""
TRAIN = shlex.split(
    "train --env-id Endless-v0 --import endless --method ann --hidden 8 --total-timesteps 60 --learning-starts 25 "
    "--batch-size 8 --eval-interval 20 --eval-episodes 2 --checkpoint-interval 20 --eval-max-steps 100 --run-dir run"
)


def as_from_a_terminal() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def start(cwd: Path, *words: str) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    command = [sys.executable, "-m", "carebn", *words]
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, cwd=cwd, preexec_fn=as_from_a_terminal)


def wait_until(true: Callable[[], bool], process: subprocess.Popen[str] | Forked) -> None:
    deadline = time.monotonic() + PATIENCE
    while not true() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert true() or process.poll() is not None, "nothing came"


def end(process: subprocess.Popen[str]) -> tuple[int, str]:
    try:
        _, said = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    return process.returncode, said


def contents(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name != "timing.jsonl"
    }


def world(directory: Path) -> Path:
    directory.mkdir(exist_ok=True)
    (directory / "endless.py").write_text(WORLD)
    return directory


@pytest.fixture(scope="module")
def undisturbed(warm: Warm, tmp_path_factory: pytest.TempPathFactory) -> Path:
    here = world(tmp_path_factory.mktemp("undisturbed"))
    code, _, said = warm.said(TRAIN, here)
    assert code == 0, said
    told = "2 of 2 episodes of Endless-v0 were cut after 100 steps, as --eval-max-steps says"
    assert said.count(told) == 1  # not thrice
    return here


def test_a_signal_in_its_evaluation(tmp_path: Path, undisturbed: Path) -> None:
    """Then a second one in a step that hangs; the run still ends as if nothing had happened."""
    here = world(tmp_path)
    working = here / "working"
    (here / "slow").touch()
    process = start(here, *TRAIN, "--quiet")
    wait_until(working.exists, process)
    process.send_signal(signal.SIGINT)
    assert end(process) == (
        130,
        "stopping after this step, saving; again to stop without saving\n"
        "stopped at step 20; the same command resumes it\n",
    )
    (here / "slow").unlink()
    working.unlink()

    (here / "stuck").touch()
    process = start(here, *TRAIN, "--quiet")
    wait_until(working.exists, process)
    process.send_signal(signal.SIGTERM)
    assert process.stderr is not None
    assert "were cut after 100 steps" in process.stderr.readline()  # of the evaluation, which was made whole
    assert process.stderr.readline() == "stopping after this step, saving; again to stop without saving\n"
    process.send_signal(signal.SIGTERM)
    assert end(process) == (
        143,
        "carebn: stopped without saving; the last checkpoint is kept, and the same command resumes from it (step 20)\n",
    )
    (here / "stuck").unlink()

    code, said = end(start(here, *TRAIN, "--quiet"))
    assert code == 0, said
    assert contents(here / "run") == contents(undisturbed / "run")


@pytest.mark.parametrize(
    "words",
    [
        "evaluate run --max-steps 1000000",
        "convert run --sweep 5 --iterations 5 --max-steps 1000000",
        "watch run --seconds 1000",
    ],
)
def test_a_signal_in_other_commands(warm: Warm, undisturbed: Path, words: str) -> None:
    (undisturbed / "slow").touch()
    working = undisturbed / "working"
    working.unlink(missing_ok=True)
    process = warm.start([*words.split(), "--trust"], undisturbed)
    wait_until(working.exists, process)
    process.send_signal(signal.SIGINT)
    code, _, said = process.said(PATIENCE)
    assert (code, said.splitlines()[-1:]) == (130, ["carebn: stopped"]), said
    told = [line for line in said.splitlines() if " of at most " not in line]  # how far it is, on a slow machine
    assert len(told) == 1, said


def test_the_evaluation_of_a_policy_is_cut_and_says_so(warm: Warm, undisturbed: Path) -> None:
    (undisturbed / "slow").unlink(missing_ok=True)
    code, _, said = warm.said(["evaluate", "run", "--episodes", "2", "--trust"], undisturbed)
    assert code == 0
    assert said == (
        "warning: 2 of 2 episodes of Endless-v0 were cut after 100 steps, as the run's --eval-max-steps says; "
        "--max-steps chooses otherwise\n"
    )


def test_a_signal_while_the_kernels_are_compiled(tmp_path: Path) -> None:
    """Which is said, because it takes long; nobody has to wait for it."""
    process = subprocess.Popen(
        [
            sys.executable, "-m", "carebn", "train", "--env-id", "Pendulum-v1", "--total-timesteps", "1000",
            "--learning-starts", "10", "--run-dir", "run",
        ],
        stderr=subprocess.PIPE, text=True, cwd=tmp_path, preexec_fn=as_from_a_terminal,
        env=os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache")},
    )  # fmt: skip
    assert process.stderr is not None
    assert process.stderr.readline() == "Pendulum-v1, td3, care-bn, clif, seed 0: 1,000 steps, in run\n"
    said = process.stderr.readline()
    assert said == "compiling kernels that were not needed before (up to a minute; then they are kept on disk)\n"
    process.send_signal(signal.SIGINT)
    code, said = end(process)
    assert code == 130
    assert said == (
        "stopping; a step that is compiling cannot be saved\n"
        "stopped while compiling at step 11; there is no checkpoint yet, so the same command begins anew\n"
    )

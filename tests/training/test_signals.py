"""Ctrl-C and SIGTERM, sent to real processes: one line, the exit code of the signal, and in a training a checkpoint."""

import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from abilities import reads_proc

from carebn.training import Run, TrainConfig

pytestmark = pytest.mark.slow

SLOW = shlex.split(
    "--env-id Pendulum-v1 --method ann --hidden 8 --learning-starts 100000 --checkpoint-interval 50 --quiet"
)


def as_from_a_terminal() -> None:
    """Tests may run in the background of a shell, which has them, and what they start, ignore SIGINT."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def start(*words: str, cwd: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "carebn", *words]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, cwd=cwd, preexec_fn=as_from_a_terminal)


def send(process: subprocess.Popen[str], number: int, when: Callable[[], bool]) -> tuple[int, str]:
    deadline = time.monotonic() + 120
    while not when() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    process.send_signal(number)
    try:
        _, said = process.communicate(timeout=120)
    finally:
        process.kill()
    return process.returncode, said


def is_importing(process: subprocess.Popen[str]) -> Callable[[], bool]:
    """Torch's library is the heavy one."""
    return lambda: "libtorch" in Path(f"/proc/{process.pid}/maps").read_text()


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("finished")
    Run(TrainConfig(
        env_id="Pendulum-v1", method="ann", total_timesteps=4, learning_starts=2, hidden=(8,), batch_size=2,
        eval_episodes=1, run_dir=directory, quiet=True,
    )).train()  # fmt: skip
    return directory


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_training_saves_itself(tmp_path: Path, number: int, code: int) -> None:
    process = start("train", *SLOW, "--run-dir", "run", cwd=tmp_path)
    returned, said = send(process, number, lambda: bool(list(tmp_path.glob("run/checkpoint/0*"))))
    assert returned == code
    acknowledged, said = said.split("\n", 1)
    assert acknowledged == "stopping after this step, saving; again to stop without saving"
    assert said.startswith("stopped at step ")
    assert said.endswith("; the same command resumes it\n")
    step = int(said.split()[3].strip(";").replace(",", ""))
    assert (tmp_path / "run" / "checkpoint" / f"{step:09d}" / "manifest.json").is_file()


@reads_proc
@pytest.mark.parametrize("command", ["train", "evaluate", "export"])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_while_libraries_are_imported(tmp_path: Path, finished: Path, command: str, number: int, code: int) -> None:
    words = SLOW if command == "train" else [str(finished)]
    process = start(command, *words, cwd=tmp_path)
    assert send(process, number, is_importing(process)) == (code, "carebn: stopped\n")
    assert list(tmp_path.iterdir()) == []


def test_while_a_command_works(tmp_path: Path, finished: Path) -> None:
    (tmp_path / "slow_world.py").write_text(
        "import time, pathlib\n"
        "from gymnasium.envs.classic_control import PendulumEnv\n"
        "def step(self, action, step=PendulumEnv.step):\n"
        "    pathlib.Path('working').touch()\n"
        "    time.sleep(0.01)\n"
        "    return step(self, action)\n"
        "PendulumEnv.step = step\n"
    )
    for name in ("config.json", "policy.safetensors"):
        data = (finished / name).read_bytes()
        data = data.replace(b'"import_modules": []', b'"import_modules": ["slow_world"]')
        (tmp_path / name).write_bytes(data)
    process = start("evaluate", str(tmp_path), "--episodes", "100", "--import", "slow_world", cwd=tmp_path)
    code, said = send(process, signal.SIGINT, (tmp_path / "working").exists)
    assert code == 130
    warning, stopped = said.splitlines()
    assert warning.endswith("has no checkpoints, so how far its policy was trained is not known")
    assert stopped == "carebn: stopped"


@reads_proc
def test_a_signal_that_was_ignored_stays_ignored(tmp_path: Path) -> None:
    """As nohup does; here with SIGTERM while libraries are imported."""
    script = "import signal, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN); from carebn.cli import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", script, "methods"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    code, said = send(process, signal.SIGTERM, is_importing(process))
    assert (code, said) == (0, "")

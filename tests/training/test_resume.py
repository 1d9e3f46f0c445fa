"""The promise: kill a run at any instant, run the same command again, and every file ends byte-identical."""

import os
import random
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from forked import Warm

pytestmark = pytest.mark.slow

OUTSIDE_THE_PROMISE = {"timing.jsonl"}  # wall-clock figures
FULL = "CAREBN_KILLS" in os.environ
KILLS = int(os.environ.get("CAREBN_KILLS", "3"))  # the full test uses ten or more

TD3_RUN = shlex.split(
    "--env-id Hopper-v4 --algo td3 --method care-bn --total-timesteps 900 --learning-starts 300 --hidden 32 32 "
    "--batch-size 32 --eval-interval 200 --eval-episodes 2 --checkpoint-interval 100 --log-interval 50 "
    "--recalibration-batches 5"
)
DQN_RUN = shlex.split(
    "--env-id ALE/Pong-v5 --algo dqn --method care-bn --total-timesteps 700 --learning-starts 200 --hidden 32 32 "
    "--batch-size 32 --eval-interval 700 --eval-episodes 1 --checkpoint-interval 100 --log-interval 50 "
    "--recalibration-batches 5"
)
# z-scores, Poisson spikes and a proxy target: all that has a state of its own
ORIGINAL_RUN = shlex.split(
    "--env-id Hopper-v4 --algo td3 --method pop-san-original --target proxy --proxy-hidden 16 --total-timesteps 700 "
    "--learning-starts 200 --random-steps 300 --update-interval 20 --hidden 32 32 --batch-size 32 --eval-interval 200 "
    "--eval-episodes 2 --checkpoint-interval 90 --log-interval 50"
)

# Eight environments at once, which divide neither the evaluations nor the checkpoints
EIGHT = ["--num-envs", "8", "--updates-per-step", "0.5", "--checkpoint-interval", "90"]


def words(options: list[str], directory: Path) -> list[str]:
    return ["train", *options, "--run-dir", str(directory)]


def command(options: list[str], directory: Path) -> list[str]:
    return [sys.executable, "-m", "carebn.cli", *words(options, directory)]


def contents(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name not in OUTSIDE_THE_PROMISE
    }


def run(options: list[str], directory: Path) -> None:
    done = subprocess.run(command(options, directory), capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The directory of a run that nobody disturbs. Its process is one of its own, with hashes of its own."""

    @cache
    def trained(name: str) -> Path:
        directory = tmp_path_factory.mktemp("undisturbed") / name
        run(KILLED[name], directory)
        return directory

    return trained


def run_killed(warm: Warm, options: list[str], directory: Path, kills: int, rng: random.Random) -> int:
    """Run, killing it ``kills`` times: mostly at random moments, every third time as soon as a checkpoint is begun."""
    killed = 0
    while killed < kills:
        process = warm.start(words(options, directory), directory.parent)
        deadline = time.monotonic() + 120
        while not (directory / "metrics.jsonl").exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        if killed % 3 == 2:
            while process.poll() is None and not list(directory.glob("checkpoint/.*.part")):
                time.sleep(0.0002)
        else:
            time.sleep(rng.uniform(0.0, 2.0))
        if process.poll() is not None:
            break  # it finished first
        process.kill()
        killed += 1
    run(options, directory)
    return killed


KILLED = {
    "td3": TD3_RUN,
    "dqn-atari": DQN_RUN,
    "original": ORIGINAL_RUN,
    "eight-async": [*TD3_RUN, *EIGHT, "--vector", "async"],
}
if FULL:
    KILLED |= {"eight": [*TD3_RUN, *EIGHT], "eight-dqn-async": [*DQN_RUN, *EIGHT, "--vector", "async"]}


@pytest.mark.parametrize("name", KILLED)
def test_a_run_that_is_killed_again_and_again_ends_byte_identical(
    name: str, undisturbed: Callable[[str], Path], warm: Warm, tmp_path: Path
) -> None:
    killed = run_killed(warm, KILLED[name], tmp_path / "killed", KILLS, random.Random(1))
    assert killed > 0
    whole, resumed = contents(undisturbed(name)), contents(tmp_path / "killed")
    assert whole.keys() == resumed.keys()
    assert [name for name in whole if whole[name] != resumed[name]] == []


def test_an_interruption_saves_and_the_result_is_still_identical(
    undisturbed: Callable[[str], Path], warm: Warm, tmp_path: Path
) -> None:
    directory = tmp_path / "interrupted"
    process = warm.start(words(TD3_RUN, directory), tmp_path)
    while not list(directory.glob("checkpoint/0*")) and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    said = process.said(120)
    assert said.code == 130
    assert "the same command resumes it" in said.err
    step = said.err.split("stopped at step ")[1].split(";")[0]
    resumed = subprocess.run(command(TD3_RUN, directory), capture_output=True, text=True)
    assert f"seed 0: resuming from step {step} of " in resumed.stderr
    assert contents(undisturbed("td3")) == contents(directory)


def test_ctrl_c_reaches_all_processes_and_the_run_saves_itself(
    undisturbed: Callable[[str], Path], warm: Warm, tmp_path: Path
) -> None:
    """As a terminal sends it: to the whole group, the environments' processes among them."""
    options = KILLED["eight-async"]
    directory = tmp_path / "interrupted"
    for number in (signal.SIGINT, signal.SIGTERM):
        before = set(directory.glob("checkpoint/0*"))
        process = warm.start(words(options, directory), tmp_path, alone=True)
        while not set(directory.glob("checkpoint/0*")) - before and process.poll() is None:
            time.sleep(0.01)
        os.killpg(process.pid, number)
        said = process.said(120)
        assert said.code == 128 + number, said
        assert "the same command resumes it" in said.err
        assert "Traceback" not in said.err
        with pytest.raises(ProcessLookupError):
            os.killpg(process.pid, 0)  # nobody is left behind
    run(options, directory)
    assert contents(undisturbed("eight-async")) == contents(directory)


def test_processes_of_environments_do_not_outlive_a_run_that_is_killed(tmp_path: Path) -> None:
    options = [*TD3_RUN, *EIGHT, "--vector", "async"]
    process = subprocess.Popen(command(options, tmp_path), stderr=subprocess.PIPE, text=True, process_group=0)
    while not list(tmp_path.glob("checkpoint/0*")) and process.poll() is None:
        time.sleep(0.01)
    process.kill()
    _, said = process.communicate(timeout=60)  # the pipe is closed only when all of them are gone
    assert "Traceback" not in said


def test_another_seed_gives_other_files(warm: Warm, tmp_path: Path) -> None:
    for name, seed in (("a", "0"), ("b", "1")):
        options = [*TD3_RUN, "--total-timesteps", "400", "--seed", seed]
        assert warm.said(words(options, tmp_path / name), tmp_path).code == 0
    a, b = contents(tmp_path / "a"), contents(tmp_path / "b")
    assert a["policy.safetensors"] != b["policy.safetensors"]
    assert a["metrics.jsonl"] != b["metrics.jsonl"]


def test_a_complete_run_says_so_and_another_configuration_is_refused(warm: Warm, tmp_path: Path) -> None:
    options = [*TD3_RUN, "--total-timesteps", "100", "--learning-starts", "90"]
    directory = tmp_path / "run"
    assert warm.said(words(options, directory), tmp_path).code == 0
    before = contents(directory)
    again = warm.said(words(options, directory), tmp_path)
    assert again.code == 0
    assert "this run is complete" in again.out
    other = warm.said(words([*options, "--gamma", "0.9"], directory), tmp_path)
    assert other.code == 1
    assert "gamma is 0.99 there and 0.9 here" in other.err
    assert "Traceback" not in other.err
    other = warm.said(words([*options, "--checkpoint-interval", "70", "--method", "bn"], directory), tmp_path)
    said = other.err.partition("another configuration: ")[2]
    assert said.startswith("method is 'care-bn' there and 'bn' here, ")
    assert "checkpoint_interval is 100 there and 70 here" in said
    assert contents(directory) == before

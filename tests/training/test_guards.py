"""When something goes wrong in the middle, the run says what and when, and the last good checkpoint stays good."""

import errno
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from carebn.training import InterruptedRun, Run, TrainConfig
from carebn.training.checkpoint import unfinished
from carebn.training.converted_run import replay_observations
from carebn.training.policy import load

pytestmark = pytest.mark.slow


def config(directory: Path, **options: Any) -> TrainConfig:
    values: dict[str, Any] = {
        "env_id": "Pendulum-v1",
        "total_timesteps": 60,
        "learning_starts": 35,
        "hidden": (8,),
        "batch_size": 8,
        "eval_interval": 1000,
        "eval_episodes": 1,
        "checkpoint_interval": 20,
        "recalibration_batches": 2,
        "log_interval": 10,
        "run_dir": directory,
        "quiet": True,
    }
    return TrainConfig(**(values | options))


def contents(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name != "timing.jsonl"
    }


def differing(a: Path, b: Path) -> list[str]:
    one, other = contents(a), contents(b)
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))


def checkpoints(directory: Path) -> list[int]:
    return sorted(int(path.name) for path in (directory / "checkpoint").iterdir() if path.name.isdigit())


def after_step(run: Run, step: int, do: Any) -> None:
    """Calls ``do`` when step number ``step`` is done."""
    one_step = run.make_step

    def wrapped() -> None:
        one_step()
        if run.step == step:
            do()

    run.make_step = wrapped  # type: ignore[method-assign]


# --- numbers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("algo", "env_id", "part", "loss"), [
    ("td3", "Pendulum-v1", "critic", "losses/qf_loss"),
    ("ddpg", "Pendulum-v1", "critic", "losses/qf_loss"),
    ("sac", "Pendulum-v1", "critic", "losses/qf_loss"),
    ("dqn", "CartPole-v1", "q_network", "losses/td_loss"),
])  # fmt: skip
def test_a_loss_that_is_not_finite_is_named(tmp_path: Path, algo: Any, env_id: str, part: str, loss: str) -> None:
    run = Run(config(tmp_path, algo=algo, env_id=env_id, method="ann"))
    after_step(run, 45, lambda: [p.data.fill_(float("nan")) for p in getattr(run.agent, part).parameters()])
    with pytest.raises(ValueError, match=f"{loss} became nan at step 46; the last checkpoint is kept"):
        run.train()
    assert checkpoints(tmp_path) == [20, 40]
    assert Run(config(tmp_path, algo=algo, env_id=env_id, method="ann")).train()  # it goes on from there


def test_a_weight_that_is_not_finite_never_reaches_a_checkpoint(tmp_path: Path) -> None:
    """During the warm-up no loss would tell."""
    run = Run(config(tmp_path, learning_starts=59, random_steps=60))
    after_step(run, 45, lambda: run.agent.policy.decoder.bias.data.fill_(float("inf")))
    with pytest.raises(ValueError, match=r"actor\.decoder\.bias holds NaN or infinity at step 60"):
        run.train()
    assert checkpoints(tmp_path) == [20, 40]


@pytest.mark.parametrize("method", ["ann", "care-bn"])
def test_an_actor_gone_bad_is_not_blamed_on_the_environment(tmp_path: Path, method: str) -> None:
    """A gradient can overflow while every loss is finite; the next action is then NaN."""
    run = Run(config(tmp_path, method=method))
    after_step(run, 45, lambda: [p.data.fill_(float("nan")) for p in run.agent.policy.parameters()])
    with pytest.raises(ValueError, match=r"at step 4[67]") as error:
        run.train()
    assert "Pendulum-v1 gave" not in str(error.value)
    assert checkpoints(tmp_path) == [20, 40]


@pytest.mark.parametrize("algo", ["td3", "ddpg", "sac"])
def test_a_learning_rate_far_too_large_ends_in_a_clear_error(tmp_path: Path, algo: Any) -> None:
    with pytest.raises(ValueError, match=r"(losses/|critic)\S* (became|holds) .* at step \d+; the last checkpoint is"):
        Run(config(tmp_path, algo=algo, critic_learning_rate=1e30)).train()
    assert checkpoints(tmp_path) == [20]
    assert load(tmp_path).predict([0.0, 0.0, 0.0])[0].shape == (1,)


# --- the disk ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("undisturbed")
    Run(config(directory)).train()
    return directory


WRITERS = [
    "carebn.training.checkpoint.write_file",
    "carebn.training.checkpoint.write_atomically",
    "carebn.training.vouch.write_atomically",
    "carebn.training.run_directory.write_tensorboard",
    "os.fsync",
    "os.replace",
]


@pytest.mark.parametrize("step", [40, 60])
@pytest.mark.parametrize("writer", WRITERS)
def test_a_full_disk_costs_nothing_but_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undisturbed: Path, writer: str, step: int
) -> None:
    run = Run(config(tmp_path))

    def fail(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        after_step(run, step, lambda: patch.setattr(writer, fail))
        with pytest.raises(OSError, match="cannot write a checkpoint") as error:
            run.train()
    assert f"at step {step}" in str(error.value)
    assert "No space left on device" in str(error.value)
    assert step - 20 in checkpoints(tmp_path)
    Run(config(tmp_path)).train()
    assert differing(tmp_path, undisturbed) == []


def test_a_full_disk_between_checkpoints_is_a_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undisturbed: Path
) -> None:
    """Metrics are written all the time; the disk can fill up there as well."""
    run = Run(config(tmp_path))

    def fail(row: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    after_step(run, 45, lambda: setattr(run.files.metrics, "write", fail))
    with pytest.raises(OSError, match="No space left on device"):
        run.train()
    Run(config(tmp_path)).train()
    assert differing(tmp_path, undisturbed) == []


# --- interruptions ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [1, 20, 33, 59])
def test_control_c_saves_and_the_result_is_identical(tmp_path: Path, undisturbed: Path, step: int) -> None:
    run = Run(config(tmp_path))
    after_step(run, step, lambda: signal.raise_signal(signal.SIGINT))
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(InterruptedRun, match=f"stopped at step {step}; the same command resumes it"):
        run.train()
    assert signal.getsignal(signal.SIGINT) is before
    assert step in checkpoints(tmp_path)
    assert Run(config(tmp_path)).train()
    assert differing(tmp_path, undisturbed) == []


def test_control_c_at_the_last_step_leaves_its_evaluation_for_later(tmp_path: Path, undisturbed: Path) -> None:
    run = Run(config(tmp_path))
    after_step(run, 60, lambda: signal.raise_signal(signal.SIGINT))
    with pytest.raises(InterruptedRun, match="stopped at step 60; the same command resumes it"):
        run.train()
    assert unfinished(tmp_path, run.config) == f"the training of {tmp_path} is unfinished: its last evaluation is due"
    with pytest.raises(ValueError, match="is unfinished, with its last evaluation to be made"):
        replay_observations(tmp_path)
    assert Run(config(tmp_path)).train()
    assert differing(tmp_path, undisturbed) == []
    assert unfinished(tmp_path, run.config) is None


def test_stopping_at_every_step_is_still_the_same_run(tmp_path: Path) -> None:
    """With a small buffer and an end that is no multiple of the interval, where segments are cut differently."""
    options: dict[str, Any] = {"total_timesteps": 17, "checkpoint_interval": 5, "buffer_size": 12, "learning_starts": 8}
    options |= {"env_id": "InvertedPendulum-v4", "method": "ann", "batch_size": 4}  # episodes of a few steps
    Run(config(tmp_path / "undisturbed", **options)).train()
    for _ in range(16):
        run = Run(config(tmp_path / "stopped", **options))
        run.stop_asked = True
        with pytest.raises(InterruptedRun):
            run.train()
    Run(config(tmp_path / "stopped", **options)).train()
    assert differing(tmp_path / "stopped", tmp_path / "undisturbed") == []


class Crash(BaseException):
    """The power goes out: nothing catches it."""


def test_a_crash_at_any_write_is_recovered_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Crashes just before the n-th flush to disk, for every n; the same configuration then finishes the run."""
    options: dict[str, Any] = {"total_timesteps": 10, "checkpoint_interval": 5, "learning_starts": 3, "batch_size": 4}
    options |= {"env_id": "CartPole-v1", "algo": "dqn", "method": "ann"}
    Run(config(tmp_path / "undisturbed", **options)).train()
    fsync, failures, n = os.fsync, {}, 0
    while True:
        n += 1
        directory = tmp_path / str(n)
        count = 0

        def crash(handle: int, n: int = n) -> None:
            nonlocal count
            count += 1
            if count == n:
                raise Crash
            fsync(handle)

        try:
            with monkeypatch.context() as patch:
                patch.setattr(os, "fsync", crash)
                Run(config(directory, **options)).train()
            break  # it ended before the n-th flush
        except Crash:
            pass
        try:
            Run(config(directory, **options)).train()
            wrong: Any = differing(directory, tmp_path / "undisturbed")
        except (ValueError, OSError) as error:
            wrong = str(error).replace(str(directory), "RUN")
        if wrong:
            failures[n] = wrong
    assert n > 20
    assert "\n".join(f"crash {n}: {wrong}" for n, wrong in failures.items()) == ""

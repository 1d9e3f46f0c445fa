"""Stopping at any instant of a run: at once where work can be repeated, and never with another result in the end."""

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from carebn.measure.observers import observers_for
from carebn.stopping import tell
from carebn.training import InterruptedRun, Run, TrainConfig
from carebn.training.policy import load
from carebn.training.record import read_rows

pytestmark = pytest.mark.slow

OPTIONS: dict[str, Any] = {
    "env_id": "InvertedPendulum-v4",
    "total_timesteps": 40,
    "learning_starts": 12,
    "hidden": (8,),
    "batch_size": 8,
    "eval_interval": 20,
    "eval_episodes": 3,
    "checkpoint_interval": 20,
    "recalibration_batches": 4,
    "measure": ("wasserstein",),
    "quiet": True,
}


def config(directory: Path) -> TrainConfig:
    return TrainConfig(**OPTIONS, run_dir=directory)


def measured(config: TrainConfig) -> Run:
    return Run(config, observers=observers_for(config))


def contents(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name != "timing.jsonl"
    }


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    directory = tmp_path_factory.mktemp("undisturbed")
    measured(config(directory)).train()
    return contents(directory)


def at_call(target: Any, name: str, number: int, do: Callable[[], None]) -> None:
    """Calls ``do`` within the n-th call of a method."""
    method, calls = getattr(target, name), 0

    def called(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == number:
            do()
        return method(*arguments, **options)

    setattr(target, name, called)


def interrupt() -> None:
    signal.raise_signal(signal.SIGINT)


# Where in an evaluation: what is called there, and whose it is. Numbers count over the whole run.
PLACES: dict[str, Callable[[Run], tuple[Any, str]]] = {
    "measuring": lambda run: (run.files.observers[0], "_distances"),
    "re-calibration": lambda run: (run.replay, "sample_obs"),
    "the start of an episode": lambda run: (run.eval_envs[1].unwrapped, "reset"),
    "an episode": lambda run: (run.eval_envs[1].unwrapped, "step"),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("number", [1, 2])
def test_in_an_evaluation(tmp_path: Path, undisturbed: dict[str, bytes], place: str, number: int) -> None:
    run = measured(config(tmp_path))
    at_call(*PLACES[place](run), number, interrupt)
    with pytest.raises(InterruptedRun, match=r"^stopped at step [24]0; the same command resumes it$"):
        run.train()
    assert load(tmp_path).predict([0.0] * 4)[0].shape == (1,)
    evaluated = [row["step"] for row in read_rows(tmp_path / "metrics.jsonl") if "returns" in row]
    assert run.step not in evaluated  # nothing of the evaluation that was given up
    assert measured(config(tmp_path)).train()
    assert contents(tmp_path) == undisturbed


class Crash(BaseException):
    """The power goes out."""


@pytest.mark.parametrize("instant", range(1, 40, 5))
def test_a_crash_after_an_interrupted_evaluation(
    tmp_path: Path, undisturbed: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, instant: int
) -> None:
    """The checkpoint that waits for its evaluation is replaced by the one after it: a crash at the flushes of that."""
    run = measured(config(tmp_path))
    at_call(run.eval_envs[0].unwrapped, "step", 2, interrupt)
    with pytest.raises(InterruptedRun, match="stopped at step 20"):
        run.train()
    calls = 0

    def crashing(real: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == instant:
                raise Crash
            return real(*arguments)

        return counted

    with monkeypatch.context() as patch, suppress(Crash):
        patch.setattr(os, "fsync", crashing(os.fsync))
        patch.setattr(os, "replace", crashing(os.replace))
        measured(config(tmp_path)).train()
    measured(config(tmp_path)).train()
    assert contents(tmp_path) == undisturbed


def test_an_environment_that_catches_everything_is_stopped_all_the_same(
    tmp_path: Path, undisturbed: dict[str, bytes]
) -> None:
    run = measured(config(tmp_path))
    steps = 0

    def catch() -> None:
        nonlocal steps
        steps = 1
        try:
            interrupt()
        except BaseException:
            return

    at_call(run.eval_envs[0].unwrapped, "step", 2, catch)
    with pytest.raises(InterruptedRun):
        run.train()
    assert steps == 1
    measured(config(tmp_path)).train()
    assert contents(tmp_path) == undisturbed


def test_it_is_acknowledged_at_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run = measured(config(tmp_path))
    said = []

    def listen() -> None:
        interrupt()
        said.append(capfd.readouterr().err)

    at_call(run.env.unwrapped, "step", 5, listen)
    with pytest.raises(InterruptedRun, match="stopped at step 5"):
        run.train()
    assert said == ["stopping after this step, saving; again to stop without saving\n"]


@pytest.mark.parametrize(("term", "erased"), [("xterm", "\r\x1b[2K"), ("dumb", "")])
def test_a_dumb_terminal_gets_letters_only(monkeypatch: pytest.MonkeyPatch, term: str, erased: str) -> None:
    written: list[bytes] = []
    monkeypatch.setenv("TERM", term)
    monkeypatch.setattr("carebn.stopping.os.isatty", lambda _: True)
    monkeypatch.setattr("carebn.stopping.os.write", lambda _, text: written.append(text))
    tell("stopped")
    assert written == [f"{erased}stopped\n".encode()]

"""A run given more steps ends byte-identical to one that had them from the start, whatever happens on the way."""

import json
import os
import shlex
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from said import assert_one_sentence
from test_resume import contents

from carebn.commands.train import run as train
from carebn.measure.observers import observers_for
from carebn.training import InterruptedRun, Run, TrainConfig

pytestmark = pytest.mark.slow

SMALL: dict[str, Any] = {
    "learning_starts": 20,
    "hidden": (8,),
    "batch_size": 8,
    "eval_interval": 20,
    "eval_episodes": 1,
    "checkpoint_interval": 15,
    "recalibration_batches": 2,
    "log_interval": 7,
    "quiet": True,
}
RUNS: dict[str, dict[str, Any]] = {
    "td3": {"env_id": "InvertedPendulum-v4"},
    "sac": {"env_id": "InvertedPendulum-v4", "algo": "sac"},
    "dqn": {"env_id": "CartPole-v1", "algo": "dqn", "epsilon_decay_steps": 30},
    "z-scores": {
        "env_id": "InvertedPendulum-v4",
        "method": "pop-san-original",
        "random_steps": 30,
        "update_interval": 5,
    },
    "converted": {"env_id": "InvertedPendulum-v4", "method": "crpi", "buffer_size": 50},
    "measured": {"env_id": "InvertedPendulum-v4", "measure": ("wasserstein",)},
}
FULL = "CAREBN_KILLS" in os.environ
UNIT = 1000 if FULL else 30  # steps


def config(kind: str, directory: Path, steps: int, **options: Any) -> TrainConfig:
    return TrainConfig(**SMALL | RUNS[kind] | {"run_dir": directory, "total_timesteps": steps} | options)


def measured(config: TrainConfig, kind: type[Run] = Run) -> Run:
    """With whatever the configuration asks to measure."""
    return kind(config, observers=observers_for(config))


def assert_same(one: Path, other: Path) -> None:
    a, b = contents(one), contents(other)
    assert a.keys() == b.keys()
    assert [name for name in a if a[name] != b[name]] == []


class Crash(Exception):  # noqa: N818  # as sudden as SIGKILL: nothing is saved
    pass


def killed(config: TrainConfig, at: int) -> None:
    class Killed(Run):
        def make_step(self) -> None:
            if self.step == at:
                raise Crash
            super().make_step()

    with pytest.raises(Crash):
        measured(config, Killed).train()


# Ends on the grid of evaluations and checkpoints, on one of them, on neither, and before the first of both.
@pytest.mark.parametrize("first", [60, 40, 45, 50, 22])
def test_more_steps(first: int, tmp_path: Path) -> None:
    Run(config("td3", tmp_path / "whole", 90)).train()
    Run(config("td3", tmp_path / "grown", first)).train()
    Run(config("td3", tmp_path / "grown", 90)).train()
    assert_same(tmp_path / "whole", tmp_path / "grown")


def interrupted(config: TrainConfig) -> None:
    """By a signal in the middle of its last evaluation."""

    run = measured(config)
    act = run.evaluating.act

    def interrupted_at_the_end(obs: Any) -> Any:
        if run.step == config.total_timesteps:
            run.stop_asked = signal.SIGINT
        return act(obs)

    run.evaluating.act = interrupted_at_the_end  # type: ignore[method-assign]
    with pytest.raises(InterruptedRun):
        run.train()


# The last evaluation is one that a longer run makes too, or not; with a checkpoint of its own there, or not.
@pytest.mark.parametrize("first", [60, 40, 75, 50])
@pytest.mark.parametrize("kind", ["td3", "measured"])
def test_more_steps_after_an_interrupted_last_evaluation(kind: str, first: int, tmp_path: Path) -> None:
    measured(config(kind, tmp_path / "whole", 90)).train()
    interrupted(config(kind, tmp_path / "grown", first))
    measured(config(kind, tmp_path / "grown", 90)).train()
    assert_same(tmp_path / "whole", tmp_path / "grown")


def test_an_interrupted_last_evaluation_is_made_up_for(tmp_path: Path) -> None:
    """And the run can still be given more steps."""
    Run(config("td3", tmp_path / "whole", 45)).train()
    interrupted(config("td3", tmp_path / "grown", 45))
    Run(config("td3", tmp_path / "grown", 45)).train()
    assert_same(tmp_path / "whole", tmp_path / "grown")


@pytest.mark.parametrize("kind", RUNS if FULL else ["z-scores", "converted", "measured"])
def test_more_steps_again_and_again_with_kills(kind: str, tmp_path: Path) -> None:
    train(config(kind, tmp_path / "whole", 107))
    grown = tmp_path / "grown"
    killed(config(kind, grown, 45), 33)
    train(config(kind, grown, 45))
    killed(config(kind, grown, 74), 45)
    killed(config(kind, grown, 74), 52)
    shutil.move(grown, tmp_path / "elsewhere")  # where it lies is not what it is
    grown = tmp_path / "elsewhere"
    train(config(kind, grown, 74))
    killed(config(kind, grown, 107), 76)
    train(config(kind, grown, 107))
    assert_same(tmp_path / "whole", grown)


@pytest.mark.parametrize("kind", ["td3", "sac", "dqn", "converted"])
def test_twice_as_many_steps(kind: str, tmp_path: Path) -> None:
    """From 3,000 to 6,000 (every day a small part of that), between the evaluations and checkpoints that one gets
    without asking."""
    usual = {"eval_interval": 5 * UNIT, "checkpoint_interval": 5 * UNIT, "learning_starts": 2 * UNIT}
    train(config(kind, tmp_path / "whole", 6 * UNIT, **usual))
    grown = tmp_path / "grown"
    train(config(kind, grown, 3 * UNIT, **usual))
    started_from = []

    class Watched(Run):
        def _train(self) -> bool:
            started_from.append(self.step)
            raise Crash

    with pytest.raises(Crash):
        Watched(config(kind, grown, 6 * UNIT, **usual)).train()
    assert started_from == [3 * UNIT]  # nothing is done twice
    killed(config(kind, grown, 6 * UNIT, **usual), 5 * UNIT + 20)
    train(config(kind, grown, 6 * UNIT, **usual))
    assert_same(tmp_path / "whole", grown)


def test_the_converted_policy_of_a_shorter_run_does_not_stay(tmp_path: Path) -> None:
    from carebn.study.evidence.runs import read_run

    train(config("converted", tmp_path, 45))
    [converted] = tmp_path.glob("converted-*")
    assert read_run(tmp_path).returns
    killed(config("converted", tmp_path, 90), 60)
    assert not converted.exists()
    assert read_run(tmp_path).returns == []
    Run(config("converted", tmp_path, 90)).train()  # killed before it could be converted
    assert not read_run(tmp_path).complete
    train(config("converted", tmp_path, 90))
    assert json.loads((converted / "config.json").read_bytes())["total_timesteps"] == 90


def test_a_run_of_an_earlier_version_grows_too(tmp_path: Path) -> None:
    """It kept nothing of what it was before its last evaluation, so it goes on from the checkpoint before."""
    train(config("td3", tmp_path / "whole", 90))
    grown = tmp_path / "grown"
    train(config("td3", grown, 50))
    make_older(grown)
    run = Run(config("td3", grown, 90))
    run.train()
    assert any("it is the end of a shorter run" in text for text in run.warnings)
    train(config("td3", grown, 90))
    whole, found = contents(tmp_path / "whole"), contents(grown)
    # The best policy is known only from evaluations that this version has made.
    different = {n.rpartition("/")[2].removeprefix("before-") for n in whole | found if whole.get(n) != found.get(n)}
    assert different <= {"best.json", "best.safetensors", "state.json", "manifest.json"}


def make_older(directory: Path) -> None:
    """What the version before left: neither checksums nor the best policy nor anything for a longer run."""
    from carebn.training.files import as_json, sha256

    for name in ("checksums.json", "best.json", "best.safetensors"):
        (directory / name).unlink()
    for place in (directory / "checkpoint").iterdir():
        state = json.loads((place / "state.json").read_bytes())
        for name in ("metrics_sha256", "best_evaluation"):
            state.pop(name)
        (place / "state.json").write_bytes(as_json(state))
        manifest = json.loads((place / "manifest.json").read_bytes())
        files = {n: sha256((place / n).read_bytes()) for n in ("agent.safetensors", "state.json")}
        first = {"step": manifest["step"], "files": files, "replay": manifest["replay"]}
        (place / "manifest.json").write_bytes(as_json(first))
        for path in place.iterdir():
            if path.name not in ("agent.safetensors", "state.json", "manifest.json"):
                path.unlink()


def test_fewer_steps(tmp_path: Path) -> None:
    killed(config("td3", tmp_path / "run", 90), 50)  # at step 45 by its checkpoint
    with pytest.raises(ValueError, match="is at step 45 already, so it cannot end at --total-timesteps 44"):
        Run(config("td3", tmp_path / "run", 44)).train()
    train(config("td3", tmp_path / "run", 45))  # where it is, but not yet evaluated
    train(config("td3", tmp_path / "shorter", 45))
    assert_same(tmp_path / "shorter", tmp_path / "run")


# --- by the command line ----------------------------------------------------------------------------------------------


def test_the_directory_alone_resumes_a_run(tmp_path: Path, carebn: Any) -> None:
    train(config("measured", tmp_path / "whole", 90))
    grown = tmp_path / "grown"
    killed(config("measured", grown, 45), 33)
    said = carebn("train", "--run-dir", str(grown), "--quiet")
    assert said.code == 0, said.err
    said = carebn("train", "--run-dir", str(grown))
    assert "this run is complete" in said.out
    said = carebn("train", f"--run_dir={grown}", "--total_timesteps=90", "--quiet")
    assert said.code == 0, said.err
    assert_same(tmp_path / "whole", grown)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--seed", "1"], "seed is 0 there and 1 here"),
        (["--learning-starts", "21", "--total-timesteps", "90"], "learning_starts is 20 there and 21 here"),
        (["--method", "ann"], "method is 'care-bn' there and 'ann' here"),
        (["--algo", "dqn", "--env-id", "CartPole-v1"], "env_id is 'InvertedPendulum-v4' there and 'CartPole-v1' here"),
        (["--total-timesteps", "30"], "is at step 45 already"),
    ],
)
def test_what_is_named_must_be_the_runs_own(more: list[str], said: str, tmp_path: Path, carebn: Any) -> None:
    Run(config("td3", tmp_path / "run", 45)).train()
    before = contents(tmp_path / "run")
    result = carebn("train", "--run-dir", str(tmp_path / "run"), "--quiet", *more)
    assert_one_sentence(result)
    assert said in result.err
    assert contents(tmp_path / "run") == before


def test_other_threads_resume_with_a_word_about_it(tmp_path: Path) -> None:
    killed(config("td3", tmp_path, 45), 33)
    before = contents(tmp_path)
    run = Run(config("td3", tmp_path, 45, threads=2))
    run.train()
    assert "began with --threads 1 and goes on with 2" in run.warnings[-1]
    assert contents(tmp_path)["config.json"] == before["config.json"]
    assert contents(tmp_path)["command.txt"] == before["command.txt"]


def test_a_run_named_with_its_threads_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    two = replace(config("td3", tmp_path, 45, threads=2), run_dir=None)
    earlier = tmp_path / "runs" / two.checked().name(2)
    earlier.mkdir(parents=True)
    assert Run(two).directory.resolve() == earlier
    assert Run(replace(two, seed=1)).directory == Path("runs") / replace(two, seed=1).checked().name()


@pytest.mark.parametrize("kind", RUNS if FULL else ["dqn", "converted", "measured"])
def test_command_txt_repeats_the_run(kind: str, tmp_path: Path, carebn: Any) -> None:
    """Also of one that was given more steps."""
    train(config(kind, tmp_path / "run", 45))
    train(config(kind, tmp_path / "run", 74))
    command = shlex.split((tmp_path / "run" / "command.txt").read_text())
    assert command[:2] == ["carebn", "train"]
    said = carebn(*command[1:], "--run-dir", str(tmp_path / "again"))
    assert said.code == 0, said.err
    assert_same(tmp_path / "run", tmp_path / "again")


def test_what_going_on_takes_back_is_told(tmp_path: Path) -> None:
    Run(config("td3", tmp_path / "run", 50)).train()
    longer = Run(config("td3", tmp_path / "run", 60))
    longer.train()
    assert "the evaluation at step 50 was made only because the run ended there" in longer.warnings[0]


def test_an_earlier_end_is_told(tmp_path: Path) -> None:
    killed(config("td3", tmp_path / "run", 90), 33)
    shorter = Run(config("td3", tmp_path / "run", 45))
    shorter.train()
    assert shorter.warnings == ["this run was to have 90 steps, and now ends after 45"]


def test_a_directory_without_a_run_alone_begins_none(carebn: Any, tmp_path: Path) -> None:
    """A mistyped name would train the default task for hours."""
    for words in ([], ["--threads", "1", "--quiet"]):
        said = carebn("train", "--run-dir", str(tmp_path / "mistyped"), *words)
        assert_one_sentence(said)
        assert "to go on with; for a new run, say at least what to train, for example --env-id Hopper-v4" in said.err
    assert not (tmp_path / "mistyped").exists()

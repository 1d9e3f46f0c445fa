"""A tuning ends with the same trials however often it is stopped; its result is a file that training takes."""

import json
import shlex
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from forked import Warm
from said import Said

from carebn.study.bars import StopBelow, given_up_at
from carebn.study.sweep import jobs as sweeping
from carebn.study.sweep.jobs import Display
from carebn.study.worker import Order, Outcome
from carebn.training import TrainConfig
from carebn.training.whole_run import carry_out
from carebn.tuning.history import History, Trial, best_of
from carebn.tuning.space import Choice, Range, space_of
from carebn.tuning.tuner import BEST, JOURNAL, TRIALS, Plan, Tuner, bars_from, claim

pytest.importorskip("optuna")

BASE = TrainConfig(
    env_id="Pendulum-v1", method="ann", total_timesteps=40, learning_starts=10, hidden=(8,), batch_size=8,
    eval_interval=10, eval_episodes=1, checkpoint_interval=20, recalibration_batches=1, log_interval=20, quiet=True,
)  # fmt: skip
SEARCH = ("actor_learning_rate=log:1e-4:1e-1", "gamma=0.9:0.999", "batch_size=4,8,16")


class Killed(BaseException):
    """What no code of ours catches."""


class Here:
    """An executor in this process, which may die when it has made so many runs."""

    slots = 1

    def __init__(self, lives: int = 10**6) -> None:
        self.lives = lives
        self.orders: list[Order] = []

    def submit(self, order: Order) -> Order:
        if len(self.orders) == self.lives:
            raise Killed
        self.orders.append(order)
        return order

    def outcome(self, handle: Order) -> Outcome:
        config = replace(TrainConfig.from_json(handle.config), run_dir=Path(handle.run_dir), quiet=True)
        if given_up_at(Path(handle.run_dir), handle.bars) is not None:
            return Outcome("given up")
        done = carry_out(config, callback=StopBelow(handle.bars))
        return Outcome("done" if done.run.is_complete else "given up")

    def stop(self) -> None: ...

    def close(self) -> None: ...


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeping, "POLL", 0.0)


def plan(**options: Any) -> Plan:
    return Plan(BASE, space_of(SEARCH, None, BASE), **options)


def tune(directory: Path, trials: int, executor: Here, **options: Any) -> Tuner:
    directory.mkdir(exist_ok=True)
    tuner = Tuner(directory, plan(**options), trials, Display(), lambda: executor)
    assert tuner.run()
    return tuner


@pytest.mark.slow
def test_twenty_trials_killed_twice_are_those_of_an_undisturbed_tuning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once between two runs, once where a trial that has ended is half told to the journal."""
    whole = tune(tmp_path / "whole", 20, Here(), at_a_time=2)
    states = [trial.state for trial in whole.history.trials()]
    assert states.count("complete") >= 4
    assert states.count("pruned") >= 1
    with pytest.raises(Killed):
        tune(tmp_path / "killed", 20, Here(lives=7), at_a_time=2)
    told = History.end

    def half(self: History, trial: Trial) -> None:
        if trial.number == 13:
            told(self, Trial(trial.number, trial.values, "open", None, dict(list(trial.curve.items())[:1])))
            raise Killed
        told(self, trial)

    monkeypatch.setattr(History, "end", half)
    with pytest.raises(Killed):
        tune(tmp_path / "killed", 20, Here(), at_a_time=2)
    monkeypatch.undo()
    monkeypatch.setattr(sweeping, "POLL", 0.0)
    with open(tmp_path / "killed" / JOURNAL, "ab") as journal:
        journal.write(b'{"op_code": 4, "tri')  # as a machine leaves it whose power failed
    tune(tmp_path / "killed", 20, Here(), at_a_time=2)
    for name in (TRIALS, BEST):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


@pytest.mark.slow
def test_a_tuning_goes_on_with_more_trials_as_if_it_had_had_them_from_the_start(tmp_path: Path) -> None:
    tune(tmp_path / "whole", 8, Here(), at_a_time=3)
    tune(tmp_path / "grown", 4, Here(), at_a_time=3)
    tune(tmp_path / "grown", 8, Here(), at_a_time=3)
    assert (tmp_path / "grown" / TRIALS).read_bytes() == (tmp_path / "whole" / TRIALS).read_bytes()


@pytest.mark.slow
def test_without_pruning_every_trial_is_complete_and_the_best_is_the_best(tmp_path: Path) -> None:
    trials = tune(tmp_path / "all", 7, Here(), prune=False).history.trials()
    assert {trial.state for trial in trials} == {"complete"}
    best = best_of(trials)
    assert best is not None
    assert best.score == max(trial.score or 0 for trial in trials)
    assert all(1e-4 <= trial.values["actor_learning_rate"] <= 1e-1 for trial in trials)
    assert {trial.values["batch_size"] for trial in trials} <= {4, 8, 16}
    assert json.loads((tmp_path / "all" / BEST).read_text()) == {
        "env_id": "Pendulum-v1", "algo": "td3", "method": "ann", "total_timesteps": 40, "learning_starts": 10,
        "hidden": [8], "eval_interval": 10, "eval_episodes": 1, "checkpoint_interval": 20, "recalibration_batches": 1,
        "log_interval": 20, **best.values,
    }  # fmt: skip


def test_bars_are_the_median_of_those_who_came_so_far() -> None:
    curves = [
        {10: 1.0, 20: 5.0, 30: 9.0},
        {10: 2.0, 20: 6.0, 30: 9.0},
        {10: 3.0, 20: 7.0},
        {10: 40.0, 20: 8.0},
        {10: 0.0},
    ]
    trials = [Trial(i, {}, "complete", 0.0, curve) for i, curve in enumerate(curves)]
    assert bars_from(trials) == [(10, 2.0), (20, 6.5)]
    assert bars_from(trials[:3]) == []


def test_a_tuning_of_something_else_is_refused(tmp_path: Path) -> None:
    claim(tmp_path, plan())
    claim(tmp_path, plan())
    with pytest.raises(ValueError, match=r"holds another tuning: at_a_time is 1 there and 2 here; choose another"):
        claim(tmp_path, plan(at_a_time=2))
    other = Plan(replace(BASE, seed=3), space_of(SEARCH, None, BASE))
    with pytest.raises(ValueError, match="seed is 0 there and 3 here"):
        claim(tmp_path, other)
    (tmp_path / JOURNAL).write_text('{"op_code": 99}\nrubbish\n')
    with pytest.raises(ValueError, match=r"journal.log is damaged") as error:
        Tuner(tmp_path, plan(), 1, Display(), Here)
    assert "\n" not in str(error.value)


# --- the search space -------------------------------------------------------------------------------------------------


def test_a_space_is_data_from_words_or_files(tmp_path: Path) -> None:
    words = (
        "actor-learning-rate=log:1e-4:1e-2",
        "batch_size=4:16",
        "hidden=[8],[16,16]",
        "algo_options.noise_clip=0:1",
    )
    expected = {
        "actor_learning_rate": Range(1e-4, 1e-2, True),
        "batch_size": Range(4, 16, False, True),
        "hidden": Choice(([8], [16, 16])),
        "algo_options.noise_clip": Range(0.0, 1.0),
    }
    assert space_of(words, None, BASE) == expected
    data = {name: part.as_json() for name, part in expected.items()}
    (tmp_path / "space.json").write_text(json.dumps(data))
    assert space_of((), tmp_path / "space.json", BASE) == expected
    (tmp_path / "space.toml").write_text("batch_size = {low = 4, high = 16}\nhidden = {choices = [[8], [16, 16]]}\n")
    assert space_of(words[:1], tmp_path / "space.toml", BASE).keys() == {"batch_size", "hidden", "actor_learning_rate"}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((), "there is nothing to search"),
        (("gamma=0.9:0.99", "gamma=0.5,0.6"), "--search names gamma twice"),
        (("gamma",), "--search wants an option and its values"),
        (("gama=0.9:1",), "unknown option to search 'gama': did you mean 'gamma'"),
        (("seed=0:5",), "seed cannot be searched: all trials share it"),
        (("gamma=0.9:high",), "are not two numbers"),
        (("gamma=0.9:0.95:0.99",), "a range has two ends"),
        (("gamma=0.99:0.9",), "needs a low end that is below the high one"),
        (("actor_learning_rate=log:0:1",), "needs a low end above zero"),
        (("gamma=0.9:1.5",), r"the search space has gamma = 1.5: --gamma must lie in \[0, 1\]"),
        (("batch_size=4.5:8",), "batch_size is a whole number"),
        (("hidden=8,16",), "option 'hidden' has a value of the wrong kind: 8"),
        (("readout=rate,nothing",), "option 'readout' has a value of the wrong kind: 'nothing'"),
    ],
)
def test_mistakes_in_a_space_are_one_sentence(words: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence) as error:
        space_of(words, None, replace(BASE, method="care-bn") if "readout" in str(words) else BASE)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "text", ["", "[1]", '{"gamma": 3}', '{"gamma": {"choices": []}}', '{"gamma": {"low": NaN, "high": 1}}']
)
def test_files_that_hold_no_space_are_one_sentence(text: str, tmp_path: Path) -> None:
    path = tmp_path / "space.json"
    path.write_text(text)
    with pytest.raises(ValueError, match="space") as error:
        space_of((), path, BASE)
    assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match="cannot be read: No such file"):
        space_of((), tmp_path / "none.json", BASE)


# --- the commands -----------------------------------------------------------------------------------------------------

WORDS = shlex.split(
    "--env-id InvertedPendulum-v4 --method ann --total-timesteps 40 --learning-starts 10 --hidden 8 --batch-size 8 "
    "--eval-interval 10 --eval-episodes 1 --checkpoint-interval 20 --recalibration-batches 1 --quiet"
)


@pytest.mark.slow
def test_a_tuning_that_is_killed_goes_on_and_training_takes_its_result(
    carebn: Callable[..., Said], warm: Warm, tmp_path: Path
) -> None:
    words = ["tune", *WORDS, "--search", "gamma=0.9:0.999", "--trials", "4", "--workers", "1"]
    said = carebn(*words, "--run-dir", "whole")
    assert (said.code, said.err) == (0, "")
    assert "4 trials: 4 complete" in said.out
    assert "next: carebn train --config whole/best.json --run-dir runs/tuned" in said.out
    for lines in (1, 6):  # of the journal: one is there when the tuning begins, and several at the end of each trial
        process = warm.start([*words, "--run-dir", "killed"], tmp_path)
        journal, until = tmp_path / "killed" / JOURNAL, time.monotonic() + 200
        while not journal.exists() or journal.read_bytes().count(b"\n") <= lines:
            assert time.monotonic() < until
            time.sleep(0.02)
        process.kill()
    assert carebn(*words, "--run-dir", "killed").code == 0
    for name in (TRIALS, BEST):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert carebn(*words, "--run-dir", "whole", "--at-a-time", "2").code == 1
    said = carebn("train", "--config", "whole/best.json", "--run-dir", "tuned", "--quiet")
    assert said.code == 0
    best = json.loads((tmp_path / "whole" / BEST).read_text())
    made = json.loads((tmp_path / "tuned" / "config.json").read_text())
    assert {name: made[name] for name in best} == best
    assert "this run is complete" in carebn("train", "--config", "whole/best.json", "--run-dir", "tuned", "--quiet").out
    said = carebn("train", "--config", "whole/best.json", "--run-dir", "tuned", "--gamma", "0.5")
    assert "holds a run with another configuration: gamma" in said.err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("--search gamma=0.9:0.99 --gamma 0.9", "gamma is searched, so --gamma would have no effect"),
        ("--search batch-size=4,8", "batch_size is searched, so --batch-size would have no effect"),
        (
            "--search algo_options.noise_clip=0:1 --algo-options noise_clip=0.3",
            "algo_options.noise_clip is searched, so --algo-options noise_clip=… would have no effect",
        ),
    ],
)
def test_an_option_that_is_both_fixed_and_searched_is_one_sentence(
    words: str, sentence: str, carebn: Callable[..., Said], tmp_path: Path
) -> None:
    said = carebn("tune", *WORDS, *words.split(), "--run-dir", "tuning")
    assert said.code == 1
    assert said.err == f"carebn: {sentence}; leave out one of the two\n"
    assert not (tmp_path / "tuning").exists()


@pytest.mark.slow
def test_what_is_searched_may_stand_in_a_file_of_options(carebn: Callable[..., Said], tmp_path: Path) -> None:
    (tmp_path / "options.json").write_text('{"gamma": 0.9}')
    words = ["--config", "options.json", "--search", "gamma=0.5:0.6", "--trials", "1", "--workers", "1"]
    assert carebn("tune", *WORDS, *words, "--run-dir", "tuning").code == 0
    assert json.loads((tmp_path / "tuning" / TRIALS).read_text())[0]["values"]["gamma"] < 0.7


def test_the_command_line_wins_over_a_file_of_options(carebn: Callable[..., Said], tmp_path: Path) -> None:
    (tmp_path / "options.json").write_text(json.dumps({
        "env_id": "InvertedPendulum-v4", "method": "ann", "total_timesteps": 3e1, "learning_starts": 10, "hidden": [8],
        "batch_size": 8, "eval_interval": 30, "eval_episodes": 1, "recalibration_batches": 1, "gamma": 0.9, "seed": 3,
    }))  # fmt: skip
    said = carebn("train", "--config", "options.json", "--gamma", "0.8", "--run-dir", "run", "--quiet")
    assert said.code == 0, said.err
    made = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (made["gamma"], made["seed"], made["total_timesteps"], made["hidden"]) == (0.8, 3, 30, [8])
    said = carebn("train", "--config", "run/config.json", "--run-dir", "again", "--quiet")  # a run's own is one too
    assert said.code == 0, said.err
    assert (tmp_path / "again" / "config.json").read_bytes() == (tmp_path / "run" / "config.json").read_bytes()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (None, "--config options.json cannot be read: No such file or directory"),
        ("gamma = 0.9", "--config options.json does not hold options as JSON"),
        ("[]", "--config options.json does not hold options as JSON: it holds a list"),
        ('{"gama": 0.9}', "--config options.json: unknown option 'gama': did you mean 'gamma'?"),
        ('{"run_dir": "x"}', "--config options.json: unknown option 'run_dir'"),
        ('{"gamma": "high"}', "--config options.json: option 'gamma' has a value of the wrong kind: 'high'"),
        ('{"gamma": 2}', "--gamma must lie in [0, 1], got 2"),
        ('{"import_modules": ["evil"]}', "options.json names code of your own (evil), and nothing is imported"),
        ('{"threads": "all"}', "option 'threads' has a value of the wrong kind"),
    ],
)
def test_files_of_options_that_cannot_be_meant(
    text: str | None, sentence: str, carebn: Callable[..., Said], tmp_path: Path
) -> None:
    if text is not None:
        (tmp_path / "options.json").write_text(text)
    said = carebn("train", "--config", "options.json", "--total-timesteps", "10")
    assert said.code == 1
    assert said.err.startswith("carebn: ")
    assert sentence in said.err
    assert said.err.count("\n") == 1

"""``carebn tune``."""

import hashlib
import signal
import sys
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rich.table import Table

from carebn.commands import train
from carebn.commands.config_file import FromFile, with_file
from carebn.limits import check_most
from carebn.show.outputs import writable_directory
from carebn.show.terminal import print_table, terminal
from carebn.training import TrainConfig
from carebn.training.files import as_json
from carebn.training.identity import named_options
from carebn.training.lock import lock
from carebn.training.own_code import register

if TYPE_CHECKING:
    from carebn.tuning.tuner import Tuner

MOST_TRIALS, MOST_AT_A_TIME = 100_000, 1000
SHOWN = 5  # of the best trials


@dataclass(frozen=True)
class Tune(FromFile):
    """Search for good options. Every trial is a run of carebn train with the options given here and some that are
    searched; runs that stay behind are given up. Running the same command again goes on where it stopped."""

    search: tuple[str, ...] = ()
    """Options to try, each as NAME=LOW:HIGH, NAME=log:LOW:HIGH or NAME=A,B,C: actor_learning_rate=log:1e-4:1e-2."""
    space: Path | None = None
    """The same from a JSON or TOML file: {"gamma": {"low": 0.9, "high": 0.99}, "hidden": {"choices": [[8], [256]]}}."""
    trials: int = 20
    """Trials in all. With more the same tuning goes on."""
    at_a_time: int = 1
    """Trials of a round, side by side; what they find is known from the next round on. Part of the tuning: with another
    number, other values are tried."""
    score: Literal["max", "last", "final", "area"] = "max"
    """A trial's score: its best evaluation, the mean of its last ten, the last one, or the mean height of its curve."""
    prune: bool = True
    """Give a run up that has, by an evaluation, never been as good as the median of earlier trials there."""
    on: Literal["local", "ray", "slurm"] = "local"
    """Processes on this machine, a Ray cluster, or Slurm (through submitit)."""
    workers: int | None = None
    """Runs at a time. Default: as many as cores; on a cluster as many as fit."""
    address: str | None = None
    """Of a Ray cluster (HOST:PORT or auto; default: one is started here). For Slurm, local tries it without Slurm."""
    slurm: tuple[str, ...] = ()
    """Options for Slurm jobs as NAME=VALUE: partition=long mem_gb=8 timeout_min=600."""


Config = Tune
TUNING = ("search", "space", "trials", "at_a_time", "score", "prune", "on", "workers", "address", "slurm")
GROUPS = {**train.GROUPS, "tuning": TUNING}
DEFAULTS = {**train.DEFAULTS, "run_dir": "tuning/ and a name made from the configuration"}


def resumed(config: Tune, words: list[str]) -> Tune:
    """With what a file of options says, unless the command line names or searches it."""
    from carebn.tuning.space import check_not_fixed, described_space

    searched = described_space(config.search, config.space)
    check_not_fixed(searched, named_options(words), config.algo_options)
    found = with_file(config, words)
    return replace(config, **{f.name: getattr(found, f.name) for f in fields(found)})


def run(config: Tune) -> int:
    from carebn.study.sweep.display import SweepDisplay
    from carebn.study.sweep.executors import EXECUTORS
    from carebn.study.sweep.place import Executor, Place
    from carebn.tuning.history import require_optuna
    from carebn.tuning.space import space_of
    from carebn.tuning.tuner import RUNS, Plan, Tuner, claim

    _check_counts(config)
    require_optuna()
    base = TrainConfig(**{f.name: getattr(config, f.name) for f in fields(TrainConfig)})
    register(base, True)
    base.checked()
    plan = Plan(base, space_of(config.search, config.space, base), config.at_a_time, config.score, config.prune)
    directory = config.run_dir or Path("tuning") / _name(base, plan.as_json())
    writable_directory(directory, "--run-dir")
    with lock(directory):
        claim(directory, plan)

        def executor() -> Executor:
            place = Place(config.on, config.workers, config.address, config.slurm, directory / RUNS)
            made = EXECUTORS[place.on](place)
            for number in (signal.SIGINT, signal.SIGTERM):  # even if a shell that put us in the background ignores it
                signal.signal(number, signal.default_int_handler)
            return made

        with SweepDisplay(quiet=config.quiet, closing=False) as display:
            tuner = Tuner(directory, plan, config.trials, display, executor)
            whole = tuner.run()
    if not whole:
        print(f"stopped after {_finished(tuner)} of {config.trials} trials: the same command goes on from here")
        return 130
    return _result(tuner, directory)


def _result(tuner: "Tuner", directory: Path) -> int:
    from carebn.tuning.history import best_of
    from carebn.tuning.tuner import BEST, shown

    trials = tuner.history.trials()
    best = best_of(trials)
    if best is None:
        failed = next((trial.message for trial in trials if trial.message), "none was complete")
        print(f"carebn: no trial has a score: {failed}", file=sys.stderr)
        return 1
    table = Table(box=None, pad_edge=False)
    for column in ("trial", "score", *tuner.plan.space):
        table.add_column(column, justify="right")
    complete = [trial for trial in trials if trial.score is not None]
    for trial in sorted(complete, key=lambda trial: (-(trial.score or 0.0), trial.number))[:SHOWN]:
        values = [shown(trial.values[name]) for name in tuner.plan.space]
        table.add_row(str(trial.number), f"{trial.score:.1f}", *values)
    print_table(terminal(), table)
    states = {state: sum(trial.state == state for trial in trials) for state in ("complete", "pruned", "failed")}
    print(f"{len(trials)} trials: " + ", ".join(f"{number} {state}" for state, number in states.items() if number))
    print(f"next: carebn train --config {directory / BEST} --run-dir runs/tuned")
    return 0


def _finished(tuner: "Tuner") -> int:
    return sum(trial.state != "open" for trial in tuner.history.trials())


def _name(base: TrainConfig, plan: object) -> str:
    digest = hashlib.sha256(as_json(plan)).hexdigest()[:8]
    return "__".join([base.env_id.replace("/", "-"), base.algo, base.method, digest])


def _check_counts(config: Tune) -> None:
    for name, value in (("trials", config.trials), ("at-a-time", config.at_a_time), ("workers", config.workers)):
        if value is not None and value < 1:
            raise ValueError(f"--{name} must be at least 1, got {value}")
    check_most("--trials", config.trials, MOST_TRIALS)
    check_most("--at-a-time", config.at_a_time, MOST_AT_A_TIME)

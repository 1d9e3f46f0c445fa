"""A tuning from its first trial to its result: rounds of trials, each a sweep, on any executor.

Trials of a round do not know of each other's results. So what is tried, and at which bars a run is given up, follows
from the rounds before alone, and a tuning that was killed goes on to the same trials.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from carebn.checksums import read_sealed, sealed
from carebn.study.bars import Bars, given_up_at
from carebn.study.evidence.runs import DamagedRun, read_run
from carebn.study.evidence.scores import SCORES
from carebn.study.sweep.jobs import DONE, GIVEN_UP, STOPPED, Display, Job, Sweep
from carebn.study.sweep.place import Executor
from carebn.training.config import TrainConfig
from carebn.training.files import as_json, write_atomically
from carebn.training.record import read_rows
from carebn.tuning.history import COMPLETE, FAILED, OPEN, PRUNED, History, Trial, as_rows, best_of
from carebn.tuning.space import Space, applied

PLAN, JOURNAL, TRIALS, BEST, RUNS = "tuning.json", "journal.log", "trials.json", "best.json", "runs"
FEWEST = 4  # trials that must have come as far before one is given up for being below their median


@dataclass(frozen=True)
class Plan:
    """What a tuning is. The number of trials is not part of it: with more the same tuning goes on."""

    base: TrainConfig
    space: Space
    at_a_time: int = 1
    score: str = "max"
    prune: bool = True

    def as_json(self) -> dict[str, Any]:
        return {
            "base": {**self.base.as_json(), "measure": list(self.base.measure)},
            "space": {name: part.as_json() for name, part in self.space.items()},
            "at_a_time": self.at_a_time,
            "score": self.score,
            "prune": self.prune,
        }


def claim(directory: Path, plan: Plan) -> None:
    """The directory is this tuning's; one that holds something else is refused."""
    path, ours = directory / PLAN, plan.as_json()
    if not path.exists():
        write_atomically(path, sealed(ours))
        return
    theirs = read_sealed(path)
    flat = [{**plan, **plan.get("base", {}), **plan.get("space", {})} for plan in (theirs, ours)]
    different = [
        f"{name} is {flat[0].get(name)!r} there and {flat[1].get(name)!r} here"
        for name in flat[0] | flat[1]
        if name not in ("base", "space") and flat[0].get(name) != flat[1].get(name)
    ]
    if different:
        raise ValueError(f"{directory} holds another tuning: {', '.join(different)}; choose another --run-dir")


def bars_from(trials: list[Trial]) -> Bars:
    """At each evaluation but the last: the median of what earlier trials had there."""
    reached: dict[int, list[float]] = {}
    for trial in trials:
        for step, value in trial.curve.items():
            reached.setdefault(step, []).append(value)
    last = max(reached, default=0)
    return [(step, median(values)) for step, values in sorted(reached.items()) if len(values) >= FEWEST and step < last]


class Tuner:
    def __init__(self, directory: Path, plan: Plan, trials: int, display: Display, executor: Callable[[], Executor]):
        """``executor`` makes one, if there is anything left to train."""
        self.directory, self.plan, self.number, self.display = directory, plan, trials, display
        self._make_executor = executor
        self.history = History(directory / JOURNAL, plan.space, plan.base.seed)

    def run(self) -> bool:
        """Until there are as many trials as wanted; False: it was stopped, and goes on when it is started again."""
        executor: Executor | None = None
        try:
            while (numbers := self._round()) is not None:
                executor = executor or self._make_executor()
                if not self._carry_out(numbers, executor):
                    return False
                self.write_results()
        finally:
            if executor is not None:
                executor.close()
        self.write_results()
        return True

    def _round(self) -> range | None:
        """The numbers of the trials of the next round that is not over; None: there are enough."""
        trials = self.history.trials()
        first = next((trial.number for trial in trials if trial.state == OPEN), len(trials))
        start = first - first % self.plan.at_a_time
        return range(start, min(start + self.plan.at_a_time, self.number)) if first < self.number else None

    def _carry_out(self, numbers: range, executor: Executor) -> bool:
        before = self.history.trials()[: numbers.start]
        trials = self.history.trials()[numbers.start : numbers.stop]
        while len(trials) < len(numbers):
            known = [*before, *(Trial(trial.number, trial.values) for trial in trials)]
            trials.append(self.history.begin(known))
        bars = bars_from(before) if self.plan.prune else ()
        left = [trial for trial in trials if trial.state == OPEN]
        configs = {trial.number: applied(self.plan.base, trial.values).checked() for trial in left}
        sweep = Sweep(list(configs.values()), self.directory / RUNS, self.display, bars)
        if sweep.open_jobs:
            sweep.run(executor)
        jobs = {job.name: job for job in sweep.jobs}
        if sweep.stopping or any(job.state == STOPPED for job in sweep.jobs):
            return False
        for trial in left:
            ended = self._ended(trial, jobs[configs[trial.number].name()], bars)
            self.history.end(ended)
            self._tell(ended)
        return True

    def _ended(self, trial: Trial, job: Job, bars: Bars) -> Trial:
        until = given_up_at(job.directory, bars) if job.state == GIVEN_UP else None
        rows = [row for row in read_rows(job.directory / "metrics.jsonl") if "eval/mean_return" in row]
        curve = {row["step"]: row["eval/mean_return"] for row in rows if until is None or row["step"] <= until}
        if job.state == GIVEN_UP:
            return Trial(trial.number, trial.values, PRUNED, None, curve)
        if job.state == DONE:
            try:
                score = SCORES[self.plan.score].of(read_run(job.directory))
                return Trial(trial.number, trial.values, COMPLETE, float(score), curve)
            except DamagedRun as damage:
                return Trial(trial.number, trial.values, FAILED, None, {}, str(damage))
        return Trial(trial.number, trial.values, FAILED, None, {}, job.message)

    def _tell(self, trial: Trial) -> None:
        best = best_of(self.history.trials())
        what = {
            COMPLETE: f"score {trial.score:.1f}" if trial.score is not None else "",
            PRUNED: f"given up at step {max(trial.curve, default=0):,}, below the median of the others",
            FAILED: f"failed: {trial.message}",
        }[trial.state]
        values = ", ".join(f"{name} = {shown(value)}" for name, value in trial.values.items())
        record = "" if best is None else f"; best {best.score:.1f}, of trial {best.number}"
        self.display.say(f"trial {trial.number}: {values}: {what}{record}")

    def write_results(self) -> None:
        trials = self.history.trials()
        write_atomically(self.directory / TRIALS, as_json(as_rows(trials)))
        best = best_of(trials)
        if best is not None:
            write_atomically(self.directory / BEST, as_json(self.options_of(best)))

    def options_of(self, trial: Trial) -> dict[str, Any]:
        """What ``carebn train --config`` takes."""
        return given_options(applied(self.plan.base, trial.values))


def given_options(config: TrainConfig) -> dict[str, Any]:
    """All that differs from the defaults; what is left open stays open, for another budget gives it other values."""
    default, named = TrainConfig().as_json(), config.as_json()
    always = ("env_id", "algo", "method")
    return {name: value for name, value in named.items() if name in always or value != default.get(name)}


def shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)

"""How long a sweep will take: from the speed of runs that exist, or else of short runs made now."""

import tempfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from carebn.study.evidence.runs import RunRecord
from carebn.study.sweep.jobs import DONE, Job, newest_checkpoint
from carebn.study.worker import Order, train_cell
from carebn.training.config import TrainConfig
from carebn.training.record import read_rows

TRIAL_STEPS = 400  # of the short run, half of them to get warm

Key = tuple[str, str, str, int, tuple[int, ...], int]


@dataclass(frozen=True)
class Speed:
    """Seconds per step of training, and per evaluation."""

    step: float
    evaluation: float
    source: str  # for people: where it comes from

    def seconds(self, job: Job) -> float:
        """What is left of a run."""
        steps = job.total - newest_checkpoint(job.directory)
        return steps * self.step + steps / job.config.eval_interval * self.evaluation


def _key(config: TrainConfig) -> Key:
    assert config.batch_size is not None  # filled in: the configuration was checked
    return config.algo, config.method, config.neuron, config.time_steps, config.hidden, config.batch_size


def recorded_speeds(records: Iterable[RunRecord]) -> dict[Key, Speed]:
    """Of runs that exist: all their time, evaluations included, divided by their steps."""
    found: dict[Key, list[float]] = defaultdict(list)
    for run in records:
        if run.speed:
            time_steps = int(run.config.get("time_steps", TrainConfig.time_steps))
            sizes = tuple(run.config.get("hidden", TrainConfig.hidden)), int(run.config.get("batch_size", 0))
            found[run.algo, run.method, run.neuron, time_steps, *sizes].append(1 / run.speed)
    return {key: Speed(fmean(seconds), 0.0, "runs that exist") for key, seconds in found.items()}


def measured_speed(config: TrainConfig) -> Speed:
    """Of a short run made now, in a directory that is thrown away."""
    half = TRIAL_STEPS // 2
    trial = replace(
        config, total_timesteps=TRIAL_STEPS, learning_starts=2, eval_interval=half, checkpoint_interval=TRIAL_STEPS
    )
    with tempfile.TemporaryDirectory() as scratch:
        outcome = train_cell(Order(trial.as_json(), str(Path(scratch) / "run")))
        rows = read_rows(Path(scratch) / "run" / "timing.jsonl")
    if outcome.state != "done" or len(rows) < 2:
        raise ValueError(f"the speed could not be measured: {outcome.message or outcome.state}")
    before, after = rows[-2:]  # compiling, if any, came before
    spent = {name: after[name] - before[name] for name in after if name.startswith("time/")}
    evaluation = spent["time/evaluation"] + spent["time/recalibration"]
    step = (spent["time/elapsed"] - evaluation - spent["time/checkpoint"]) / half
    return Speed(step, evaluation, f"a short run of {config.title()} made now")


@dataclass(frozen=True)
class Estimate:
    seconds: float  # of one core
    sources: tuple[str, ...]
    rate: float  # steps per second, on average


def estimate(jobs: Sequence[Job], records: Iterable[RunRecord]) -> Estimate:
    """For all that is left to do. What nobody has run yet is taken to be as fast as a short run: one of a spiking
    network, one of an ordinary one, as far as there are such."""
    speeds = recorded_speeds(records)
    left = [job for job in jobs if job.state != DONE]
    trials: dict[bool, Speed] = {}
    used, seconds, steps = [], 0.0, 0
    for job in left:
        spiking = job.config.neuron != "none"
        speed = speeds.get(_key(job.config)) or trials.get(spiking)
        if speed is None:
            speed = trials[spiking] = measured_speed(job.config)
        seconds += speed.seconds(job)
        steps += job.total - newest_checkpoint(job.directory)
        used.append(speed.source)
    return Estimate(seconds, tuple(dict.fromkeys(used)), steps / seconds if seconds else 0.0)

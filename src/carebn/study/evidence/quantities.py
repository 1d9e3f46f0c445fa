"""One number for one run, whatever a claim is about: returns, exploration, distances, time, energy."""

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from carebn.study.evidence.measured import energy_of, whole_energy_of
from carebn.study.evidence.runs import RunRecord
from carebn.study.evidence.scores import SCORES

STRETCHES = 50  # of training, each with one voice, in the mean return of exploring


class Quantity(NamedTuple):
    title: str
    of: Callable[[RunRecord], float | None]  # None: the run does not say
    more_is_better: bool = True
    lacking: str = ""  # what to say, and do, where no run tells


def exploration(run: RunRecord) -> float | None:
    """The mean return of training episodes: over equal stretches of training, so that many short ones do not outvote
    few long ones."""
    _, means = episodes_by_stretch(run, STRETCHES)
    return float(np.mean(means)) if means else None


def episodes_by_stretch(run: RunRecord, number: int) -> tuple[list[float], list[float]]:
    """Where each of so many equal stretches of training ends, and the mean return of the episodes that ended in it; a
    stretch without any is absent."""
    width = run.total / number
    place = np.clip((np.asarray(run.episode_steps) - 1) // width, 0, number - 1).astype(int)
    count = np.bincount(place, minlength=number)
    total = np.bincount(place, run.episode_returns, minlength=number)
    filled = np.flatnonzero(count)
    return ((filled + 1) * width).tolist(), (total[filled] / count[filled]).tolist()


def distance(run: RunRecord, layer: int | None = None, when: str = "before") -> float | None:
    """The Wasserstein distance of believed to true statistics, averaged over evaluations: of a layer, or over all."""
    rows = [row[when] for row in run.measures.get("wasserstein", [])]
    if layer is not None:
        rows = [values[layer : layer + 1] for values in rows]
    means = [float(np.mean(values)) for values in rows if len(values)]
    return float(np.mean(means)) if means and all(map(math.isfinite, means)) else None


def processor_time(run: RunRecord) -> float | None:
    """Milliseconds per step; what else the machine does counts little, unlike on the wall clock."""
    worked, steps = run.timing.processor_seconds, run.timing.steps
    return 1000 * worked / steps if worked and steps else None


def energy(run: RunRecord, of: Callable[[RunRecord], float | None] = energy_of) -> float | None:
    """A file about another policy, or of another kind, is as good as none here; tables of energy tell of it."""
    try:
        return of(run)
    except ValueError:
        return None


QUANTITIES = {
    **{name: Quantity(score.title, score.of) for name, score in SCORES.items()},
    "exploration": Quantity("mean return while exploring", exploration),
    "distance": Quantity("Wasserstein distance, mean of all layers, while exploring", distance, False),
    **{
        f"distance-{layer + 1}": Quantity(f"... layer {layer + 1} alone", partial(distance, layer=layer), False)
        for layer in range(3)
    },
    "distance-recalibrated": Quantity(
        "... in evaluations, after re-calibration", partial(distance, when="after"), False
    ),
    "processor-seconds": Quantity(
        "processor time per step, in ms",
        processor_time,
        False,
        "no task has runs of both sides that tell their processor time: `timing.jsonl` did not have it when they were "
        "made",
    ),
    "energy": Quantity(
        "energy per decision, in nJ: synapses, the paper's prices",
        energy,
        False,
        "no task has runs of both sides with an energy.json; carebn energy RUN makes it",
    ),
    "whole-energy": Quantity("... with encoder, membranes and decoder", partial(energy, of=whole_energy_of), False),
}

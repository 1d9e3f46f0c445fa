"""What a run tells while it trains, and how it can be told to stop. Listening changes nothing in it.

    training_start      the directory is open, nothing is made yet
    before_step, step   around each step of all environments; ``event.step`` counts the steps of each one of them
    before_evaluation, evaluation
    checkpoint          the run has just been saved
    training_end        everything is saved: after the last step, or after whatever stopped the run

A callback is a function that gets every event, or an object with any of the methods ``on_training_start``,
``on_step``, ... Returning False stops the run there: it saves itself, and resumes as if it had not been stopped.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

Kind = Literal["training_start", "before_step", "step", "before_evaluation", "evaluation", "checkpoint", "training_end"]
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True)
class Event:
    """Numbers, not the run's own objects: nothing that is done with them reaches it."""

    kind: Kind
    step: int
    total_timesteps: int
    run_dir: Path
    reward: float  # of the last step; of several environments the mean
    losses: dict[str, float]  # as last computed
    mean_return: float | None  # of the last evaluation
    best_return: float | None  # of all evaluations


Callback = Callable[[Event], Any] | Any  # or an object with some of the methods, or a list of such
Hear = Callable[[Event], Any]
Listeners = dict[Kind, list[Hear]]  # a kind that nobody listens to is not there, so that it costs nothing


def listeners(callback: Callback | None) -> Listeners:
    """Who is to hear of what."""
    if callback is None:
        return {}
    if isinstance(callback, (list, tuple)):
        each = [listeners(one) for one in callback]
        return {
            kind: [hear for one in each for hear in one.get(kind, [])]
            for kind in KINDS
            if any(kind in one for one in each)
        }
    methods = {kind: method for kind in KINDS if callable(method := getattr(callback, f"on_{kind}", None))}
    if methods:
        return {kind: [method] for kind, method in methods.items()}
    if not callable(callback):
        names = ", ".join(f"on_{kind}" for kind in KINDS)
        raise ValueError(f"a callback is a function, or an object with {names}; got a {type(callback).__name__}")
    return {kind: [callback] for kind in KINDS}


def may_go_on(hearing: list[Hear], event: Event) -> bool:
    """Whether none of them says that it is enough; every one hears it."""
    answers = [hear(event) for hear in hearing]
    return not any(isinstance(answer, (bool, np.bool_)) and not answer for answer in answers)

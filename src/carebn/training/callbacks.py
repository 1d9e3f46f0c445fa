"""What a run tells while it trains: each step, evaluation and checkpoint. Listening changes nothing in it.

A callback is a function that gets every event, or an object with any of ``on_step``, ``on_evaluation`` and
``on_checkpoint``. Returning False stops the run at that step: it saves itself, and can be resumed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

Kind = Literal["step", "evaluation", "checkpoint"]
KINDS: tuple[Kind, ...] = ("step", "evaluation", "checkpoint")


@dataclass(frozen=True)
class Event:
    """Numbers, not the run's own objects: nothing that is done with them reaches it."""

    kind: Kind
    step: int
    total_timesteps: int
    run_dir: Path
    reward: float  # of this step
    losses: dict[str, float]  # as last computed
    mean_return: float | None  # of the last evaluation
    best_return: float | None  # of all evaluations


Callback = Callable[[Event], Any] | Any  # or an object with some of the three methods
Listener = Callable[[Event], bool]


def listener(callback: Callback | None) -> Listener | None:
    """Says of an event whether the run may go on; None where nobody listens."""
    if callback is None:
        return None
    if isinstance(callback, (list, tuple)):
        each = [hear for hear in map(listener, callback) if hear is not None]
        return lambda event: not [hear for hear in each if not hear(event)]  # every one hears it
    methods = {kind: getattr(callback, f"on_{kind}", None) for kind in KINDS}
    if not any(callable(method) for method in methods.values()):
        if not callable(callback):
            names = ", ".join(f"on_{kind}" for kind in KINDS)
            raise ValueError(f"a callback is a function, or an object with {names}; got a {type(callback).__name__}")
        methods = dict.fromkeys(KINDS, callback)

    def hear(event: Event) -> bool:
        method = methods[event.kind]
        answer = None if method is None else method(event)
        return not (isinstance(answer, (bool, np.bool_)) and not answer)

    return hear

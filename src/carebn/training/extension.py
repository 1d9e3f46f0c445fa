"""Where a run may go on from, however long it was meant to be when it got there.

A run given more steps ends as one that had them from the start. The only thing that a run does because it ends is the
evaluation after its last step; when that is not one of the regular ones, a longer run goes on from before it.
"""

import json
from pathlib import Path

from carebn.training.checkpoint import Check, Damaged, NotOnTheWay, Snapshot
from carebn.training.config import TrainConfig
from carebn.training.files import sha256
from carebn.training.schedule import reaches

EVALUATION = b'"eval/mean_return"'


def last_evaluation(metrics: bytes) -> int:
    """The step of the last evaluation in these lines; 0: there is none."""
    found = metrics.rfind(EVALUATION)
    if found < 0:
        return 0
    start = metrics.rfind(b"\n", 0, found) + 1
    return int(json.loads(metrics[start : metrics.index(b"\n", found)])["step"])


def is_on_schedule(step: int, config: TrainConfig) -> bool:
    """Whether a run is evaluated after this step also if it goes on."""
    return reaches(step, config.eval_interval, config.num_envs)


def resumable_check(metrics: Path, config: TrainConfig) -> Check:
    """Whether a checkpoint vouches for the metrics as they are, and whether the run passes through it."""
    data = metrics.read_bytes() if metrics.exists() else b""

    def check(step: int, snapshot: Snapshot) -> None:
        state = snapshot.state
        try:
            length, digest = int(state["metrics_bytes"]), state.get("metrics_sha256")  # earlier versions have no digest
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise Damaged("its state is not that of a run") from error
        if len(data) < length:
            raise Damaged(f"{metrics} is {'shorter than it was' if data else 'missing'}")
        if digest is not None and sha256(data[:length]) != digest:
            raise Damaged(f"{metrics} does not match its checksum")
        try:
            evaluated = last_evaluation(data[:length]) == step
        except (ValueError, KeyError, TypeError) as error:
            raise Damaged(f"{metrics} cannot be read") from error
        if step == config.total_timesteps and not evaluated and not state.get("evaluation_due"):
            raise NotOnTheWay("the run ends there now, and was not evaluated")
        if step < config.total_timesteps and evaluated and not is_on_schedule(step, config):
            raise NotOnTheWay("it is the end of a shorter run, with an evaluation that this one does not make")

    return check

"""Where an exported policy comes from: read from its run, carried by every exported file."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete

from carebn import __version__
from carebn.checksums import Vouched
from carebn.conversion.converted import Converted
from carebn.deploy.pieces import pieces_of
from carebn.training.flat import flat_space, is_flat
from carebn.training.kept import kept_step
from carebn.training.policy import Policy


def origin_of(policy: Policy, run_dir: Path | None = None, step: int | None = None) -> dict[str, Any]:
    """In words of JSON. ``step``: after how many steps of its run the policy was saved; None: at the last checkpoint.

    What is not known is not there.
    """
    config = policy.config
    origin: dict[str, Any] = {
        "carebn": __version__,
        "environment": config.env_id,
        "algorithm": config.algo,
        "method": config.method,
        "seed": config.seed,
    }
    if config.neuron not in ("none", "default"):
        origin["neuron"] = config.neuron
    if policy.own is not None:
        observation, action = policy.own
        origin["observation"] = _bounds(flat_space(observation, config.env_id))
        if not is_flat(observation):
            origin["observation"]["pieces"] = pieces_of(observation)
        if isinstance(action, Discrete) and action.start != 0:
            origin["first_action"] = int(action.start)  # the environment's name for what is exported as action 0
    if run_dir is not None:
        origin["run"] = run_dir.resolve().name
        converted = isinstance(policy.network, Converted)
        step = config.total_timesteps if converted else step if step is not None else _last_checkpoint(run_dir)
        if step is not None:
            origin["trained_steps"] = step
        origin |= _return_when_converted(run_dir) if converted else _return_at(run_dir, step)
    return origin


def _last_checkpoint(run_dir: Path) -> int | None:
    directory = run_dir / "checkpoint"
    steps = [int(path.name) for path in directory.iterdir() if path.name.isdigit()] if directory.is_dir() else []
    return max(steps, default=kept_step(run_dir))


def _return_at(run_dir: Path, step: int | None) -> dict[str, Any]:
    """Of the evaluation of this very policy; one at another step was of another policy."""
    if step is None:
        return {}
    found: dict[str, Any] = {}
    start = f'{{"step": {step}, "eval/mean_return": '.encode()
    for line in Vouched(run_dir).log("metrics.jsonl").splitlines():
        if line.startswith(start):
            found = _return(line, "eval/mean_return", f"the evaluation at step {step:,}")
    return found


def _return_when_converted(run_dir: Path) -> dict[str, Any]:
    Vouched(run_dir).check("evaluation.json")
    path = run_dir / "evaluation.json"
    return _return(path.read_bytes(), "mean_return", "the evaluation after conversion") if path.is_file() else {}


def _return(text: bytes, name: str, where: str) -> dict[str, Any]:
    try:
        return {"mean_return": float(json.loads(text)[name]), "return_of": where}
    except (ValueError, TypeError, KeyError, RecursionError):
        return {}  # of an earlier version, which vouched for nothing; nothing depends on it


def _bounds(space: Box) -> dict[str, Any]:
    """Lowest and highest values, None where there is no bound."""
    sides = {"low": space.low.ravel(), "high": space.high.ravel()}
    return {
        name: [float(x) if np.isfinite(x) else None for x in side.astype(np.float64)] for name, side in sides.items()
    }

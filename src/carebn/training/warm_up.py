"""How long a run gathers transitions before it learns: as long a part of its budget as in the paper.

Resolved once, when a run is begun; its ``config.json`` keeps the numbers.
"""

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from carebn.paper.facts import STEPS
from carebn.training.schedule import updates_until

if TYPE_CHECKING:
    from carebn.training.config import TrainConfig


def warm_up(published: int, total_timesteps: int, batch_size: int) -> int:
    """The published number in a run as long as the paper's or longer; in a shorter one its share, but a batch."""
    share = round(published * total_timesteps / STEPS)
    return min(published, max(share, batch_size))


def as_begun(config: "TrainConfig") -> "TrainConfig":
    """A warm-up that the user leaves open is that of the run which the directory already holds."""
    if config.learning_starts is not None or config.run_dir is None:
        return config
    try:
        stored = json.loads((config.run_dir / "config.json").read_bytes())
        numbers = {name: stored[name] for name in ("learning_starts", "random_steps")}
    except (OSError, ValueError, KeyError, TypeError):
        return config  # no run, or one about which more will be said
    if not all(type(number) is int for number in numbers.values()):
        return config
    return replace(config, **{name: number for name, number in numbers.items() if getattr(config, name) is None})


def never_learns(config: "TrainConfig") -> str:
    """Why a complete configuration makes no update at all; an empty answer: it does."""
    assert config.learning_starts is not None
    assert config.update_interval is not None
    if updates_until(config, config.total_timesteps):
        return ""
    interval = config.update_interval
    every = "" if interval == 1 else f", with an update every {interval:,} (--update-interval)"
    if config.updates_per_step < 1:
        every += f", and {config.updates_per_step:g} updates a step (--updates-per-step)"
    return (
        f"this run would never learn: it ends after {config.total_timesteps:,} steps (--total-timesteps), and learning "
        f"starts after {config.learning_starts:,} (--learning-starts; by default at least a batch){every}; raise the "
        f"one or lower the other"
    )

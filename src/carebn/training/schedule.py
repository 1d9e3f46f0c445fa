"""When a run does what it does every so many steps. With several environments it moves by as many steps at once, so
what is due at a step happens after the step of all environments that reaches or passes it, and once if it passes two.
"""

from fractions import Fraction
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from carebn.training.config import TrainConfig


def reaches(step: int, interval: int, num_envs: int) -> bool:
    """Whether the step of all environments that ended here has reached a multiple of the interval."""
    return step % interval < num_envs


def rounded_up(steps: int, num_envs: int) -> int:
    """So many steps as whole steps of all environments."""
    return -(-steps // num_envs) * num_envs


def updates_until(config: "TrainConfig", step: int) -> int:
    """Updates that a run has made after so many steps: at each multiple of the interval, those of the interval."""
    assert config.learning_starts is not None
    assert config.update_interval is not None
    interval, per_step = config.update_interval, Fraction(repr(config.updates_per_step))  # the decimal that was meant
    first, last = (steps - steps % interval for steps in (config.learning_starts, step))
    return max(0, int(per_step * last) - int(per_step * first))

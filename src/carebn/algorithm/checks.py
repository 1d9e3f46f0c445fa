"""Bounds of an algorithm's options, for the ``__post_init__`` of their dataclass; what breaks one is a ValueError."""

from typing import Any


def check_at_least(options: Any, least: float, *names: str, most: float = float("inf")) -> None:
    for name in names:
        value = getattr(options, name)
        if not least <= value <= most:
            bounds = f"at least {least}" if most == float("inf") else f"between {least} and {most}"
            raise ValueError(f"{name} must be {bounds}, got {value}")


def check_above(options: Any, bound: float, *names: str) -> None:
    for name in names:
        value = getattr(options, name)
        if not value > bound:
            raise ValueError(f"{name} must be above {bound}, got {value}")

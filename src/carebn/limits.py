"""What nobody can have meant: sizes that the machine cannot hold, work without an end, numbers beyond float32."""

from typing import NamedTuple

from carebn.machine import memory

SMALLEST, LARGEST = 1.2e-38, 3.4e38  # of float32, where its precision is whole


class Most(NamedTuple):
    """The most that is done, and how much of it a machine does in a second."""

    number: int
    per_second: int


STEPS = Most(10_000_000_000, 1000)  # of training
EPISODES = Most(10_000, 100)  # played side by side, each in an environment of its own
BATCHES = Most(1_000_000, 1000)  # that thresholds or statistics are taken from
UPDATES = Most(1_000_000, 1000)  # at once
THREADS = 1024
ENVIRONMENTS = 1024  # that one run learns in at once
LARGEST_SEED = 2**64 - 1
TIME_STEPS = 100_000


def check_work(option: str, value: int, most: Most) -> None:
    if value > most.number:
        raise ValueError(
            f"{option} {number(value)} would take {spelled(value // most.per_second)}; at most {most.number:,} are done"
        )


def check_most(option: str, value: int, most: int) -> None:
    if value > most:
        raise ValueError(f"{option} must be at most {most:,}, got {number(value)}")


def check_episodes(episodes: int, seed: int = 0) -> None:
    """What commands that play are asked for: how many, and the seed of the first."""
    if episodes < 1:
        raise ValueError(f"--episodes must be at least 1, got {episodes}")
    check_work("--episodes", episodes, EPISODES)
    if seed < 0:
        raise ValueError(f"--seed must not be negative, got {seed}")
    check_most("--seed", seed, LARGEST_SEED)


def check_float32(option: str, value: float) -> None:
    """Above zero, and neither zero nor infinite in the type that networks compute in."""
    if not SMALLEST <= value <= LARGEST:
        raise ValueError(f"{option} must be above zero and within float32 ({SMALLEST:g} to {LARGEST:g}), got {value}")


def check_memory(what: str, needed: int, remedy: str) -> None:
    """``needed`` in bytes, against all that this machine has: what others occupy now may be free in a minute."""
    there = memory()
    if there is not None and needed > there:
        raise ValueError(f"{what} needs about {size(needed)} of memory, and there is {size(there)}; {remedy}")


def size(amount: int) -> str:
    """For people: ``3.1 GiB``."""
    return f"{amount / 2**20:,.0f} MiB" if amount < 2**30 else f"{number(amount // 2**30)} GiB"


def number(value: int) -> str:
    """For people; one that nobody would read to its end is told by its length."""
    return f"{value:,}" if abs(value) < 10**21 else f"10^{len(str(abs(value))) - 1}"


def spelled(seconds: int) -> str:
    """For people. Whole numbers only: this is about numbers that may be too large for any other kind."""
    hours = seconds // 3600
    if hours < 48:
        return f"about {hours} hours"
    days = hours // 24
    return f"about {days} days" if days < 1000 else f"{days // 365:,} years" if days < 10**9 else "millions of years"

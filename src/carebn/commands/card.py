"""``carebn card``."""

from dataclasses import dataclass
from pathlib import Path

import tyro

from carebn.commands.consent import Consent
from carebn.limits import check_episodes
from carebn.training.files import write_atomically
from carebn.zoo.card import NAME, card
from carebn.zoo.names import opened_by
from carebn.zoo.record import Record, record_of


@dataclass(frozen=True)
class Config(Consent):
    """Write the card of a trained policy, card.md in its directory: what it can do, what it costs, how to use it.

    Its return, firing rates, energy and latency are measured and kept in card.json, and taken from there as long as the
    policy is the same.
    """

    run: tyro.conf.Positional[Path]
    """Run directory, or a name of the zoo."""
    episodes: int | None = None
    """Noise-free episodes to measure the return in. More: a better mean. Default: as many as before, else 100."""
    max_steps: int | None = None
    """Longest episode. Default: as the run was evaluated (--eval-max-steps), else the environment's own
    max_episode_steps; where it has none, 108_000."""
    seeds_from: tuple[Path, ...] = ()
    """Directories with runs of other seeds. Default: those beside the run, of an entry of the zoo as before."""
    again: bool = False
    """Measure again what was measured before."""


def run(config: Config) -> int:
    if config.episodes is not None:
        check_episodes(config.episodes)
    if config.max_steps is not None and config.max_steps < 1:
        raise ValueError(f"--max-steps must be at least 1, got {config.max_steps}")
    record, measured = record_of(
        config.run,
        episodes=config.episodes,
        max_steps=config.max_steps,
        roots=config.seeds_from,
        again=config.again,
        trust=config.word,
    )
    path = config.run / NAME
    write_atomically(path, card(config.run, record, opened_by(config.run), trust=config.word).encode())
    print(return_line(record) if measured else f"{return_line(record)} (as measured before; --again measures anew)")
    print(f"card: {path}")
    return 0


def return_line(record: Record) -> str:
    result = record["measured"]["return"]
    return f"mean return {result['mean']:.1f} over {result['episodes']} episodes"

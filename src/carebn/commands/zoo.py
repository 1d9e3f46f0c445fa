"""``carebn zoo``."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro
from rich.table import Table

from carebn.commands.consent import Consent
from carebn.limits import check_episodes
from carebn.show.terminal import print_table, terminal
from carebn.zoo.names import entries, where, zoo_directory


@dataclass(frozen=True)
class Config(Consent):
    """List the trained policies that come with carebn, or add one.

    A name of the zoo goes where the policy of a run is wanted: carebn watch NAME, carebn.load("NAME").
    """

    do: tyro.conf.Positional[Literal["list", "add"]] = "list"
    """list them, or add the best of some finished runs."""
    runs: tyro.conf.Positional[tuple[Path, ...]] = ()
    """For add: run directories that differ in their seed alone; the one with the highest final return is taken."""
    name: str | None = None
    """For add: what to call it, as in hopper-care."""
    seeds_from: tuple[Path, ...] = ()
    """For add: directories with runs of more seeds, whose returns the card tells though their policies are gone."""
    episodes: int | None = None
    """For add: noise-free episodes to measure the return in. Default: 400."""
    replace: bool = False
    """For add: in place of an entry of that name. What was measured of the same policy is taken over."""


def run(config: Config) -> int:
    return _add(config) if config.do == "add" else _list(config)


def _list(config: Config) -> int:
    if config.runs:
        raise ValueError(f"carebn zoo list takes no runs, got {config.runs[0]}; carebn zoo add does")
    known = entries()
    if not known:
        raise ValueError(f"there is no zoo here: {where()}")
    from carebn.zoo.listing import HEADINGS, rows  # loads torch

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in HEADINGS:
        table.add_column(heading, no_wrap=True, justify="left" if heading in HEADINGS[:3] else "right")
    found, problems = rows(known)
    for row in found:
        table.add_row(*row)
    print_table(terminal(), table)
    for problem in problems:
        print(f"warning: {problem}", file=sys.stderr)
    print(f"\nin {zoo_directory()}; carebn watch NAME, carebn evaluate NAME, and NAME/card.md tells all about one")
    return 0


def _add(config: Config) -> int:
    from carebn.zoo.entry import MANY, add, size_of  # loads torch

    episodes = MANY if config.episodes is None else config.episodes
    check_episodes(episodes)
    if not config.runs or config.name is None:
        raise ValueError("carebn zoo add needs finished runs and a name: carebn zoo add RUN ... --name NAME")
    entry, best = add(config.runs, config.name, config.seeds_from, episodes, config.replace, config.word)
    print(
        f"taken: {best.directory}, seed {best.seed}, final return {best.returns[-1]:.1f}, of {len(config.runs)} given"
    )
    print(f"entry: {entry} ({size_of(entry) / 1000:,.0f} kB)\ncard: {entry / 'card.md'}")
    return 0

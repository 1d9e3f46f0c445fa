"""An entry of the zoo, made of finished runs: the best seed by its final return, and what is known of the others."""

from collections.abc import Sequence
from pathlib import Path

from carebn.study.evidence.runs import RunRecord, read_run
from carebn.training.files import write_file
from carebn.training.worlds import Trust
from carebn.zoo.card import NAME as CARD
from carebn.zoo.card import card
from carebn.zoo.keeping import Hidden, finished_policy, keep
from carebn.zoo.names import LONGEST, is_name, where, zoo_directory
from carebn.zoo.record import make_record, read_record, seeds_of

LARGEST = 1_000_000  # bytes of an entry
MANY = 400  # episodes: a policy that falls once in a hundred is to be seen falling


def best_of(runs: Sequence[Path], trust: Trust = False) -> RunRecord:
    """The one with the highest final return; they must be finished, and differ in their seed alone."""
    records: list[RunRecord] = []
    for path in runs:
        finished_policy(path, trust)
        record = read_run(path)
        if not record.complete or not record.returns:
            raise ValueError(f"{path} has no evaluation of its last step, by which the best of several is chosen")
        if records and record.cell() != records[0].cell():
            raise ValueError(
                f"{path} and {records[0].directory} differ in more than their seed, so the best of them is no seed; "
                f"make an entry of each"
            )
        records.append(record)
    return max(records, key=lambda record: record.returns[-1])


def check_name(name: str) -> None:
    if not is_name(name):
        raise ValueError(
            f"{name[:LONGEST]!r} is no name for the zoo: it has up to {LONGEST} small letters and digits, with - or . "
            f"between them, as in hopper-care"
        )


def add(
    runs: Sequence[Path],
    name: str,
    roots: Sequence[Path] = (),
    episodes: int = MANY,
    replace: bool = False,
    trust: Trust = False,
) -> tuple[Path, RunRecord]:
    """The new entry and the run that it is of; ``roots``: where returns of more seeds are, without their policies.

    The same runs again leave it as it is, byte for byte: what was measured of a policy is not measured again.
    """
    check_name(name)
    zoo = zoo_directory()
    if zoo is None:
        raise ValueError(f"there is no zoo here to add to: {where()}")
    entry = zoo / name
    if entry.exists() and not replace:
        raise ValueError(f"{name} is in the zoo already ({entry}); --replace puts this one in its place")
    best, before = best_of(runs, trust), read_record(entry) if entry.exists() else None
    with Hidden(entry) as place:
        keep(best.directory, place, trust)
        seeds = seeds_of(best.directory, [*runs, *roots])
        record = make_record(place, seeds, before, episodes=episodes, trust=trust)
        write_file(place / CARD, card(place, record, name, trust=trust).encode())
        size = size_of(place)
        if size > LARGEST:
            raise ValueError(f"the entry would have {size:,} bytes, and one of the zoo has at most {LARGEST:,}")
    return entry, best


def size_of(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())

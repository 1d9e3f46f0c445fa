"""Names of the zoo: a word in place of a run directory. Needs the standard library alone.

The zoo is the directory that ``CAREBN_ZOO`` names, else ``zoo`` of the clone that this package runs from, else ``zoo``
in the current directory.
"""

import os
import re
import warnings
from pathlib import Path

from carebn.errors import CarebnWarning

VARIABLE = "CAREBN_ZOO"
NAME = re.compile(r"[a-z0-9]+(?:[.-][a-z0-9]+)*")
LONGEST = 64  # letters of a name


class TwoOfOneName(CarebnWarning):
    """A directory here has the name of a policy of the zoo."""


def is_name(word: str) -> bool:
    return len(word) <= LONGEST and NAME.fullmatch(word) is not None


def zoo_directory() -> Path | None:
    """Where the zoo is, or in a clone without one would be; None: there is none."""
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named)
    clone = Path(__file__).parents[3]
    if (clone / "pyproject.toml").is_file() and (clone / "src").is_dir():
        return clone / "zoo"
    here = Path("zoo")
    return here if here.is_dir() else None


def where() -> str:
    """Why there is none, or how to have one."""
    named = os.environ.get(VARIABLE)
    if not named:
        return (
            "the zoo is the directory zoo of a clone of carebn: go to the clone, or name that directory in the "
            f"environment variable {VARIABLE}"
        )
    if not Path(named).is_dir():
        return f"{VARIABLE} names {named}, which is not a directory"
    return f"{VARIABLE} names {named}, which has no policy in it"


def entries() -> dict[str, Path]:
    """Every policy of the zoo, by name."""
    place = zoo_directory()
    if place is None or not place.is_dir():
        return {}
    found = sorted(path for path in place.iterdir() if is_name(path.name) and (path / "config.json").is_file())
    return {path.name: path for path in found}


def opened_by(run: Path) -> str:
    """The word that opens it from here: an entry of the zoo by its name, any other run by its path as it was given."""
    here = run.resolve()
    return next((name for name, entry in entries().items() if entry.resolve() == here), str(run))


def find_run(run: Path | str) -> Path:
    """The directory that is meant: a path as it is, a name of the zoo as its place there. A directory here wins."""
    path = Path(run)
    if not is_name(str(run)):
        return path
    known = entries()
    entry = known.get(str(run))
    if path.exists():
        if entry is not None and path.resolve() != entry.resolve():
            warnings.warn(
                f"{run} is taken to be the directory of that name here; the zoo's is {entry}",
                TwoOfOneName,
                stacklevel=3,
            )
        return path
    if entry is None:
        zoo = f"the zoo has {', '.join(known)}" if known else where()
        raise ValueError(f"{run} is not a run directory: there is nothing of that name here, nor in the zoo; {zoo}")
    return entry

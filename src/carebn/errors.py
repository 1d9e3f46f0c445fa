"""How mistakes and doubts are told."""

from collections.abc import Iterable
from difflib import get_close_matches


class CarebnWarning(UserWarning):
    """One sentence for people; the command line prints it without the line of code that it came from."""


def unknown_name(what: str, name: object, known: Iterable[str]) -> str:
    """A sentence that names the mistake, the nearest right name and all the others."""
    names = sorted(known)
    near = get_close_matches(str(name).lower(), names, n=1)
    suggestion = f": did you mean {near[0]!r}? Known" if near else "; known"
    return f"unknown {what} {name!r}{suggestion}: {', '.join(names)}"

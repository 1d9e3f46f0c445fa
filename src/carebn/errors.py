"""One way to say that a name is not known."""

from collections.abc import Iterable
from difflib import get_close_matches


def unknown_name(what: str, name: object, known: Iterable[str]) -> str:
    """A sentence that names the mistake, the nearest right name and all the others."""
    names = sorted(known)
    near = get_close_matches(str(name).lower(), names, n=1)
    suggestion = f"did you mean {near[0]!r}? " if near else ""
    return f"unknown {what} {name!r}: {suggestion}Known: {', '.join(names)}"

"""How mistakes and doubts are told."""

import re
from collections.abc import Iterable
from difflib import get_close_matches
from importlib import metadata


class CarebnWarning(UserWarning):
    """One sentence for people; the command line prints it without the line of code that it came from."""


def unknown_name(what: str, name: object, known: Iterable[str]) -> str:
    """A sentence that names the mistake, the nearest right name and all the others."""
    names = sorted(known)
    near = get_close_matches(str(name).lower(), names, n=1)
    suggestion = f": did you mean {near[0]!r}? Known" if near else "; known"
    return f"unknown {what} {name!r}{suggestion}: {', '.join(names)}"


def not_installed(what: str, error: ModuleNotFoundError) -> str:
    """A sentence in place of "No module named ...", where carebn was installed without what it depends on."""
    missing = _missing_requirements() or [str(error.name).partition(".")[0]]
    return (
        f"{what} needs packages that are not installed here: {', '.join(missing)}; carebn.deploy does without, and for "
        f"all of carebn, run pip install . in the directory of its source"
    )


def _missing_requirements() -> list[str]:
    """Of the package itself, extras left out."""
    try:
        requirements = metadata.requires("carebn") or []
    except metadata.PackageNotFoundError:  # run from its source directory
        return []
    names = [re.split(r"[^\w.-]", line)[0] for line in requirements if "extra ==" not in line]
    return [name for name in names if not _is_installed(name)]


def _is_installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True

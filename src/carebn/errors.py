"""How mistakes and doubts are told."""

import re
from collections.abc import Iterable
from difflib import get_close_matches
from importlib import metadata

LONGEST = 400  # characters of what somebody typed or a library said, in a sentence
NO_MEMORY = ("can't allocate memory", "out of memory", "not enough memory", "cannot allocate memory")


class CarebnWarning(UserWarning):
    """One sentence for people; the command line prints it without the line of code that it came from."""


def unknown_name(what: str, name: object, known: Iterable[str]) -> str:
    """A sentence that names the mistake, the nearest right name and all the others."""
    names = sorted(known)
    given = str(name)[:LONGEST]
    near = get_close_matches(given.lower(), names, n=1)
    suggestion = f": did you mean {near[0]!r}? Known" if near else "; known"
    return f"unknown {what} {given!r}{suggestion}: {', '.join(names)}"


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


def told(error: BaseException) -> str | None:
    """The sentence for what a user, a file or the machine is to blame for; None: it is a fault of the program."""
    sentence = _sentence(error, str(error))
    if sentence is None:
        return None
    line = " ".join(sentence.splitlines())
    return line if len(line) <= 5 * LONGEST else f"{line[: 2 * LONGEST]} […] {line[-2 * LONGEST :]}"


def _sentence(error: BaseException, text: str) -> str | None:
    if isinstance(error, RecursionError):
        return "a file is nested too deeply to be read"
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and _is_about_memory(text)):
        detail = f" ({text.splitlines()[0][:LONGEST].rstrip('.')})" if text else ""
        return f"there is not enough memory for this{detail}; choose smaller sizes"
    if isinstance(error, OverflowError):
        return f"a number is too large to compute with ({text[:LONGEST]}); choose a smaller one"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else f"cannot write: {error.strerror}"
    return text if isinstance(error, (ValueError, OSError)) else None


def _is_about_memory(text: str) -> bool:
    return any(sign in text.lower() for sign in NO_MEMORY)

"""Arguments for an environment, as ``--env-kwargs`` takes them: NAME=VALUE pairs, or one JSON object."""

import json
import math
from typing import Annotated, Any

import tyro

# What carebn itself decides: pictures are for carebn watch, and an environment has one identity.
RESERVED = ("id", "render_mode")


def _constant(name: str) -> Any:
    raise ValueError(f"{name} is no number")


def _value(text: str) -> Any:
    """JSON where it is some (0.5, true, [1, 2], "7"), else the word itself."""
    try:
        return json.loads(text, parse_constant=_constant)
    except (ValueError, RecursionError):
        return text


def parse(words: list[str]) -> dict[str, Any]:
    if len(words) == 1 and words[0].lstrip().startswith("{"):
        try:
            values = json.loads(words[0], parse_constant=_constant)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"it is not JSON ({error})") from None
        return dict(values)
    pairs = [word.partition("=") for word in words]
    wrong = [word for word, (name, equals, _) in zip(words, pairs, strict=True) if not (equals and name)]
    if wrong:
        raise ValueError(f"{wrong[0]!r} is not of the form NAME=VALUE")
    names = [name for name, _, _ in pairs]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise ValueError(f"{twice[0]} is given twice")
    return {name: _value(text) for name, _, text in pairs}


def words_of(values: dict[str, Any]) -> list[str]:
    """What ``parse`` makes the same values of."""
    return [f"{name}={json.dumps(value)}" for name, value in sorted(values.items())]


def check(values: dict[str, Any]) -> None:
    for name, value in values.items():
        if not isinstance(name, str) or not name.isidentifier():
            raise ValueError(f"--env-kwargs needs names of arguments, got {name!r}")
        if name in RESERVED:
            raise ValueError(f"--env-kwargs {name} does not apply: carebn chooses it itself")
        if not _is_json(value):
            raise ValueError(
                f"--env-kwargs {name} must be a finite number, a word, true, false, null or a list or object of them, "
                f"got {value!r}; from Python, pass a function that makes the environment instead"
            )


def _is_json(value: Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_json(item) for key, item in value.items())
    if isinstance(value, list):
        return all(map(_is_json, value))
    return value is None or isinstance(value, (str, int)) or (isinstance(value, float) and math.isfinite(value))


EnvKwargs = Annotated[
    dict[str, Any],
    tyro.constructors.PrimitiveConstructorSpec(
        nargs="*",
        metavar="NAME=VALUE ...|JSON",
        instance_from_str=parse,
        is_instance=lambda value: isinstance(value, dict),
        str_from_instance=words_of,
    ),
]

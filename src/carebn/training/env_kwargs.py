"""Arguments for an environment, as ``--env-kwargs`` takes them: NAME=VALUE pairs, or one JSON object."""

import inspect
import json
import math
import re
from collections.abc import Collection
from typing import Annotated, Any

import gymnasium as gym
import tyro

from carebn.errors import unknown_name
from carebn.training.blame import users_line

# What carebn itself decides: pictures are for carebn watch, and an environment has one identity.
RESERVED = ("id", "render_mode")
OF_GYMNASIUM = "max_episode_steps"  # gymnasium.make takes it for every environment


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


def why_not_made(env_id: str, error: BaseException, given: Collection[str], own_code: bool) -> str:
    """What an environment said when it was not made; of an argument that it does not know, those that it does."""
    if " was raised from the environment creator for " in str(error) and error.__cause__ is not None:
        error = error.__cause__  # which Gymnasium tells once more, with all arguments
    reason = " ".join(str(error).split()) + (f" ({users_line(error)})" if own_code else "")
    unexpected = re.search(r"unexpected keyword argument '(\w+)'", str(error))
    if unexpected is None or unexpected[1] not in given:
        return reason
    known = _arguments(gym.registry[env_id.rpartition(":")[2]].entry_point)
    return reason if unexpected[1] in known else unknown_name("argument", unexpected[1], known)


def _arguments(made_by: Any) -> set[str]:
    """Those of what makes an environment, also those that a class hands on to the one that it inherits from."""
    if isinstance(made_by, str):
        made_by = gym.envs.registration.load_env_creator(made_by)
    makers = [vars(cls).get("__init__") for cls in made_by.__mro__] if isinstance(made_by, type) else [made_by]
    known = {OF_GYMNASIUM}
    for maker in filter(callable, makers):
        taken = inspect.signature(maker).parameters.values()
        inherited = len(known) > 1  # what has no default is given by the heir
        known |= {
            p.name for p in taken
            if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) and not (inherited and p.default is p.empty)
        }  # fmt: skip
        if not any(p.kind is p.VAR_KEYWORD for p in taken):
            break
    return known - {"self", *RESERVED}


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

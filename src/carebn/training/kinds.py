"""Whether a value that came from a file or from Python is of the kind that an option holds."""

from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin


def has_kind(hint: Any, value: Any) -> bool:
    kind, parts = get_origin(hint), get_args(hint)
    if kind in (Union, UnionType):
        return any(has_kind(part, value) for part in parts)
    if kind is Literal:
        return value in parts or (value == "none" and "default" in parts)  # none: it means nothing for this run
    if kind is dict:
        return isinstance(value, dict)
    if kind is tuple:
        return isinstance(value, tuple) and all(has_kind(parts[0], item) for item in value)
    return type(value) is hint or (hint is float and type(value) is int)

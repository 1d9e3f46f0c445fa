"""What each command can be given, read from its own dataclass: a new option is tried without being named here."""

from dataclasses import dataclass, fields
from functools import cache
from importlib import import_module
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from carebn.cli import COMMANDS


@dataclass(frozen=True)
class Option:
    flag: str
    kind: str  # int, float, word, path or switch
    many: bool = False
    choices: tuple[str, ...] = ()


@cache
def options() -> dict[str, tuple[Option, ...]]:
    """By command, and where a command has commands of its own, by both: ``"study run"``."""
    found: dict[str, tuple[Option, ...]] = {}
    for name in COMMANDS:
        config: Any = import_module(f"carebn.commands.{name}").Config
        if isinstance(config, type):
            found[name] = _of(config)
            continue
        for part in get_args(config):
            kind, *marks = get_args(part)
            word = next(mark.name for mark in marks if hasattr(mark, "name"))
            found[f"{name} {word}"] = _of(kind)
    return found


def _of(config: type[Any]) -> tuple[Option, ...]:
    hints = get_type_hints(config, include_extras=True)
    return tuple(_option(f.name, hints[f.name]) for f in fields(config) if "Positional" not in repr(hints[f.name]))


def _option(name: str, hint: Any) -> Option:
    flag, many = f"--{name.replace('_', '-')}", False
    while True:
        kind, parts = get_origin(hint), get_args(hint)
        if kind is Annotated:
            flag = next((f"--{mark.name}" for mark in parts[1:] if getattr(mark, "name", None)), flag)
            hint = parts[0]
        elif kind in (Union, UnionType):
            hint = parts[0]
        elif kind is tuple:
            hint, many = parts[0], True
        elif kind is Literal:
            return Option(flag, "word", many, tuple(map(str, parts)))
        else:
            return Option(flag, {int: "int", float: "float", bool: "switch", Path: "path"}.get(hint, "word"), many)

"""A command's dataclass of options as a command line, whose help names groups of options and their real defaults.

Where an option's default is left open (None, nothing, the word "default"), the help says what its docstring says after
"Default:", or what the command itself knows better. Where that follows what is registered, a field's metadata has the
``names`` to choose from, and what the help ``says``, a function.
"""

import ast
import inspect
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, field, fields, make_dataclass
from functools import reduce
from operator import or_
from pathlib import Path
from types import ModuleType, NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import tyro

WORDS = {int: "INT", float: "FLOAT", str: "STR", Path: "PATH"}
OPEN: tuple[Any, ...] = (None, (), {}, "default")
POSITIONAL, REPEATED = (get_args(kind[int])[1] for kind in (tyro.conf.Positional, tyro.conf.UseAppendAction))
DEFAULT = re.compile(r"\s*Default: (?P<text>.*)\.$", re.DOTALL)

Groups = Mapping[str, Sequence[str]]


def parse(command: ModuleType, prog: str, arguments: Sequence[str]) -> Any:
    """The command's ``Config``; it may have ``GROUPS`` (title → options) and ``DEFAULTS`` (option → what to say)."""
    groups, defaults = getattr(command, "GROUPS", {}), getattr(command, "DEFAULTS", {})
    originals: dict[type, type] = {}
    found = tyro.cli(_described(command.Config, groups, defaults, originals), prog=prog, args=arguments)
    values = {f.name: getattr(found, f.name) for f in fields(found)}
    if groups:
        values = {f.name: getattr(group, f.name) for group in values.values() for f in fields(group)}
    return originals[type(found)](**values)


def _described(config: Any, groups: Groups, defaults: Mapping[str, str], originals: dict[type, type]) -> Any:
    """The same options for the parser, with all that its help is to say."""
    if get_origin(config) in (Union, UnionType):
        return reduce(or_, (_described(part, groups, defaults, originals) for part in get_args(config)))
    if get_origin(config) is Annotated:
        cls, *notes = get_args(config)
        return Annotated[(_described(cls, groups, defaults, originals), *notes)]
    hints, docs = get_type_hints(config, include_extras=True), _docstrings(config)
    options = {f.name: _option(f, hints[f.name], docs.get(f.name, ""), defaults) for f in fields(config)}
    made = _dataclass(config, options) if not groups else _grouped(config, options, groups)
    originals[made] = config
    return made


Option = tuple[str, Any, Any]  # name, type, field


def _dataclass(config: type, options: Mapping[str, Option]) -> type:
    return make_dataclass(config.__name__, options.values(), namespace={"__doc__": config.__doc__}, kw_only=True)


def _grouped(config: type, options: Mapping[str, Option], groups: Groups) -> type:
    """A dataclass of dataclasses. An option that is in no group is with the one before it."""
    homes = {name: title for title, names in groups.items() for name in names}
    title = next(iter(groups))
    members: dict[str, list[Option]] = {title: [] for title in groups}
    for name, option in options.items():
        title = homes.get(name, title)
        members[title].append(option)
    parts = []
    for i, (title, inside) in enumerate(members.items()):
        part = make_dataclass(f"Part{i}", inside, namespace={"__doc__": ""}, kw_only=True)
        parts.append((f"part{i}", Annotated[part, tyro.conf.arg(name=title)], field(default_factory=part)))
    return make_dataclass(config.__name__, parts, namespace={"__doc__": config.__doc__}, kw_only=True)


def _option(field_: "Field[Any]", hint: Any, doc: str, defaults: Mapping[str, str]) -> Option:
    """One option; names, words and positions that it already has are kept."""
    doc = field_.metadata["says"]() if "says" in field_.metadata else doc
    default = field_.default if field_.default_factory is MISSING else field_.default_factory()
    said = DEFAULT.search(doc)
    about: str | None = None
    if field_.name in defaults:
        about = defaults[field_.name]
    elif default is False:
        about = "off"
    elif type(default) is int:
        about = f"{default:_}"  # as it can be typed; a line may break at a comma
    elif default in OPEN:
        about = said["text"] if said else ""
    notes: dict[str, Any] = {"help": doc if said is None else doc[: said.start()], "prefix_name": False}
    if about is not None:
        notes["help_behavior_hint"] = f"(default: {about})" if about else ""
    elif default is MISSING:
        notes["help_behavior_hint"] = "(required)"
    metavar = "{" + ",".join(field_.metadata["names"]) + "}" if "names" in field_.metadata else _metavar(hint)
    if metavar:
        notes["metavar"] = f"[{metavar}]" if POSITIONAL in get_args(hint) and default is not MISSING else metavar
    given: dict[str, Any] = {"default": default} if default is not MISSING else {}
    if field_.default_factory is not MISSING:
        given, notes["help_behavior_hint"] = {"default_factory": field_.default_factory}, ""
    return field_.name, Annotated[hint, tyro.conf.arg(**notes)], field(kw_only=field_.kw_only, **given)


def _metavar(hint: Any) -> str:
    """Without None and "default", which stand for leaving the option out; empty: as it is."""
    kind, parts = get_origin(hint), get_args(hint)
    if kind is Annotated:
        if any(getattr(note, "metavar", None) for note in parts[1:]):
            return ""
        metavar = _metavar(parts[0])
        return metavar.removesuffix(" ...") if REPEATED in parts else metavar
    if kind in (Union, UnionType) and NoneType in parts:
        (inner,) = (part for part in parts if part is not NoneType)
        inner = get_args(inner)[0] if get_origin(inner) is Annotated else inner
        return _metavar(inner) or WORDS.get(inner, "")
    if kind is Literal:
        return "{" + ",".join(word for word in parts if word != "default") + "}"
    if kind is tuple:
        return f"{_metavar(parts[0]) or WORDS.get(parts[0], 'STR')} ..."
    return ""


def _docstrings(config: type) -> dict[str, str]:
    """What stands below each field, in one line, also of those that it inherits."""
    found, name = {}, ""
    for line in (line for cls in reversed(config.__mro__[:-1]) for line in _body(cls)):
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
            name = line.target.id
        elif isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant) and name:
            found[name] = " ".join(str(line.value.value).split())
            name = ""
    return found


def _body(cls: type) -> list[ast.stmt]:
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    assert isinstance(definition, ast.ClassDef)
    return definition.body

"""Options that an algorithm alone has, as ``--algo-options`` takes them, held against its own dataclass."""

import math
from collections.abc import Collection, Mapping
from typing import Any, get_type_hints

from carebn.algorithm import Algorithm, find_algorithm
from carebn.errors import unknown_name
from carebn.training.kinds import has_kind

FLAG = "--algo-options"


def own_options(algorithm: Algorithm, shared: Collection[str]) -> dict[str, Any]:
    """Name and type of each; ``shared`` are the options that all runs have."""
    hints = {algorithm.called.get(name, name): hint for name, hint in get_type_hints(algorithm.options).items()}
    return {name: hint for name, hint in hints.items() if name not in shared}


def check(algo: str, values: Mapping[str, Any], shared: Collection[str]) -> dict[str, Any]:
    """Those that differ from the defaults, as config.json holds them; a mistake is a ValueError of one sentence."""
    algorithm = find_algorithm(algo)
    own, defaults = own_options(algorithm, shared), algorithm.table()
    checked = {}
    for name, value in values.items():
        if name in defaults and name not in own:
            raise ValueError(f"{FLAG} {name} does not apply: it is an option by itself, --{name.replace('_', '-')}")
        if name not in own:
            none = f"{FLAG} {name} does not apply: {algo} has no options of its own"
            raise ValueError(unknown_name(f"option of {algo} ({FLAG})", name, own) if own else none)
        hint = own[name]
        if not has_kind(hint, as_given(value)) or (isinstance(value, float) and not math.isfinite(value)):
            kind = getattr(hint, "__name__", str(hint)) if isinstance(hint, type) else str(hint)
            raise ValueError(
                f"{FLAG} {name} must be of the kind {kind}, and a finite number if it is one, got {value!r}"
            )
        checked[name] = float(value) if hint is float else value
    return {name: value for name, value in checked.items() if as_given(value) != defaults[name]}


def as_given(value: Any) -> Any:
    """JSON has lists for tuples."""
    return tuple(map(as_given, value)) if isinstance(value, list) else value

"""Whole numbers as people type them, for options that count steps."""

from typing import Annotated

import tyro


def _whole(words: list[str]) -> int:
    """Also 1_000_000 and 1e6, but not 1.5."""
    try:
        return int(words[0])
    except ValueError:
        number = float(words[0])
        if number.is_integer():
            return int(number)
        raise


Steps = Annotated[
    int,
    tyro.constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar="INT",
        instance_from_str=_whole,
        is_instance=lambda value: isinstance(value, int),
        str_from_instance=lambda value: [str(value)],
    ),
]

"""Which numbers of a flat observation are which part of the environment's own, in words of JSON."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, Space, Tuple, flatdim


def pieces_of(space: Space[Any]) -> list[dict[str, Any]]:
    """In the order of ``gymnasium.spaces.flatten``: name, start, size and kind of each piece.

    ``name`` is the path to it (``arm.joints``, ``1.near``, ``modes[2]``), empty if it is the whole observation. A
    one-hot piece has the value that its first number stands for, as ``first``; an array of more dimensions its shape.
    """
    found: list[dict[str, Any]] = []
    start = 0
    for piece in _pieces(space, ""):
        if piece["size"]:
            found.append({"name": piece.pop("name"), "start": start, **piece})
        start += piece["size"]
    return found


def _pieces(space: Space[Any], name: str) -> Iterator[dict[str, Any]]:
    if isinstance(space, (Dict, Tuple)):
        parts = space.spaces.items() if isinstance(space, Dict) else enumerate(space.spaces)
        for key, part in parts:
            yield from _pieces(part, f"{name}.{key}" if name else str(key))
    elif isinstance(space, Discrete):
        yield {"name": name, "size": int(space.n), "kind": "one-hot", "first": int(space.start)}
    elif isinstance(space, MultiDiscrete):
        for index in np.ndindex(space.nvec.shape):
            size, first = int(space.nvec[index]), int(space.start[index])
            yield {"name": f"{name}[{','.join(map(str, index))}]", "size": size, "kind": "one-hot", "first": first}
    else:
        piece = {"name": name, "size": flatdim(space), "kind": "numbers" if isinstance(space, Box) else "binary"}
        shape = list(space.shape or ())
        yield piece | {"shape": shape} if len(shape) > 1 else piece

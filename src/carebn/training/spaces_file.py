"""``spaces.json``: what a policy reads and decides, so that it can be opened without its environment."""

import math
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple
from numpy.typing import NDArray

from carebn.checksums import Mismatch, read_sealed, sealed
from carebn.training.files import write_atomically
from carebn.training.flat import MOST_INPUTS

NAME = "spaces.json"
MOST_PARTS = 1000
DTYPES = ("bool", "float16", "float32", "float64", *(f"{sign}int{n}" for sign in ("", "u") for n in (8, 16, 32, 64)))


def write_spaces(directory: Path, observation: Space[Any], action: Space[Any]) -> None:
    data = sealed({"observation": _plain(observation), "action": _plain(action)})
    if not (directory / NAME).exists() or (directory / NAME).read_bytes() != data:
        write_atomically(directory / NAME, data)


def read_spaces(directory: Path) -> tuple[Space[Any], Space[Any]] | None:
    """Observations and actions of the run there; None if it was made before there was this file."""
    path = directory / NAME
    try:
        data = read_sealed(path)
        return _space(data["observation"]), _space(data["action"])
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror})") from error
    except Mismatch:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, AssertionError, OverflowError, RecursionError) as error:
        raise ValueError(f"{path} does not hold the spaces of a run; running the same command again restores it") from (
            error
        )


def sample(space: Box, count: int, dtype: Any) -> NDArray[Any]:
    """Random observations of a flat space; where it has no bounds, Gaussian ones."""
    space = Box(space.low, space.high, dtype=space.dtype.type, seed=0)
    return np.stack([space.sample() for _ in range(count)]).astype(dtype)


def _plain(space: Space[Any]) -> dict[str, Any]:
    if isinstance(space, Box):
        bounds = {name: _numbers(getattr(space, name)) for name in ("low", "high")}
        return {"kind": "Box", "shape": list(space.shape), "dtype": str(space.dtype), **bounds}
    if isinstance(space, Discrete):
        return {"kind": "Discrete", "n": int(space.n), "start": int(space.start)}
    if isinstance(space, MultiBinary):
        return {"kind": "MultiBinary", "shape": list(space.shape)}
    if isinstance(space, MultiDiscrete):
        return {"kind": "MultiDiscrete", "nvec": space.nvec.tolist(), "start": space.start.tolist()}
    if isinstance(space, Dict):
        return {"kind": "Dict", "parts": [[name, _plain(part)] for name, part in space.spaces.items()]}
    assert isinstance(space, Tuple)  # others are refused before
    return {"kind": "Tuple", "parts": [_plain(part) for part in space.spaces]}


def _space(data: dict[str, Any]) -> Space[Any]:
    kind = data["kind"]
    if kind == "Box":
        shape, dtype = _shape(data["shape"]), np.dtype(DTYPES[DTYPES.index(data["dtype"])])
        low, high = (_array(data[name], shape, dtype) for name in ("low", "high"))
        return Box(low, high, shape, dtype.type)
    if kind == "Discrete":
        return Discrete(_whole(data["n"]), start=_whole(data["start"]))
    if kind == "MultiBinary":
        return MultiBinary(_shape(data["shape"]))
    if kind == "MultiDiscrete":
        return MultiDiscrete(np.array(data["nvec"], np.int64), start=np.array(data["start"], np.int64))
    parts = data["parts"]
    if kind not in ("Dict", "Tuple") or len(parts) > MOST_PARTS:
        raise ValueError("no space")
    if kind == "Tuple":
        return Tuple([_space(part) for part in parts])
    return Dict([(str(name), _space(part)) for name, part in parts])  # of a dict, Gymnasium would sort the names


def _numbers(bounds: NDArray[Any]) -> Any:
    """One number where all are the same; JSON has no infinity, so that is a word."""
    flat = [str(x) if isinstance(x, float) and math.isinf(x) else x for x in bounds.ravel().tolist()]
    return flat[0] if flat and all(x == flat[0] for x in flat) else flat


def _array(numbers: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    values = np.array([float(x) if isinstance(x, str) else x for x in np.atleast_1d(np.array(numbers, object))], dtype)
    return np.full(shape, values[0]) if not isinstance(numbers, list) else values.reshape(shape)


def _shape(lengths: Any) -> tuple[int, ...]:
    shape = tuple(_whole(length) for length in lengths)
    if not 0 < math.prod(shape) <= MOST_INPUTS or min(shape, default=1) < 1:
        raise ValueError("no size")
    return shape


def _whole(number: Any) -> int:
    if type(number) is not int:
        raise TypeError("no whole number")
    return number

"""Numba's decorators and types without its annotations, which strict type checking cannot follow."""

from typing import Any

import numba
import numba.extending

njit: Any = numba.njit
cfunc: Any = numba.cfunc
carray: Any = numba.carray  # type: ignore[attr-defined]
intrinsic: Any = numba.extending.intrinsic
types: Any = numba.types
int64: Any = numba.int64
uint16: Any = numba.uint16
int32: Any = numba.int32
float32: Any = numba.float32
float64: Any = numba.float64

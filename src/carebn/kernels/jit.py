"""Numba's decorators and types without its annotations, which strict type checking cannot follow.

Nothing that is compiled here can raise: divisions follow numpy's error model, and memory comes from the caller. An
exception inside a kernel would be heard by nobody, and on two threads the other would wait for ever.
"""

from functools import partial
from typing import Any

import numba
import numba.extending

config: Any = numba.config
njit: Any = partial(numba.njit, error_model="numpy")
cfunc: Any = partial(numba.cfunc, error_model="numpy", cache=True)
_carray: Any = numba.carray  # type: ignore[attr-defined]
from_dtype: Any = numba.from_dtype
intrinsic: Any = numba.extending.intrinsic
types: Any = numba.types
int64: Any = numba.int64
uint16: Any = numba.uint16
int32: Any = numba.int32
float32: Any = numba.float32
float64: Any = numba.float64


@intrinsic
def _pointer_to(typingctx: Any, address: Any, like: Any) -> Any:
    pointer = types.CPointer(like.instance_type if isinstance(like, types.TypeRef) else like)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], context.get_value_type(pointer))

    return pointer(types.int64, like), codegen


@njit
def array_at(address: int, shape: Any, one: Any) -> Any:
    """Inside a kernel: the array at this address, of values like ``one``, or of this type."""
    return _carray(_pointer_to(address, one), shape)

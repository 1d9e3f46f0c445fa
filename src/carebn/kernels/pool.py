"""Run a compiled kernel on the threads that torch already owns.

A kernel is a numba ``cfunc`` that takes the address of a table of 64-bit integers: addresses and sizes. Numba's own
thread pool would be a second set of spinning threads beside torch's, and two such pools on the same cores slow each
other down several times over. So a kernel is handed to the OpenMP runtime that torch itself loaded: same threads, no
second pool, and ``torch.set_num_threads`` is obeyed. Where that runtime cannot be found the kernel runs serially.

Work is cut into a fixed number of blocks, whatever the number of threads, and every block writes its own partial sums.
So the results do not depend on the number of threads.
"""

import ctypes
import os
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import torch
from llvmlite import ir

from carebn.kernels.jit import carray, cfunc, int64, intrinsic, njit, types

BLOCKS = 16  # pieces of work per kernel call; fixed, so that sums are added in the same order on any thread count
# Table entries that belong to this file: the addresses of omp_get_thread_num, omp_get_num_threads and GOMP_barrier, or
# zeros when the kernel runs on one thread.
HEADER = 3


@intrinsic
def pointer_to(typingctx: Any, address: Any, like: Any) -> Any:
    """The int64 ``address`` as a pointer to values of the type of ``like``."""
    pointer = types.CPointer(like)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], context.get_value_type(pointer))

    return pointer(types.int64, like), codegen


@intrinsic
def call_for_int(typingctx: Any, address: Any) -> Any:
    """Call the C function ``int f(void)`` at the int64 ``address``."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        function = ir.FunctionType(ir.IntType(32), [])
        return builder.call(builder.inttoptr(args[0], function.as_pointer()), [])

    return types.int32(types.int64), codegen


@intrinsic
def call_for_nothing(typingctx: Any, address: Any) -> Any:
    """Call the C function ``void f(void)`` at the int64 ``address``."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        function = ir.FunctionType(ir.VoidType(), [])
        builder.call(builder.inttoptr(args[0], function.as_pointer()), [])
        return context.get_dummy_value()

    return types.none(types.int64), codegen


@njit
def read_table(table: int, at: int, entries: int) -> Any:
    """Inside a kernel: so many entries of its table, from the one numbered ``at``."""
    start = HEADER + at
    return carray(pointer_to(table, int64(0)), (start + entries,))[start:]


@njit
def my_blocks(table: int) -> Any:
    """Inside a kernel: the blocks that this thread works on."""
    header = carray(pointer_to(table, int64(0)), (HEADER,))
    if header[0] == 0:
        return range(0, BLOCKS, 1)
    return range(call_for_int(header[0]), BLOCKS, call_for_int(header[1]))


@njit
def my_number(table: int) -> int:
    """Inside a kernel: which of the threads this is."""
    header = carray(pointer_to(table, int64(0)), (HEADER,))
    return 0 if header[0] == 0 else int64(call_for_int(header[0]))


@njit
def i_am_first(table: int) -> bool:
    """Inside a kernel: whether this thread does the work that only one may do."""
    return bool(my_number(table) == 0)


@njit
def wait_for_all(table: int) -> None:
    """Inside a kernel: go on when every thread has come this far."""
    header = carray(pointer_to(table, int64(0)), (HEADER,))
    if header[0] != 0:
        call_for_nothing(header[2])


class _OpenMP(NamedTuple):
    parallel: Callable[..., None]
    thread_number: int  # addresses of the C functions
    thread_count: int
    barrier: int


@cache
def _openmp() -> _OpenMP | None:
    """The OpenMP runtime that torch brought into this process, if it can be found."""
    try:
        with open("/proc/self/maps") as maps:
            loaded = {line.split(maxsplit=5)[-1].strip() for line in maps if "/" in line}
    except OSError:  # not Linux
        return None
    runtimes = sorted(p for p in loaded if os.path.basename(p).startswith(("libgomp", "libiomp", "libomp")))
    in_torch = [p for p in runtimes if p.startswith(os.path.dirname(torch.__file__))]
    for path in in_torch or runtimes:
        try:
            library = ctypes.CDLL(path)
            parallel = library.GOMP_parallel
            number = ctypes.cast(library.omp_get_thread_num, ctypes.c_void_p).value
            count = ctypes.cast(library.omp_get_num_threads, ctypes.c_void_p).value
            barrier = ctypes.cast(library.GOMP_barrier, ctypes.c_void_p).value
        except (OSError, AttributeError):
            continue
        if number and count and barrier:
            parallel.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
            parallel.restype = None
            return _OpenMP(parallel, number, count, barrier)
    return None


@cache
def _compiled(kernel: Callable[[int], None]) -> Any:
    """Compiled on first use, and kept on disk for the next process."""
    return cfunc(types.void(types.int64), cache=True)(kernel)


def run(kernel: Callable[[int], None], *entries: int) -> None:
    """Run ``kernel`` on torch's threads with a table of these entries."""
    openmp = _openmp()
    threads = torch.get_num_threads() if openmp else 1
    if threads == 1 or openmp is None:
        run_serially(kernel, *entries)
    else:
        header = openmp.thread_number, openmp.thread_count, openmp.barrier
        table = (ctypes.c_int64 * (HEADER + len(entries)))(*header, *entries)
        openmp.parallel(_compiled(kernel).address, ctypes.addressof(table), threads, 0)


def run_serially(kernel: Callable[[int], None], *entries: int) -> None:
    """Run ``kernel`` on this thread: for small work."""
    table = (ctypes.c_int64 * (HEADER + len(entries)))(0, 0, 0, *entries)
    _compiled(kernel).ctypes(ctypes.addressof(table))

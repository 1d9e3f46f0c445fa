"""Run a compiled kernel on the threads that torch already owns, and hear what it reports.

Numba's own thread pool would be a second set of spinning threads beside torch's, and two such pools on the same cores
slow each other down several times over. So a kernel is handed to the OpenMP runtime that torch itself loaded: same
threads, no second pool, and ``torch.set_num_threads`` is obeyed. Where that runtime cannot be found the kernel runs
serially.

Work is cut into a fixed number of blocks, whatever the number of threads, and every block writes its own partial sums.
So the results do not depend on the number of threads.
"""

import ctypes
import os
from collections.abc import Callable
from functools import cache, reduce
from operator import or_
from typing import Any, NamedTuple

import torch
from llvmlite import ir

from carebn.kernels.jit import array_at, cfunc, int64, intrinsic, njit, types
from carebn.kernels.tables import KernelFault, Table
from carebn.machine import keep_freed_memory

BLOCKS = 16  # pieces of work per kernel call; fixed, so that sums are added in the same order on any thread count
# What a thread reports when it has come to its end, and what it may have noticed.
FINISHED, NOT_FINITE, NOT_BINARY = 1, 2, 4


def _caller(returns: Any, kind: Any) -> Any:
    @intrinsic
    def call(typingctx: Any, address: Any) -> Any:
        """Call the C function without arguments at the int64 ``address``."""

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            result = builder.call(builder.inttoptr(args[0], ir.FunctionType(kind, []).as_pointer()), [])
            return context.get_dummy_value() if returns is types.none else result

        return returns(types.int64), codegen

    return call


call_for_int = _caller(types.int32, ir.IntType(32))
call_for_nothing = _caller(types.none, ir.VoidType())


@njit
def my_number(t: Any) -> Any:
    """Inside a kernel: which of the threads this is. Number 0 does the work that only one may do."""
    return int64(0) if t.thread_number == 0 else int64(call_for_int(t.thread_number))


@njit
def my_part(t: Any, scratch: int, size: int) -> Any:
    """Inside a kernel: the address of this thread's part of a scratch field, ``size`` bytes a thread."""
    return scratch + my_number(t) * size


@njit
def my_share(t: Any, pieces: int) -> Any:
    """Inside a kernel: those of so many pieces of work that this thread does, neighbours all: where threads take turns
    at neighbouring columns, each one's prefetching takes from the other what it is writing."""
    count = int64(1) if t.thread_count == 0 else int64(call_for_int(t.thread_count))
    return range(pieces * my_number(t) // count, pieces * (my_number(t) + 1) // count)


@njit
def rows_of(block: int, batch: int) -> Any:
    """The rows of one block."""
    size = (batch + BLOCKS - 1) // BLOCKS
    return range(min(block * size, batch), min((block + 1) * size, batch))


@njit
def wait_for_all(t: Any) -> None:
    """Inside a kernel: go on when every thread has come this far."""
    if t.barrier != 0:
        call_for_nothing(t.barrier)


@njit
def leave(t: Any, noticed: int) -> None:
    """The last thing a thread does: report, and how many there are."""
    report = array_at(t.report, (2 + my_number(t),), int64(0))
    report[1 + my_number(t)] = FINISHED | noticed
    if my_number(t) == 0:
        report[0] = 1 if t.thread_count == 0 else call_for_int(t.thread_count)


class _OpenMP(NamedTuple):
    parallel: Callable[..., None]
    functions: tuple[int, int, int]  # addresses: thread number, thread count, barrier


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
            found = [
                ctypes.cast(function, ctypes.c_void_p).value
                for function in (library.omp_get_thread_num, library.omp_get_num_threads, library.GOMP_barrier)
            ]
        except (OSError, AttributeError):
            continue
        number, count, barrier = found
        if number and count and barrier:
            parallel.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
            parallel.restype = None
            return _OpenMP(parallel, (number, count, barrier))
    return None


class Kernel:
    """A compiled function and its table; compiled for a precision when first used, and kept on disk."""

    def __init__(self, name: str, table: Table, functions: dict[torch.dtype, Callable[[int], None]]) -> None:
        self.name, self.table, self._functions = name, table, functions
        self._compiled: dict[torch.dtype, Any] = {}

    def compiled(self, dtype: torch.dtype) -> Any:
        if dtype not in self._compiled:
            keep_freed_memory()
            self._compiled[dtype] = cfunc(types.void(types.int64))(self._functions[dtype])
        return self._compiled[dtype]

    def __call__(self, dtype: torch.dtype, *, serially: bool = False, **fields: Any) -> int:
        """Run it on torch's threads, or for small work on this one alone; what the threads noticed."""
        function = self.compiled(dtype)
        openmp = None if serially or torch.get_num_threads() == 1 else _openmp()
        threads, functions = (1, (0, 0, 0)) if openmp is None else (torch.get_num_threads(), openmp.functions)
        report = (ctypes.c_int64 * (1 + threads))()
        table = self.table.fill((*functions, ctypes.addressof(report)), threads, dtype, fields)
        if openmp is None:
            function.ctypes(table.address)
        else:
            openmp.parallel(function.address, table.address, threads, 0)
        team, *said = report
        if team == 0 or not all(word & FINISHED for word in said[:team]):
            raise KernelFault(
                f"the compiled kernel {self.name} did not come to its end; what it wrote is not to be used"
            )
        return reduce(or_, said[:team]) & ~FINISHED

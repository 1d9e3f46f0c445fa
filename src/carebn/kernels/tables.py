"""What Python hands to a kernel: a table of named fields, declared once, checked when it is filled, read by name.

    LAYER = Table(
        steps=INT, batch=INT, features=INT,      sizes
        eps=NUMBER,                              a float64
        z=Array(REAL, "steps, batch, features"), a tensor: the kernel gets its address
        room=Scratch(REAL, "features"),          memory of its own for every thread, made by ``fill``
    )

``fill`` wants every field and no other, and every tensor dense, on the CPU, of that precision and exactly that shape: a
kernel reads memory without looking. Inside it, ``t = LAYER.at(address)`` is a record: ``t.steps`` is a number, ``t.z``
an address, and a field that was never declared does not compile.
"""

import ctypes
import struct
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from carebn.kernels.jit import array_at, from_dtype, njit

INT, NUMBER = "int", "number"
REAL = "real"  # the precision that the kernel is compiled for
# What every table begins with. It belongs to ``pool``: the addresses of omp_get_thread_num, omp_get_num_threads and
# GOMP_barrier (zeros on one thread), and of the words in which the threads report.
HEADER = ("thread_number", "thread_count", "barrier", "report")


class Array(NamedTuple):
    """A tensor: its precision, and its shape as an expression of the sizes. None is address 0, where allowed."""

    dtype: torch.dtype | str
    shape: str
    optional: bool = False


class Scratch(NamedTuple):
    """Memory that every thread has to itself; its shape is that of one thread's part."""

    dtype: torch.dtype | str
    shape: str


class KernelFault(RuntimeError):  # noqa: N818  # it is a fault of ours, not a user's mistake
    """A kernel was given something that it was not made for, or did not come to its end."""


class Filled(NamedTuple):
    words: Any  # the record itself
    keeps: tuple[Any, ...]  # whatever it holds the address of

    @property
    def address(self) -> int:
        return ctypes.addressof(self.words)


class Table:
    def __init__(self, **fields: Any) -> None:
        self.fields = fields
        names = (*HEADER, *fields)
        self.record = np.dtype([(n, np.float64 if fields.get(n) == NUMBER else np.int64) for n in names])
        self._size = len(names)
        self._packed = struct.Struct("=" + "".join("d" if fields.get(n) == NUMBER else "q" for n in names))
        self._checked = _checker(fields)
        self.at = _reader(self.record)

    def fill(self, header: tuple[int, ...], threads: int, dtype: torch.dtype, fields: dict[str, Any]) -> Filled:
        values, keeps = self._checked(dtype, threads, **fields)
        words = (ctypes.c_int64 * self._size)()
        self._packed.pack_into(words, 0, *header, *values)
        return Filled(words, keeps)


def _refuse(name: str, tensor: Any, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    found = (
        f"{tensor.dtype} {tuple(tensor.shape)} with strides {tensor.stride()} on {tensor.device}"
        if isinstance(tensor, Tensor)
        else type(tensor).__name__
    )
    raise KernelFault(f"a kernel's {name} must be a dense {dtype} tensor of shape {shape} on the CPU, got {found}")


def _checker(fields: dict[str, Any]) -> Any:
    """``check(dtype, threads, **fields) → (values in order, tensors to keep)``, written out for these fields: a loop
    over descriptions would cost as much as a small kernel."""
    given = ", ".join(name for name, kind in fields.items() if not isinstance(kind, Scratch))
    lines = [f"def check(dtype, threads, *, {given}):"]
    values, kept = [], []
    known: dict[str, Any] = {"torch": torch, "refuse": _refuse}
    for name, kind in fields.items():
        if isinstance(kind, (Array, Scratch)):
            known[f"{name}_dtype"] = None if kind.dtype == REAL else kind.dtype
            precision = "dtype" if kind.dtype == REAL else f"{name}_dtype"
            kept.append(name)
        if isinstance(kind, Scratch):
            lines.append(f"    {name} = torch.empty((threads, {kind.shape}), dtype={precision})")
        elif isinstance(kind, Array):
            may_miss = f"{name} is not None and " if kind.optional else ""
            lines += [
                f"    shape = ({kind.shape},)" if kind.shape else "    shape = ()",
                f"    if {may_miss}({name}.dtype is not {precision} or {name}.shape != shape "
                f"or not {name}.is_contiguous() or not {name}.is_cpu or {name}.is_neg()):",
                f"        refuse({name!r}, {name}, {precision}, shape)",
            ]
        pointer = f"{name}.data_ptr()"
        if isinstance(kind, Array) and kind.optional:
            pointer = f"(0 if {name} is None else {pointer})"
        values.append(name if kind in (INT, NUMBER) else pointer)
    lines.append(f"    return ({', '.join(values)},), ({', '.join([*kept, ''])})")
    exec("\n".join(lines), known)
    return known["check"]


def _reader(record: np.dtype[Any]) -> Any:
    kind = from_dtype(record)

    @njit
    def at(address: int) -> Any:
        return array_at(address, (1,), kind)[0]

    return at

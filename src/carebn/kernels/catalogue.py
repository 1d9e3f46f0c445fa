"""The kernels: each compiled when first used, for each precision, and then kept on disk.

Numba's disk cache notices a change of the file a kernel is in, but not of the files it calls into. So every kernel here
also carries a stamp made from all the kernel sources and the width of a vector: change one, and what was compiled
before no longer fits.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any

import torch

from carebn.kernels import act, encoder, integrate, lookup, norm_statistics, packed, scan
from carebn.kernels.jit import float32, float64
from carebn.kernels.pool import Kernel, leave
from carebn.kernels.simd import LANES
from carebn.kernels.tables import Table

_KERNELS: dict[str, tuple[Table, Callable[[Any, Any], int]]] = {
    "moments": (scan.MOMENTS, scan.moments),
    "fire": (scan.FIRE, scan.fire),
    "fire_backward": (scan.FIRE_BACKWARD, scan.fire_backward),
    "norm_backward": (scan.NORM_BACKWARD, scan.norm_backward),
    "update_moving": (norm_statistics.UPDATE, norm_statistics.update_moving),
    "distances": (encoder.DISTANCES, encoder.distances),
    "field_gradients": (encoder.FIELD_GRADIENTS, encoder.field_gradients),
    "act": (act.ACTOR, act.act),
    "spike_product": (lookup.PRODUCT, lookup.product),
    "spike_weight_gradient": (lookup.WEIGHT_GRADIENT, lookup.weight_gradient),
    "packed_encode": (packed.ENCODE, packed.encode),
    "packed_count": (packed.COUNT, packed.count),
    "packed_layer": (packed.LAYER, packed.layer),
    "packed_layer_backward": (packed.LAYER_BACKWARD, packed.layer_backward),
    "integrate_and_fire": (integrate.NETWORK, integrate.integrate),
}


def _stamp() -> int:
    sources = sorted(Path(__file__).parent.glob("*.py"))
    content = b"".join(p.read_bytes() for p in sources) + bytes([LANES])
    return int.from_bytes(hashlib.sha256(content).digest()[:7]) + 1


_opened: Any = None
_work: Any = None


def _entry(name: str, one: Any, stamp: int) -> Callable[[int], None]:
    """Opens the table, does the work, and reports.

    A compiled function finds what it calls among its globals, so each entry has its own: its table's ``at`` and its
    kernel. What it encloses are plain numbers, because they are part of the key under which it is kept on disk.
    """

    def entry(address: int) -> None:
        if stamp:
            t = _opened(address)
            leave(t, _work(t, one))

    table, kernel = _KERNELS[name]
    own = {"__name__": __name__, "_opened": table.at, "_work": kernel, "leave": leave}
    made = FunctionType(entry.__code__, own, name, None, entry.__closure__)
    made.__qualname__ = name  # under which it is kept
    return made


_ones, _now = {torch.float32: float32(1), torch.float64: float64(1)}, _stamp()
KERNELS: dict[str, Kernel] = {
    name: Kernel(name, table, {dtype: _entry(name, one, _now) for dtype, one in _ones.items()})
    for name, (table, _) in _KERNELS.items()
}

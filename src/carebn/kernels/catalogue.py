"""The kernels: each compiled when first used, for each precision, and then kept on disk.

Numba's disk cache notices a change of the file a kernel is in, but not of the files it calls into. So every kernel here
also carries a stamp made from all the kernel sources and the width of a vector: change one, and what was compiled
before no longer fits.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from carebn.kernels import act, encoder, integrate, lookup, norm_statistics, packed, scan
from carebn.kernels.jit import float32, float64
from carebn.kernels.pool import Kernel, leave
from carebn.kernels.simd import LANES
from carebn.kernels.tables import Table


def _stamp() -> int:
    sources = sorted(Path(__file__).parent.glob("*.py"))
    content = b"".join(p.read_bytes() for p in sources) + bytes([LANES])
    return int.from_bytes(hashlib.sha256(content).digest()[:7]) + 1


def _build(one: Any, stamp: int) -> dict[str, tuple[Table, Callable[[int], None]]]:
    """Each opens its table, does its work, and reports."""

    def moments(address: int) -> None:
        if stamp:
            t = _MOMENTS(address)
            leave(t, scan.moments(t, one))

    def fire(address: int) -> None:
        if stamp:
            t = _FIRE(address)
            leave(t, scan.fire(t, one))

    def fire_backward(address: int) -> None:
        if stamp:
            t = _FIRE_BACKWARD(address)
            leave(t, scan.fire_backward(t, one))

    def norm_backward(address: int) -> None:
        if stamp:
            t = _NORM_BACKWARD(address)
            leave(t, scan.norm_backward(t, one))

    def update_moving(address: int) -> None:
        if stamp:
            t = _UPDATE(address)
            norm_statistics.update_moving(t, one)
            leave(t, 0)

    def distances(address: int) -> None:
        if stamp:
            t = _DISTANCES(address)
            leave(t, encoder.distances(t, one))

    def field_gradients(address: int) -> None:
        if stamp:
            t = _FIELD_GRADIENTS(address)
            leave(t, encoder.field_gradients(t, one))

    def act_(address: int) -> None:
        if stamp:
            t = _ACTOR(address)
            leave(t, act.act(t, one))

    def spike_product(address: int) -> None:
        if stamp:
            t = _PRODUCT(address)
            leave(t, lookup.product(t, one))

    def spike_weight_gradient(address: int) -> None:
        if stamp:
            t = _WEIGHT_GRADIENT(address)
            leave(t, lookup.weight_gradient(t, one))

    def packed_encode(address: int) -> None:
        if stamp:
            t = _PACKED_ENCODE(address)
            leave(t, packed.encode(t, one))

    def packed_count(address: int) -> None:
        if stamp:
            t = _PACKED_COUNT(address)
            leave(t, packed.count(t, one))

    def packed_layer(address: int) -> None:
        if stamp:
            t = _PACKED_LAYER(address)
            leave(t, packed.layer(t, one))

    def packed_layer_backward(address: int) -> None:
        if stamp:
            t = _PACKED_LAYER_BACKWARD(address)
            leave(t, packed.layer_backward(t, one))

    def integrate_and_fire(address: int) -> None:
        if stamp:
            t = _NETWORK(address)
            leave(t, integrate.integrate(t, one))

    return {
        "moments": (scan.MOMENTS, moments),
        "fire": (scan.FIRE, fire),
        "fire_backward": (scan.FIRE_BACKWARD, fire_backward),
        "norm_backward": (scan.NORM_BACKWARD, norm_backward),
        "update_moving": (norm_statistics.UPDATE, update_moving),
        "distances": (encoder.DISTANCES, distances),
        "field_gradients": (encoder.FIELD_GRADIENTS, field_gradients),
        "act": (act.ACTOR, act_),
        "spike_product": (lookup.PRODUCT, spike_product),
        "spike_weight_gradient": (lookup.WEIGHT_GRADIENT, spike_weight_gradient),
        "packed_encode": (packed.ENCODE, packed_encode),
        "packed_count": (packed.COUNT, packed_count),
        "packed_layer": (packed.LAYER, packed_layer),
        "packed_layer_backward": (packed.LAYER_BACKWARD, packed_layer_backward),
        "integrate_and_fire": (integrate.NETWORK, integrate_and_fire),
    }


# Under names of their own, because a compiled function finds what it calls among the globals of its module.
_MOMENTS, _FIRE, _FIRE_BACKWARD = scan.MOMENTS.at, scan.FIRE.at, scan.FIRE_BACKWARD.at
_NORM_BACKWARD, _UPDATE, _ACTOR = scan.NORM_BACKWARD.at, norm_statistics.UPDATE.at, act.ACTOR.at
_DISTANCES, _FIELD_GRADIENTS = encoder.DISTANCES.at, encoder.FIELD_GRADIENTS.at
_PRODUCT, _WEIGHT_GRADIENT = lookup.PRODUCT.at, lookup.WEIGHT_GRADIENT.at
_PACKED_ENCODE, _PACKED_COUNT, _NETWORK = packed.ENCODE.at, packed.COUNT.at, integrate.NETWORK.at
_PACKED_LAYER, _PACKED_LAYER_BACKWARD = packed.LAYER.at, packed.LAYER_BACKWARD.at

_SINGLE, _DOUBLE = _build(float32(1), _stamp()), _build(float64(1), _stamp())
KERNELS: dict[str, Kernel] = {
    name: Kernel(name, table, {torch.float32: entry, torch.float64: _DOUBLE[name][1]})
    for name, (table, entry) in _SINGLE.items()
}

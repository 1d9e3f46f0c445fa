"""The kernels by name and precision, each compiled when first used and then kept on disk.

Numba's disk cache notices a change of the file a kernel is in, but not of the files it calls into. So every kernel here
also carries a stamp made from all the kernel sources: change one, and what was compiled before no longer fits.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from carebn.kernels import encoder, infer, integrate, lookup, packed, scan, vectors
from carebn.kernels.jit import float32, float64
from carebn.kernels.pool import i_am_first, read_table, wait_for_all

LIF, DN = 0, 1  # the families of scans, as the first entry of a table


def _stamp() -> int:
    sources = sorted(Path(__file__).parent.glob("*.py"))
    return int.from_bytes(hashlib.sha256(b"".join(p.read_bytes() for p in sources)).digest()[:7]) + 1


def _build(one: Any, stamp: int) -> dict[str, Callable[[int], None]]:
    """Tables are [family or 0, entries of the first part, entries of the second part, ...]."""

    def moments(table: int) -> None:
        if stamp:
            scan.moments(table, 1, one)

    def fire(table: int) -> None:
        if stamp:
            if read_table(table, 0, 1)[0] == LIF:
                scan.lif_forward(table, 1, one)
            else:
                scan.dn_forward(table, 1, one)

    def fire_backward(table: int) -> None:
        if stamp:
            if read_table(table, 0, 1)[0] == LIF:
                scan.lif_backward(table, 1, one)
            else:
                scan.dn_backward(table, 1, one)

    def finish(table: int) -> None:
        if stamp:
            scan.finish(table, 1, one)

    def update_moving(table: int) -> None:
        if stamp:
            vectors.update_moving(table, 1, one)

    def normalise_and_fire(table: int) -> None:
        """Moments (7 entries), statistics (14), update of the moving statistics (12), scan."""
        if stamp:
            scan.moments(table, 1, one)
            wait_for_all(table)
            if i_am_first(table):
                vectors.statistics(table, 8, 0, read_table(table, 8, 1)[0], one)
                if vectors.is_finite(table, 8):
                    vectors.update_moving(table, 22, one)
            wait_for_all(table)
            if read_table(table, 0, 1)[0] == LIF:
                scan.lif_forward(table, 34, one)
            else:
                scan.dn_forward(table, 34, one)

    def normalise_and_fire_backward(table: int) -> None:
        """Scan (16 entries), pull-back of the sums (10), finish."""
        if stamp:
            if read_table(table, 0, 1)[0] == LIF:
                scan.lif_backward(table, 1, one)
            else:
                scan.dn_backward(table, 1, one)
            wait_for_all(table)
            if i_am_first(table):
                vectors.pull_back(table, 17, 0, read_table(table, 17, 1)[0], one)
            wait_for_all(table)
            scan.finish(table, 27, one)

    def distances(table: int) -> None:
        if stamp:
            encoder.distances(table, 1, one)

    def field_gradients(table: int) -> None:
        if stamp:
            encoder.field_gradients(table, 1, one)

    def encode(table: int) -> None:
        if stamp:
            encoder.encode(table, 1, one)

    def act(table: int) -> None:
        if stamp:
            infer.infer(table, 0, one)

    def spike_product(table: int) -> None:
        if stamp:
            lookup.product(table, 1, one)

    def spike_weight_gradient(table: int) -> None:
        if stamp:
            lookup.weight_gradient(table, 1, one)

    def packed_encode(table: int) -> None:
        if stamp:
            packed.encode(table, 0, one)

    def packed_count(table: int) -> None:
        if stamp:
            packed.count(table, 0, one)

    def packed_layer(table: int) -> None:
        if stamp:
            packed.layer(table, 0, one)

    def packed_layer_backward(table: int) -> None:
        if stamp:
            packed.layer_backward(table, 0, one)

    def integrate_and_fire(table: int) -> None:
        if stamp:
            integrate.integrate(table, 0, one)

    kernels = (
        moments,
        fire,
        fire_backward,
        finish,
        update_moving,
        normalise_and_fire,
        normalise_and_fire_backward,
        distances,
        field_gradients,
        encode,
        act,
        spike_product,
        spike_weight_gradient,
        packed_encode,
        packed_count,
        packed_layer,
        packed_layer_backward,
        integrate_and_fire,
    )
    return {kernel.__name__: kernel for kernel in kernels}


KERNELS: dict[torch.dtype, dict[str, Callable[[int], None]]] = {
    torch.float32: _build(float32(1), _stamp()),
    torch.float64: _build(float64(1), _stamp()),
}

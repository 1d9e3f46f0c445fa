"""Integrate-and-fire neurons, layer by layer: no leak, a threshold each that a spike subtracts, a constant input."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn

from carebn.introspection import stands_for
from carebn.kernels.catalogue import KERNELS
from carebn.kernels.integrate import LAYER
from carebn.router import why_not_integrate


def integrate_and_fire(current: Tensor, v: Tensor, threshold: Tensor) -> tuple[Tensor, Tensor]:
    """H = V + I;  S = 1 if H > θ;  V = H − θ·S. Returns (S, V). θ is per neuron; it is not trained, so no surrogate."""
    h = v + current
    spike = (h > threshold).to(h.dtype)
    return spike, torch.addcmul(h, spike, threshold, value=-1)


class Activity(NamedTuple):
    rate: Tensor  # [B, out]: mean spikes per step of the last layer, over the steps that are read out
    counts: Tensor  # [B, neurons]: spikes of every neuron over all steps
    end: Tensor  # [B, neurons]: potentials after the last step


@stands_for("integrate-and-fire layer", "forward", "linear threshold")
class IntegrateFireLayer(nn.Module):
    """``linear`` says what an incoming spike adds to the potential, ``threshold`` where each neuron fires."""

    threshold: Tensor

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.register_buffer("threshold", torch.ones(out_features))


@stands_for("integrate-and-fire body", "run parts _pure")
class IntegrateFireBody(nn.Module):
    """The layers one after the other, without delay. Neurons are numbered through, from the first layer to the last."""

    def __init__(self, sizes: Sequence[int]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(IntegrateFireLayer(a, b) for a, b in pairwise(sizes))

    def parts(self) -> list[IntegrateFireLayer]:
        return [layer for layer in self.layers if isinstance(layer, IntegrateFireLayer)]

    @property
    def thresholds(self) -> Tensor:
        """Of all neurons, [neurons]."""
        return torch.cat([layer.threshold for layer in self.parts()])

    @torch.no_grad()
    def run(self, x: Tensor, start: Tensor, steps: int, read_from: int) -> Activity:
        """``steps`` steps from the potentials ``start`` [B, neurons]; the rate is that of the steps from ``read_from``.

        On the CPU a compiled kernel does it, spike by spike.
        """
        simulate = self._pure if why_not_integrate(self, x, start) else self._compiled
        read, counts, end = simulate(x, start, steps, read_from)
        return Activity(read / (steps - read_from), counts, end)

    def _pure(self, x: Tensor, start: Tensor, steps: int, read_from: int) -> tuple[Tensor, Tensor, Tensor]:
        layers = self.parts()
        spikes = x[None]  # [1 or T, B, in]: the constant input is multiplied once
        counts, ends = [], []
        first = 0
        for layer in layers:
            first, v = first + len(layer.threshold), start[:, first : first + len(layer.threshold)]
            currents = layer.linear(spikes).expand(steps, -1, -1)
            train = []
            for current in currents.unbind(0):
                spike, v = integrate_and_fire(current, v, layer.threshold)
                train.append(spike)
            spikes = torch.stack(train)
            counts.append(spikes.sum(0))
            ends.append(v)
        return spikes[read_from:].sum(0), torch.cat(counts, -1), torch.cat(ends, -1)

    def _compiled(self, x: Tensor, start: Tensor, steps: int, read_from: int) -> tuple[Tensor, Tensor, Tensor]:
        layers = self.parts()
        x, end = x.contiguous(), start.clone(memory_format=torch.contiguous_format)
        counts = torch.empty_like(end)
        sizes = [len(layer.threshold) for layer in layers]
        read = torch.empty_like(end[:, : sizes[-1]])
        # A neuron's outgoing weights in one piece. Made anew for every call: nothing tells of all the ways in which a
        # weight may have changed since the last one.
        outgoing = [layer.linear.weight.t().contiguous() for layer in layers]
        tables = [
            LAYER.fill(
                (0, 0, 0, 0), 1, x.dtype,
                {"inputs": weight.shape[0], "outputs": size, "weight": weight, "bias": layer.linear.bias,
                 "threshold": layer.threshold},
            )
            for layer, size, weight in zip(layers, sizes, outgoing, strict=True)
        ]  # fmt: skip
        KERNELS["integrate_and_fire"](
            x.dtype,
            batch=len(x), steps=steps, first_read=read_from, layers=len(layers), inputs=x.shape[1],
            neurons=end.shape[1], widest=max(sizes), outputs=sizes[-1], x=x, v=end, counts=counts, read=read,
            tables=torch.tensor([table.address for table in tables], dtype=torch.int64, device="cpu"),
        )  # fmt: skip
        return read, counts, end

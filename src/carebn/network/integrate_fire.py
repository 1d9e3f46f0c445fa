"""Layers of integrate-and-fire neurons with a threshold each, driven by an input that is constant in time."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn

from carebn.kernels import fused
from carebn.kernels.entries import KERNELS
from carebn.kernels.pool import run
from carebn.neuron.integrate_fire import integrate_and_fire


class Activity(NamedTuple):
    rate: Tensor  # [B, out]: mean spikes per step of the last layer, over the steps that are read out
    counts: Tensor  # [B, neurons]: spikes of every neuron over all steps
    end: Tensor  # [B, neurons]: potentials after the last step


class IntegrateFireLayer(nn.Module):
    """``linear`` says what an incoming spike adds to the potential, ``threshold`` where each neuron fires."""

    threshold: Tensor

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.register_buffer("threshold", torch.ones(out_features))


class IntegrateFireBody(nn.Module):
    """The layers one after the other, without delay. Neurons are numbered through, from the first layer to the last."""

    def __init__(self, sizes: Sequence[int]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(IntegrateFireLayer(a, b) for a, b in pairwise(sizes))
        self._note: tuple[list[tuple[Tensor, int, int]], list[Tensor]] = ([], [])

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
        alike = all(t.dtype == x.dtype for t in (start, *(layer.threshold for layer in self.parts())))
        simulate = self._compiled if fused.usable(x) and alike else self._pure
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
        weights = self._transposed(layers)
        x, end = x.contiguous(), start.clone(memory_format=torch.contiguous_format)
        counts = torch.empty_like(end)
        sizes = [len(layer.threshold) for layer in layers]
        read = x.new_empty(len(x), sizes[-1])
        entries = [
            entry
            for layer, weight in zip(layers, weights, strict=True)
            for entry in (*weight.shape, *(t.data_ptr() for t in (weight, layer.linear.bias, layer.threshold)))
        ]
        run(
            KERNELS[x.dtype]["integrate_and_fire"],
            len(x), steps, read_from, len(layers), x.shape[1], end.shape[1], max(sizes),
            *(t.data_ptr() for t in (x, end, counts, read)), *entries,
        )  # fmt: skip
        return read, counts, end

    def _transposed(self, layers: list[IntegrateFireLayer]) -> list[Tensor]:
        """A neuron's outgoing weights in one piece, as the kernel reads them; made anew when a weight has changed."""
        now = [(layer.linear.weight, layer.linear.weight._version, layer.linear.weight.data_ptr()) for layer in layers]
        noted, weights = self._note
        if not (noted and all(a[0] is b[0] and a[1:] == b[1:] for a, b in zip(noted, now, strict=True))):
            weights = [weight.detach().t().contiguous() for weight, *_ in now]
            self._note = now, weights
        return weights

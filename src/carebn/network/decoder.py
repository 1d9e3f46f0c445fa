"""From spikes to numbers: populations read out by non-spiking neurons."""

import math

import torch
from torch import Tensor, nn

from carebn.errors import unknown_name
from carebn.introspection import stands_for
from carebn.kernels.rates import answer, is_asked

READOUTS = ("membrane", "rate", "max-membrane", "mean-membrane")
SCALES = ("scaled", "torch")


@stands_for("decoder", "forward read reads_counts", "weight bias readout")
class PopulationDecoder(nn.Module):
    """``decoder(spikes: [T, B, outputs·population]) → [B, outputs]``; each output reads its own population only.

    - ``membrane``: a non-spiking neuron sums V_t = V_{t−1} + w·S_t + b; the output is V_T
    - ``rate``: w·(mean over t of S_t) + b: PopSAN and the authors' code
    - ``max-membrane``: the V_t furthest from zero, with its sign: an ablation of ILC-SAN
    - ``mean-membrane``: the mean of V_t over t: another

    ``init="scaled"``: the weights and bias of a membrane start at 1/T of the usual scale, so that its first output
    equals that of the rate; ``"torch"``: at the usual scale, as in ILC-SAN.
    """

    belongs: Tensor

    def __init__(
        self,
        outputs: int,
        population: int = 10,
        time_steps: int = 5,
        *,
        readout: str = "membrane",
        init: str = "scaled",
    ) -> None:
        super().__init__()
        for what, value, known in (("readout", readout, READOUTS), ("start of the read-out", init, SCALES)):
            if value not in known:
                raise ValueError(unknown_name(what, value, known))
        self.outputs = outputs
        self.population = population
        self.readout = readout
        bound = 1 / math.sqrt(population)
        self.weight = nn.Parameter(torch.empty(outputs, population).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(outputs).uniform_(-bound, bound))
        # One small product with a block-diagonal matrix is several times faster than sums over ten numbers each.
        self.register_buffer("belongs", self.block_diagonal(), persistent=False)
        if readout != "rate" and init == "scaled":
            with torch.no_grad():
                self.weight.div_(time_steps)
                self.bias.div_(time_steps)

    def block_diagonal(self) -> Tensor:
        """Which output each neuron belongs to, [outputs·population, outputs]."""
        return torch.eye(self.outputs).repeat_interleave(self.population, 0)

    def forward(self, spikes: Tensor) -> Tensor:
        steps = spikes.shape[0]
        if not self.reads_counts:
            matrix = self.weight.reshape(-1, 1) * self.belongs
            potentials = (spikes @ matrix + self.bias).cumsum(0)
            if self.readout == "mean-membrane":
                return potentials.mean(0)
            return potentials.gather(0, potentials.detach().abs().argmax(0, keepdim=True))[0]
        counts = spikes.sum(0)
        if is_asked(self):  # of the counts, so that the gradient stays the same at every step
            answer(counts.mean() / steps)
        return self.read(counts, steps)

    @property
    def reads_counts(self) -> bool:
        """Whether the output depends only on how often each neuron fired."""
        return self.readout in ("membrane", "rate")

    def read(self, counts: Tensor, steps: int) -> Tensor:
        """The output for spike counts [B, outputs·population]."""
        matrix = self.weight.reshape(-1, 1) * self.belongs
        if self.readout == "rate":
            return torch.addmm(self.bias, counts, matrix, alpha=1 / steps)
        return torch.addmm(self.bias, counts, matrix, beta=steps)


Q_READOUTS = ("membrane", "count")


class MembraneReadout(nn.Linear):
    """``readout(spikes: [T, B, in]) → [B, out]``: fully connected non-leaky, non-spiking neurons, Σ_t (W·S_t + b).

    ``kind="count"``: W·(Σ_t S_t) + b, the bias once, as in the authors' code.
    """

    def __init__(self, in_features: int, out_features: int, kind: str = "membrane") -> None:
        super().__init__(in_features, out_features)
        if kind not in Q_READOUTS:
            raise ValueError(unknown_name("readout of a Q-network", kind, Q_READOUTS))
        self.kind = kind

    def forward(self, spikes: Tensor) -> Tensor:
        times = spikes.shape[0] if self.kind == "membrane" else 1
        counts = spikes.sum(0)
        if is_asked(self):
            answer(counts.mean() / spikes.shape[0])
        return counts @ self.weight.t() + times * self.bias

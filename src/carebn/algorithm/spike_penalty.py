"""A price for spikes: λ times the firing rate of each population, added to the loss of the policy.

With a target in place of λ the price is found on the way. With the excess e = (rate − target)/target, within ±1, each
update that trains the policy

    charges   λ · clip(½ + e/(2·BAND), 0, 1)     nothing well below the target, all of λ well above it
    and sets  log λ ← log λ + STEP · e           dearer as long as too many fire, else cheaper

so that λ finds its order of magnitude, which is the critic's, and a population that has become quiet is left alone. λ
is part of the agent's state. A target of 1 holds always: nothing is charged.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from carebn.kernels.rates import FiringRates, firing_rates

BAND = 0.1  # of the target, on either side of it: where a part of λ is charged
STEP = 0.002  # the most that log λ moves in one update
RANGE = (1e-3, 1e6)  # of λ: what falls or rises for long must not take as long to come back
START = 1.0  # of λ
RATE, CHARGED = "spikes/", "spike_penalty/"  # how the names of what is logged begin


class SpikePenalty(nn.Module):
    log_penalty: Tensor

    def __init__(self, populations: Sequence[str], penalty: Sequence[float] = (), target: Sequence[float] = ()) -> None:
        """One λ or one target for each of the populations, by their names."""
        super().__init__()
        if len(penalty or target) != len(populations) or (penalty and target):
            raise ValueError(f"{len(populations)} populations need as many penalties, or as many target rates")
        self.names = list(populations)
        self._fixed = torch.tensor(penalty, dtype=torch.float64) if penalty else None
        self._target = tuple(target)
        if target:
            start = torch.full((len(target),), START, dtype=torch.float64).log()
            self.register_buffer("log_penalty", start)
        self._heard: FiringRates | None = None
        self._told: dict[str, Tensor] = {}

    @contextmanager
    def hearing(self, policy: nn.Module) -> Iterator[None]:
        with firing_rates(policy) as self._heard:
            yield

    def loss(self) -> Tensor:
        """Σ λ · rate of what was heard last, with a gradient; λ then moves."""
        assert self._heard is not None
        rates, self._heard = self._heard.rates, None
        now = rates.detach().double().cpu()
        penalty = self._charge(now.tolist()) if self._fixed is None else self._fixed
        self._told = {RATE + name: rate for name, rate in zip(self.names, now, strict=True)}
        if self._target:
            charged = zip(self.names, penalty, self._target, strict=True)
            self._told |= {CHARGED + name: each for name, each, target in charged if target < 1}
        return rates @ penalty.to(rates)

    def told(self) -> dict[str, Tensor]:
        """Firing rates of the last update, and what was charged for them where that is found on the way."""
        return self._told

    def _charge(self, rates: list[float]) -> Tensor:
        """In Python's numbers: for a handful of them, torch would take longer than counting the spikes."""
        low, high = map(math.log, RANGE)
        charged, logs = [], []
        for rate, target, log in zip(rates, self._target, self.log_penalty.tolist(), strict=True):
            excess = min(max((rate - target) / target, -1.0), 1.0)
            charged.append(math.exp(log) * min(max(0.5 + excess / (2 * BAND), 0.0), 1.0) if target < 1 else 0.0)
            logs.append(min(max(log + STEP * excess, low), high))
        self.log_penalty.copy_(torch.tensor(logs, dtype=torch.float64))
        return torch.tensor(charged, dtype=torch.float64)

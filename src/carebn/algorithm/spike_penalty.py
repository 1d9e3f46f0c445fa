"""A price for spikes: λ times the firing rate of each population, added to the loss of the policy.

With a target in place of λ the price is found on the way. With the excess e = (rate − target)/target, within ±1, each
update that trains the policy

    charges   λ · clip(½ + e/(2·BAND), 0, 1)     nothing well below the target, all of λ well above it
    and sets  log λ ← log λ + STEP · e           dearer as long as too many fire, else cheaper

so that λ finds its order of magnitude, which is the critic's, and a population that has become quiet is left alone. λ
is part of the agent's state. A target of 1 holds always: nothing is charged.
"""

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
        self._target = torch.tensor(target, dtype=torch.float64) if target else None
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
        penalty = self._charge(now)
        self._told = {RATE + name: rate for name, rate in zip(self.names, now, strict=True)}
        if self._target is not None:
            charged = zip(self.names, penalty, self._target.tolist(), strict=True)
            self._told |= {CHARGED + name: each for name, each, target in charged if target < 1}
        return rates @ penalty.to(rates)

    def told(self) -> dict[str, Tensor]:
        """Firing rates of the last update, and what was charged for them where that is found on the way."""
        return self._told

    def _charge(self, rates: Tensor) -> Tensor:
        if self._target is None:
            assert self._fixed is not None
            return self._fixed
        excess = ((rates - self._target) / self._target).clamp(-1, 1)
        charged: Tensor = self.log_penalty.exp() * (0.5 + excess / (2 * BAND)).clamp(0, 1)
        low, high = torch.tensor(RANGE, dtype=torch.float64).log()
        self.log_penalty.add_(STEP * excess).clamp_(low, high)
        return torch.where(self._target < 1, charged, 0.0)

"""From a trained ANN to a spiking network that computes nearly the same: ``convert(network, observations)``."""

from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from carebn.conversion.converted import ConvertedActor, ConvertedQNetwork, Simulation, shaped_like
from carebn.conversion.delay import delay, delayed_start
from carebn.conversion.thresholds import RULES, draws
from carebn.errors import unknown_name
from carebn.limits import BATCHES, LARGEST_SEED, TIME_STEPS, check_most, check_work
from carebn.network.ann import ANNActor, relu_layers
from carebn.network.qnetwork import ANNQNetwork
from carebn.norm.folding import fold_norm

DELAY_SAMPLE = 4096  # observations from which the delay is estimated
LARGEST_BATCH = 100_000


@dataclass(frozen=True)
class Conversion:
    """What a converted network depends on, besides the network and the observations.

    ``rule`` is ``ltb`` (local threshold balancing) or ``max`` (each neuron's largest activation), ``time_steps`` the
    simulation steps of one decision, ``residual`` what is carried from one decision to the next.
    """

    rule: str = "ltb"  # local threshold balancing, or each neuron's largest activation
    time_steps: int = 100
    residual: str = "none"
    alpha: float | None = None  # of the residual; None: 0.3
    read_out_from: int | None = None  # None: after the estimated delay; with a residual, from the first step
    iterations: int | None = None  # batches of the balancing; None: 1000
    batch_size: int = 256
    seed: int = 0  # of the batches

    def checked(self) -> Self:
        """With every default filled in, except a read-out that waits for the delay to be known."""
        if self.rule not in RULES:
            raise ValueError(unknown_name("rule", self.rule, RULES))
        for name in ("iterations", "batch_size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if self.seed < 0:
            raise ValueError(f"seed must not be negative, got {self.seed}")
        check_work("iterations", self.iterations or 1, BATCHES)
        check_most("batch_size", self.batch_size, LARGEST_BATCH)
        check_most("time_steps", self.time_steps, TIME_STEPS)
        check_most("seed", self.seed, LARGEST_SEED)
        if self.rule == "max" and self.iterations is not None:
            raise ValueError("rule max looks at every observation once, so iterations do not apply")
        if self.residual == "none" and self.alpha is not None:
            raise ValueError("alpha says how much of the residual is carried over, and residual is none; use crpi")
        iterations = 1000 if self.rule == "ltb" and self.iterations is None else self.iterations
        alpha = 0.3 if self.residual != "none" and self.alpha is None else self.alpha
        whole = self.residual != "none" and self.read_out_from is None
        full = replace(self, iterations=iterations, alpha=alpha, read_out_from=0 if whole else self.read_out_from)
        full.simulation(0.0)  # checks the rest
        return full

    def simulation(self, delay: float) -> Simulation:
        start = delayed_start(delay, self.time_steps) if self.read_out_from is None else self.read_out_from
        return Simulation(self.time_steps, start, self.residual, self.alpha or 0.0)


def folded_layers(body: nn.Sequential) -> list[nn.Linear]:
    """The Linears of a ReLU body, each with the norm behind it (moving statistics) taken into weight and bias."""
    layers: list[nn.Linear] = []
    for linear, norm in relu_layers(body):
        weight, bias, _ = fold_norm(linear, norm)
        layer = nn.Linear(linear.in_features, linear.out_features).to(linear.weight).requires_grad_(False)
        layer.weight.copy_(weight)
        layer.bias.copy_(bias[0])
        layers.append(layer)
    return layers


@torch.no_grad()
def convert(
    network: nn.Module, observations: NDArray[Any] | Tensor, **options: Any
) -> ConvertedActor | ConvertedQNetwork:
    """The spiking counterpart of an ordinary actor or Q-network; ``options`` are those of ``Conversion``.

    Norms are folded, every ReLU becomes an integrate-and-fire neuron whose threshold the observations set, and the
    output layer reads the mean of the last spikes.
    """
    conversion = Conversion(**options).checked()
    converted = shaped_like(network, conversion.simulation(0.0))
    assert isinstance(network, (ANNActor, ANNQNetwork))
    if len(observations) == 0:
        raise ValueError("there are no observations to set the thresholds from")
    seen = torch.as_tensor(observations)
    if seen.is_floating_point() and not torch.isfinite(seen).all():
        raise ValueError("the observations to set the thresholds from hold NaN or infinity")
    layers, device = folded_layers(network.body), network.head.weight.device
    rule = RULES[conversion.rule]
    batches = rule.batches(seen, conversion.iterations or 0, conversion.batch_size, conversion.seed)
    thresholds = rule.thresholds(layers, (converted.prepared(batch.to(device)) for batch in batches))
    sample = next(draws(seen, 1, DELAY_SAMPLE, conversion.seed))
    converted.delay.fill_(delay(layers, thresholds, converted.prepared(sample.to(device))))
    converted.simulation = conversion.simulation(float(converted.delay))
    amplitude = network.head.weight.new_ones(())  # of what comes into a layer: the observation, or spikes worth θ each
    for target, source, threshold in zip(converted.body.parts(), layers, thresholds, strict=True):
        target.linear.weight.copy_(source.weight * amplitude)
        target.linear.bias.copy_(source.bias)
        target.threshold.copy_(threshold)
        amplitude = threshold
    converted.head.weight.copy_(network.head.weight * amplitude)
    converted.head.bias.copy_(network.head.bias)
    return converted

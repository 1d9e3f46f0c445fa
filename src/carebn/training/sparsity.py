"""The options that ask for few spikes, ``--spike-penalty`` and ``--target-rate``: checked, and one number for each
population."""

from collections.abc import Mapping, Sequence

from torch import nn

from carebn.algorithm import Agent, BaseAgent, find_algorithm
from carebn.algorithm.spike_penalty import RATE, SpikePenalty
from carebn.limits import check_float32
from carebn.network import SpikingActor, SpikingQNetwork

Numbers = tuple[float, ...]


def check(penalty: Numbers, target: Numbers, algo: str, hidden: Sequence[int], coding: str) -> None:
    """A mistake is a ValueError of one sentence."""
    if not penalty and not target:
        return
    flag = "--spike-penalty" if penalty else "--target-rate"
    if penalty and target:
        raise ValueError("--spike-penalty and --target-rate exclude each other: a target finds its own penalty")
    if not find_algorithm(algo).spike_penalty:
        raise ValueError(f"{flag} does not apply: {algo} does not say that its update adds a penalty on spikes")
    for value in penalty:
        if not 0 <= value < float("inf"):
            raise ValueError(f"--spike-penalty must be finite and not negative, got {value}")
        if value:
            check_float32("--spike-penalty", value)
    for value in target:
        if not 0 < value <= 1:
            raise ValueError(f"--target-rate must lie above 0, and at most at 1, which sets no limit, got {value}")
    names = _populations(algo, hidden, coding)
    if len(penalty or target) not in (1, len(names)):
        raise ValueError(
            f"{flag} takes one number, or one for each of {', '.join(names)}, got {len(penalty or target)} of them"
        )


def _populations(algo: str, hidden: Sequence[int], coding: str) -> list[str]:
    layers = [f"layer_{i + 1}" for i in range(len(hidden))]
    if find_algorithm(algo).discrete:
        return layers
    return [*([] if coding == "analogue" else ["encoder"]), *layers, "output_population"]


def penalise(agent: Agent, policy: nn.Module, penalty: Numbers, target: Numbers) -> None:
    """A single penalty is for every population, a single target for the hidden layers."""
    assert isinstance(agent, BaseAgent), f"{type(agent).__name__} is no BaseAgent, whose spikes could be penalised"
    assert isinstance(policy, (SpikingActor, SpikingQNetwork))
    populations = policy.populations()
    if len(penalty) == 1:
        penalty = penalty * len(populations)
    if len(target) == 1:
        target = tuple(target[0] if name.startswith("layer") else 1.0 for name in populations)
    agent.penalise_spikes(SpikePenalty(populations, penalty, target))


def firing(losses: Mapping[str, float]) -> str:
    """What was logged of spikes, for people; empty if nothing was."""
    rates = {name.removeprefix(RATE).replace("_", " "): rate for name, rate in losses.items() if name.startswith(RATE)}
    return ", ".join(f"{name} {rate:.1%}" for name, rate in rates.items())

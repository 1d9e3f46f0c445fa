"""What a card says of a policy, measured: its return, what fires, what a decision costs and how long it takes."""

import platform
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from carebn import __version__
from carebn.conversion import Converted
from carebn.deploy.folding import fold
from carebn.deploy.runtime import DeployedPolicy
from carebn.machine import cores, processor
from carebn.measure.bill import Bill
from carebn.measure.crossing import compare
from carebn.measure.energy import Count, counterpart
from carebn.measure.prices import PRICES, Prices
from carebn.measure.spikes import decide
from carebn.network import SpikingActor, SpikingQNetwork
from carebn.training.evaluation import Evaluation, play
from carebn.training.policy import Policy

FIRST_SEED = 1_000_000  # as carebn evaluate plays them
USUAL = 10  # episodes of carebn evaluate
# Wide, because a card is looked at on other processors, as it is and exported: rounding there makes other episodes of
# the same seeds, and one look in a hundred must not contradict it.
CONFIDENCE = 0.9999
DRAWS = 200_000
COUNTED = 3  # episodes that spikes are counted in, as carebn energy does
CALLS, WARM_UP = 1000, 50  # of the policy, for its latency


def measure(policy: Policy, episodes: int, max_steps: int | None = None) -> dict[str, Any]:
    """All of it, in words of JSON."""
    most = max_steps or policy.config.eval_max_steps
    result = policy.evaluate(episodes, FIRST_SEED, max_steps=most)
    spent, seen = _counted(policy, most)
    return {"carebn": __version__, "return": _told(result), "cost": spent, "latency": _latency(policy, seen)}


# --- return -----------------------------------------------------------------------------------------------------------


def _told(result: Evaluation) -> dict[str, Any]:
    low, high = interval(result.returns)
    return {
        "episodes": len(result.returns),
        "first_seed": FIRST_SEED,
        "mean": result.mean,
        "std": result.std,
        "low": low,
        "high": high,
        "confidence": CONFIDENCE,
        "mean_of": min(USUAL, len(result.returns)),
        "mean_length": float(np.mean(result.lengths)),
        "cut": result.cut,
    }


def interval(returns: list[float]) -> tuple[float, float]:
    """Where the mean of ten episodes lies, drawn from these: what whoever plays ten others should see."""
    values = np.asarray(returns, np.float64)
    drawn = np.random.default_rng(0).choice(values, (DRAWS, min(USUAL, len(values)))).mean(axis=1)
    tail = 100 * (1 - CONFIDENCE) / 2
    low, high = np.percentile(drawn, [tail, 100 - tail])
    return float(low), float(high)


# --- spikes and energy ------------------------------------------------------------------------------------------------


def _counted(policy: Policy, max_steps: int | None) -> tuple[dict[str, Any], list[NDArray[Any]]]:
    """What decisions cost, and the observations of the first episode."""
    count, seen = Count(policy.network), list[NDArray[Any]]()
    envs = [policy.make_env() for _ in range(COUNTED)]

    def act(observations: NDArray[Any], state: NDArray[Any] | None) -> tuple[NDArray[Any], NDArray[Any] | None]:
        decision = decide(policy, observations, state)
        count.add(decision)
        if len(seen) < CALLS:
            seen.append(np.array(observations[0]))
        return decision.action, decision.state

    try:
        play(act, envs, range(FIRST_SEED, FIRST_SEED + COUNTED), policy.config.env_id, max_steps)
    finally:
        for env in envs:
            env.close()
    rates = [{"name": name, "rate": tally.rate, "spiking": tally.spiking} for name, tally in count.tallies.items()]
    spent: dict[str, Any] = {"episodes": COUNTED, "decisions": count.decisions, "populations": rates}
    try:
        spent["energy"] = _energies(policy, count)
    except ValueError as error:  # a neuron of somebody's own, whose operations are not known
        spent["not_priced"] = str(error)
    return spent, seen


def _energies(policy: Policy, count: Count) -> list[dict[str, Any]]:
    """In nanojoule at each list of prices: of the network and, if it spikes, of its ordinary counterpart."""
    bill = count.bill()
    if not isinstance(policy.network, SpikingActor | SpikingQNetwork | Converted):
        return [{"prices": name, "source": each.source} | _both("network", bill, each) for name, each in PRICES.items()]
    ann, compared = counterpart(policy.network), compare(count)
    return [
        {"prices": name, "source": each.source}
        | _both("network", bill, each)
        | _both("ann", ann, compared.ann[name])
        | ({"quantised_all": ann.nanojoule(compared.quantised[name])} if name in compared.quantised else {})
        for name, each in compared.spiking.items()
    ]


def _both(whose: str, bill: Bill, prices: Prices) -> dict[str, float]:
    synapses, everything = bill.nanojoule(prices, synapses_only=True), bill.nanojoule(prices)
    return {f"{whose}_synapses": synapses, f"{whose}_all": everything}


# --- latency ----------------------------------------------------------------------------------------------------------


def _latency(policy: Policy, seen: list[NDArray[Any]]) -> dict[str, Any]:
    """Milliseconds of one action, by this package and by its deployed form; on which machine."""
    found: dict[str, Any] = {
        "machine": {
            "processor": processor(),
            "cores": cores(),
            "threads": torch.get_num_threads(),
            "system": f"{platform.system()} {platform.machine()}",
            "python": platform.python_version(),
            "torch": torch.__version__,
        },
        "calls": CALLS,
        "policy": _milliseconds(policy.act, seen),
    }
    try:
        deployed = DeployedPolicy(fold(policy.network, byte_observations=policy.obs_dtype == np.uint8))
    except ValueError as error:  # not all that can be trained can be deployed
        return found | {"not_deployed": str(error)}
    return found | {"deployed": _milliseconds(deployed.predict, [obs.astype(policy.obs_dtype) for obs in seen])}


def _milliseconds(act: Callable[[NDArray[Any]], Any], seen: list[NDArray[Any]]) -> dict[str, float]:
    spent = []
    for i in range(-WARM_UP, CALLS):
        obs = seen[i % len(seen)]
        began = time.perf_counter()
        act(obs)
        if i >= 0:
            spent.append(1000 * (time.perf_counter() - began))
    return {"median": float(np.median(spent)), "fastest": min(spent)}

"""Options that are left to a default: where each one's value comes from, and when it has no meaning at all.

In this order: the user, the method, the paper's table of the algorithm (or that of the proxy), the values here.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from inspect import signature
from typing import TYPE_CHECKING, Any, TypeVar

from carebn.algorithm import find_algorithm, proxy_table
from carebn.norm import NORMS
from carebn.training.methods import Method
from carebn.training.warm_up import warm_up

if TYPE_CHECKING:
    from carebn.training.config import TrainConfig

Config = TypeVar("Config", bound="TrainConfig")

FROM_TABLE = (
    "batch_size", "gamma", "tau", "actor_learning_rate", "critic_learning_rate", "exploration_noise",
    "target_interval", "epsilon_decay_steps",
)  # fmt: skip

# The paper's framework
GENERAL: dict[str, Any] = {
    "learning_starts": 25_000,
    "update_interval": 1,
    "surrogate": "rectangle",
    "coding": "deterministic",
    "observation": "tanh",
    "encoder_reset": "spike",
    "encoder_range": 1.0,
    "encoder_std": math.sqrt(0.05),
    "readout": "membrane",
    "readout_init": "scaled",
    "intralayer": "none",
    "target": "polyak",
}
PROXY = {"proxy_hidden": "hidden", "proxy_learning_rate": "learning_rate", "proxy_updates": "updates"}
CONVERSION = {"conversion_steps": "time_steps", "residual_alpha": "alpha"}
WORDS = (
    "surrogate", "coding", "observation", "encoder_reset", "readout", "readout_init", "intralayer", "target",
)  # fmt: skip
LEFT_OPEN = (*FROM_TABLE, *GENERAL, "random_steps", "norm_momentum", *PROXY, *CONVERSION)

Why = Callable[["TrainConfig", Method], str]


def _spikes(config: "TrainConfig", method: Method) -> str:
    return "" if method.spiking else f"method {config.method} has no spiking neurons"


def _has_q(config: "TrainConfig") -> bool:
    return find_algorithm(config.algo).discrete


def _encodes(config: "TrainConfig", method: Method) -> str:
    return _spikes(config, method) or ("a Q-network has no population coding" if _has_q(config) else "")


def _normalises(config: "TrainConfig", method: Method) -> str:
    return f"method {config.method} has no normaliser" if method.norm == "none" else ""


def _has_momentum(config: "TrainConfig", method: Method) -> str:
    return _normalises(config, method) or (
        "" if "momentum" in signature(NORMS[method.norm]).parameters else f"normaliser {method.norm} has no momentum"
    )


def _starts_norm(config: "TrainConfig", method: Method) -> str:
    return _normalises(config, method) or (
        "" if method.spiking else "the norms of an ordinary network start at 1 and 0"
    )


def _has_target_actor(config: "TrainConfig", method: Method) -> str:
    return "" if find_algorithm(config.algo).target_actor else f"{config.algo} has no target actor"


def _has_proxy(config: "TrainConfig", method: Method) -> str:
    return "" if config.target == "proxy" else "there is no proxy without --target proxy"


def _converts(config: "TrainConfig", method: Method) -> str:
    return "" if method.conversion else f"method {config.method} is not converted"


def _carries_residual(config: "TrainConfig", method: Method) -> str:
    return "" if "alpha" in (method.conversion or {}) else f"method {config.method} carries no residual potentials"


def _takes_bytes(config: "TrainConfig", method: Method) -> str:
    return "" if _has_q(config) else f"{config.algo} has an actor, not a Q-network that reads bytes"


# Why an option means nothing here; an empty answer: it does mean something. Options not listed always do.
WHY_IT_DOES_NOT_APPLY: dict[str, Why] = {
    "time_steps": _spikes,
    "surrogate": _spikes,
    "spike_penalty": _spikes,
    "target_rate": _spikes,
    "coding": _encodes,
    "observation": _encodes,
    "encoder_reset": _encodes,
    "encoder_range": _encodes,
    "encoder_std": _encodes,
    "readout": _spikes,
    "readout_init": _encodes,
    "intralayer": _encodes,
    "norm_init": _starts_norm,
    "norm_momentum": _has_momentum,
    "target": _has_target_actor,
    **dict.fromkeys(PROXY, _has_proxy),
    "conversion_steps": _converts,
    "residual_alpha": _carries_residual,
    "raw_bytes": _takes_bytes,
}


def flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def table_of(config: "TrainConfig") -> dict[str, Any]:
    """The paper's table of the algorithm, under the names of our options."""
    return find_algorithm(config.algo).table()


def default_of(name: str, config: "TrainConfig", method: Method) -> Any:
    """The value of an option that the user has left open, in a configuration whose neuron and target are known."""
    preset = method.preset(config.env_id)
    if name in preset:
        return preset[name]
    if name in FROM_TABLE:
        return table_of(config)[name]
    if name == "norm_momentum":
        return signature(NORMS[method.norm]).parameters["momentum"].default
    if name in PROXY:
        return getattr(proxy_table(config.neuron, config.env_id), PROXY[name])
    if name in CONVERSION:
        return (method.conversion or {})[CONVERSION[name]]
    if name == "random_steps":
        return config.learning_starts
    return GENERAL[name]


def _with_warm_up(config: Config, method: Method) -> Config:
    """Unless the user says when learning starts, that and the random steps follow the budget."""
    if config.learning_starts is not None:
        return config
    batch_size = config.batch_size or (
        default_of("batch_size", config, method) if "batch_size" in table_of(config) else 1
    )

    def follow(published: int) -> int:
        return warm_up(published, config.total_timesteps, batch_size)

    random_steps = config.random_steps
    if random_steps is None and "random_steps" in method.preset(config.env_id):
        random_steps = follow(default_of("random_steps", config, method))
    return replace(
        config, learning_starts=follow(default_of("learning_starts", config, method)), random_steps=random_steps
    )


def fill(config: Config, method: Method) -> Config:
    """Every open option with its value; one that means nothing here is None (a word: "none"), and refused if given."""
    table, preset = table_of(config), method.preset(config.env_id)
    config = _with_warm_up(config, method)
    for name in LEFT_OPEN:
        value = getattr(config, name)
        is_open = value in (None, "default")
        unknown = f" to {config.algo}" if name in FROM_TABLE and name not in table else ""
        why = unknown or (WHY_IT_DOES_NOT_APPLY[name](config, method) if name in WHY_IT_DOES_NOT_APPLY else "")
        if why:
            if not is_open and value != "none":
                raise ValueError(f"{flag(name)} does not apply{unknown or ': ' + why}")
            value = "none" if name in WORDS else None
        elif is_open:
            value = default_of(name, config, method)
        elif name in method.fixed and value != preset[name]:
            raise ValueError(f"method {config.method} means {flag(name)} {preset[name]}, got {value}")
        config = replace(config, **{name: value})
    return config

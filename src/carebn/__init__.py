"""Spiking reinforcement learning with CaRe-BN."""

import sys

if sys.argv[:1] == ["-m"] and "carebn" in sys.orig_argv and not sys.flags.safe_path:
    # ``python -m carebn`` looks for modules in the current directory first: in a downloaded one, for anybody's.
    del sys.path[0]

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from carebn.errors import not_installed

if TYPE_CHECKING:
    from carebn.agents import DDPG, DQN, SAC, TD3
    from carebn.api import RunResult, export, train
    from carebn.network import SpikingActor, SpikingLayer, SpikingQNetwork
    from carebn.neuron import CLIF, DN, LIF, make_neuron
    from carebn.norm import CaReBN, CaReBN2d, make_norm, polyak_, recalibrate
    from carebn.training.policy import Policy

__version__ = "0.1.0"

# Imported when first asked for: a deployed policy needs no torch, and thread pools are sized before torch is loaded.
_ROOMS = {
    "carebn.agents": ("DDPG", "DQN", "SAC", "TD3"),
    "carebn.api": ("RunResult", "export", "train"),
    "carebn.network": ("SpikingActor", "SpikingLayer", "SpikingQNetwork"),
    "carebn.neuron": ("CLIF", "DN", "LIF", "make_neuron"),
    "carebn.norm": ("CaReBN", "CaReBN2d", "make_norm", "polyak_", "recalibrate"),
}
_ROOM_OF = {name: room for room, names in _ROOMS.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _ROOM_OF:
        raise AttributeError(f"module 'carebn' has no attribute {name!r}")
    return getattr(_room(_ROOM_OF[name], name), name)


def _room(room: str, name: str) -> Any:
    try:
        return import_module(room)
    except ModuleNotFoundError as error:
        if str(error.name).startswith("carebn"):
            raise
        raise ModuleNotFoundError(not_installed(f"carebn.{name}", error), name=error.name) from None


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def load(run_dir: Path | str, which: Literal["best", "last"] = "last", *, trust: bool = False) -> "Policy":
    """The policy of a training run: ``load(run_dir).predict(observation)``. Nothing in the directory is executed.

    ``run_dir`` may be a name of the zoo (``carebn zoo`` lists them), if no directory here has it.
    ``which`` is the one after the last step, or that of the best evaluation on the way. ``trust``: where an environment
    is made (``evaluate``), modules that the run's configuration names are imported.
    """
    room = _room("carebn.training.policy", "load")
    policy: Policy = room.load(_room("carebn.zoo.names", "load").find_run(run_dir), which, trust=trust)
    return policy


__all__ = [
    "CLIF",
    "DDPG",
    "DN",
    "DQN",
    "LIF",
    "SAC",
    "TD3",
    "CaReBN",
    "CaReBN2d",
    "RunResult",
    "SpikingActor",
    "SpikingLayer",
    "SpikingQNetwork",
    "__version__",
    "export",
    "load",
    "make_neuron",
    "make_norm",
    "polyak_",
    "recalibrate",
    "train",
]

"""Normalisers for spiking networks, all under one contract; nothing here knows about reinforcement learning."""

from collections.abc import Callable
from inspect import signature
from typing import Any

from torch import nn

from carebn.errors import unknown_name
from carebn.norm.base import Norm, StepNorm, TorchNorm
from carebn.norm.bn import BN, ReBN
from carebn.norm.bntt import BNTT
from carebn.norm.care import CaBN, CaReBN, CaReBN2d
from carebn.norm.none import NoNorm
from carebn.norm.polyak import polyak_
from carebn.norm.recalibrate import recalibrate
from carebn.norm.tab import TAB
from carebn.norm.tdbn import TDBN
from carebn.norm.tebn import TEBN

NORMS: dict[str, Callable[..., nn.Module]] = {
    "care": CaReBN,
    "ca": CaBN,
    "re": ReBN,
    "bn": BN,
    "tdbn": TDBN,
    "bntt": BNTT,
    "tebn": TEBN,
    "tab": TAB,
    "none": NoNorm,
}

INITS = ("own", "care")


def make_norm(
    name: str, num_features: int, time_steps: int = 5, *, v_threshold: float = 0.5, init: str = "own", **options: Any
) -> nn.Module:
    """The normaliser of that name for ``num_features`` features and ``time_steps`` steps.

    ``init="care"`` starts γ and β where CaRe-BN does, at half the threshold, so that a comparison of normalisers does
    not also compare starting points; ``"own"`` is each one's published start. Other options go to the class.
    """
    if name not in NORMS:
        raise ValueError(unknown_name("normaliser", name, NORMS))
    if init not in INITS:
        raise ValueError(unknown_name("init", init, INITS))
    if num_features < 1:
        raise ValueError(f"a normaliser needs at least one feature, got {num_features}")
    make = NORMS[name]
    if name == "none":
        if options:
            raise ValueError(f"normaliser 'none' has no option {next(iter(options))!r}")
        return NoNorm()
    accepted = signature(make).parameters
    given = {"time_steps": time_steps, "v_threshold": v_threshold}
    options = {k: v for k, v in given.items() if k in accepted} | options
    if init == "care" and "weight" in accepted:
        options = {"weight": v_threshold / 2, "bias": v_threshold / 2} | options
    for option in options:
        if option not in accepted:
            raise ValueError(unknown_name(f"option of normaliser {name!r}", option, set(accepted) - {"num_features"}))
    return make(num_features, **options)


__all__ = [
    "BN",
    "BNTT",
    "INITS",
    "NORMS",
    "TAB",
    "TDBN",
    "TEBN",
    "CaBN",
    "CaReBN",
    "CaReBN2d",
    "NoNorm",
    "Norm",
    "ReBN",
    "StepNorm",
    "TorchNorm",
    "make_norm",
    "polyak_",
    "recalibrate",
]

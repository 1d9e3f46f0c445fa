"""Normalisers for spiking networks, all under one contract; nothing here knows about reinforcement learning."""

from collections.abc import Callable
from inspect import signature
from typing import Any

from torch import nn

from carebn.errors import unknown_name
from carebn.norm.base import Norm, StepNorm
from carebn.norm.bn import BN, ReBN
from carebn.norm.bntt import BNTT
from carebn.norm.care import CaBN, CaReBN, CaReBN2d
from carebn.norm.none import NoNorm
from carebn.norm.polyak import polyak_
from carebn.norm.recalibrate import recalibrate
from carebn.norm.tab import TAB
from carebn.norm.tdbn import TDBN
from carebn.norm.tebn import TEBN
from carebn.norm.torch_norm import TorchNorm

#: Normalisers by the names that ``make_norm`` and the networks take; those of your own may be added.
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

#: Where γ and β start: as each normaliser's authors publish, or all as CaRe-BN.
INITS = ("own", "care")


def make_norm(
    name: str,
    num_features: int,
    time_steps: int = 5,
    *,
    v_threshold: float | None = None,
    init: str = "own",
    **options: Any,
) -> nn.Module:
    """The normaliser of that name for ``num_features`` features and ``time_steps`` steps.

    ``v_threshold`` is that of the neurons behind it: with it each has its published start, without it γ = 1 and β = 0
    as in torch. ``init="care"`` starts any of them where CaRe-BN does, at half the threshold, so that a comparison of
    normalisers does not also compare starting points. Other options go to the class.
    """
    if name not in NORMS:
        raise ValueError(unknown_name("normaliser", name, NORMS))
    if init not in INITS:
        raise ValueError(unknown_name("init", init, INITS))
    if init == "care" and v_threshold is None:
        raise ValueError("init='care' starts at half the threshold of the neurons: give v_threshold too")
    if num_features < 1:
        raise ValueError(f"a normaliser needs at least one feature, got {num_features}")
    make = NORMS[name]
    if name == "none":
        if options:
            raise ValueError(f"normaliser 'none' has no option {next(iter(options))!r}")
        return NoNorm()
    accepted = signature(make).parameters
    given = {"time_steps": time_steps, "v_threshold": v_threshold}
    options = {k: v for k, v in given.items() if k in accepted and v is not None} | options
    if init == "care" and v_threshold is not None and options.get("affine", True):
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

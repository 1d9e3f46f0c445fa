"""Methods by name: which actor, which normaliser."""

from dataclasses import dataclass

from carebn.errors import unknown_name


@dataclass(frozen=True)
class Method:
    summary: str
    norm: str = "none"
    spiking: bool = True
    neuron: str | None = None  # fixed by the method; None: the user's choice


METHODS: dict[str, Method] = {
    "care-bn": Method("spiking actor with CaRe-BN", norm="care"),
    "ca": Method("CaRe-BN without re-calibration", norm="ca"),
    "re": Method("plain batch norm with re-calibration", norm="re"),
    "bn": Method("spiking actor with plain batch norm", norm="bn"),
    "tdbn": Method("spiking actor with tdBN", norm="tdbn"),
    "bntt": Method("spiking actor with BNTT", norm="bntt"),
    "tebn": Method("spiking actor with TEBN", norm="tebn"),
    "tab": Method("spiking actor with TAB", norm="tab"),
    "vanilla": Method("spiking actor without a normaliser"),
    "pop-san": Method("vanilla with CLIF neurons", neuron="clif"),
    "mdc-san": Method("vanilla with dynamic neurons", neuron="dn"),
    "ann": Method("ordinary ReLU network", spiking=False),
    "ann-care": Method("ordinary ReLU network with CaRe-BN", norm="care", spiking=False),
}


def find_method(name: str) -> Method:
    if name not in METHODS:
        raise ValueError(unknown_name("method", name, METHODS))
    return METHODS[name]

"""The policy graph: a policy without normalisers, as plain numbers; the runtime executes it, every export writes it.

Float64 throughout. A spike is a comparison, and one that float32 decides differently sends another spike to every layer
behind; with float64 the folded network and the trained one agree on all of them.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carebn.deploy.archive import opened
from carebn.deploy.describe import check_origin
from carebn.equations import KNOWN, Equations
from carebn.errors import unknown_name

Array = NDArray[np.float64]

FORMAT = "carebn-policy"
# files of version 1 are read too; those of version 3 hold integer weights, of version 4 neurons with their equations
VERSION, WITH_INTEGERS, WITH_EQUATIONS = 2, 3, 4
WHOLE_NUMBERS = 5  # a policy of another kind: ``integer.py``
SQUASHES = ("none", "tanh", "clip")
CODINGS = ("direct", "analogue", "spikes")
READOUTS = ("sum", "furthest")
LEVELS = {"int8": 127, "int16": 32767}  # of integer weights, on either side of zero

# The constants of each known neuron, in the order in which files and compiled code have them.
NEURONS: dict[str, tuple[str, ...]] = {
    "lif": ("decay", "v_threshold"),
    "clif": ("current_decay", "decay", "v_threshold"),
    "dn": ("current_decay", "v_threshold", "theta_v", "theta_u", "theta_r", "theta_s"),
    "if": ("v_threshold", "v_start"),
    "relu": (),
}


@dataclass(frozen=True, eq=False)
class Encoder:
    """x = squash((obs − offset)/divisor); with receptive fields, A = exp(−((x − mean)·precision)²/2) for each.

    coding   direct     x itself at every step
             analogue   A at every step
             spikes     V = V + A;  spike if V > threshold;  V = V − subtract·spike
    """

    coding: str
    byte_observations: bool  # observations are uint8
    squash: str  # none, tanh or clip (to ±limit)
    limit: float
    offset: Array  # [obs]
    divisor: Array  # [obs]
    mean: Array  # [obs, population]; population 0 for direct coding
    precision: Array  # [obs, population]
    threshold: float = 0.0
    subtract: float = 0.0

    def __post_init__(self) -> None:
        _known("coding", self.coding, CODINGS)
        _known("squash", self.squash, SQUASHES)
        _shape("encoder.divisor", self.divisor, (self.obs_dim,))
        _shape("encoder.precision", self.precision, self.mean.shape)
        if self.mean.ndim != 2 or len(self.mean) != self.obs_dim or (self.coding != "direct") != (self.mean.size > 0):
            raise ValueError(f"encoder.mean has shape {self.mean.shape}, which does not fit {self.coding} coding")

    @property
    def obs_dim(self) -> int:
        return len(self.offset)

    @property
    def outputs(self) -> int:
        return self.mean.size or self.obs_dim


@dataclass(frozen=True, eq=False)
class Neuron:
    kind: str  # a key of NEURONS, or the name of a neuron that has its own equations
    constants: Mapping[str, float] = field(default_factory=dict)
    own: Equations | None = None  # of a neuron that is none of NEURONS

    def __post_init__(self) -> None:
        if self.own is not None:
            if not isinstance(self.kind, str) or self.kind in NEURONS:
                raise ValueError(f"a neuron with its own equations cannot be called {self.kind!r}; rename it")
            self.own.check(self.constants)
            return
        _known("neuron", self.kind, NEURONS)
        if set(self.constants) != set(NEURONS[self.kind]):
            raise ValueError(f"neuron {self.kind} needs the constants {', '.join(NEURONS[self.kind])}")

    @property
    def equations(self) -> Equations:
        """Its step; ReLU units have none."""
        return KNOWN[self.kind] if self.own is None else self.own

    def value(self, operand: str | float) -> float:
        """A number, or a constant by its name."""
        return self.constants[operand] if isinstance(operand, str) else float(operand)

    def as_json(self) -> dict[str, Any]:
        record: dict[str, Any] = {"kind": self.kind, "constants": dict(self.constants)}
        return record if self.own is None else record | {"equations": self.own.as_json()}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> "Neuron":
        """Nothing in it is code: unknown operations are refused."""
        constants = {name: float(value) for name, value in record["constants"].items()}
        if not np.isfinite(list(constants.values())).all():
            raise ValueError(f"the constants of the neuron {record['kind']} hold NaN or infinity")
        own = record.get("equations")
        return cls(record["kind"], constants, None if own is None else Equations.from_json(own))

    def __getitem__(self, name: str) -> float:
        return self.constants[name]


@dataclass(frozen=True, eq=False)
class Integers:
    """Weights as whole numbers, and what one of them is worth to each neuron: weight = levels·factor."""

    levels: NDArray[np.signedinteger[Any]]  # [inputs, outputs], int8 or int16
    factor: Array  # [outputs]

    @property
    def weight(self) -> Array:
        found: Array = self.levels * self.factor
        return found


@dataclass(frozen=True, eq=False)
class Layer:
    """current_t = scale_t·(x_t @ weight) + bias_t, then the neuron.

    There is a scale only where the normaliser differed from step to step; otherwise it is in the weights.
    """

    weight: Array  # [inputs, outputs]: what one spike adds is one row
    bias: Array  # [1 or T, outputs]
    scale: Array | None  # [T, outputs]
    neuron: Neuron
    integers: Integers | None = None  # the same weights, where they are whole multiples of a factor

    def __post_init__(self) -> None:
        if self.integers is not None and not np.array_equal(self.integers.weight, self.weight):
            raise ValueError("the weights of a layer are not those of its integers")

    @property
    def inputs(self) -> int:
        return int(self.weight.shape[0])

    @property
    def outputs(self) -> int:
        return int(self.weight.shape[1])

    @property
    def per_step(self) -> bool:
        """Whether steps differ, so that no single set of weights and biases says it all."""
        return self.scale is not None or len(self.bias) > 1


@dataclass(frozen=True, eq=False)
class Bounds:
    """action = clip(middle + reach·tanh(value), low, high)."""

    middle: Array
    reach: Array
    low: Array
    high: Array


@dataclass(frozen=True, eq=False)
class Readout:
    """From the spikes of the last layer to values.

    kind   sum        value = (Σ_t share_t·spikes_t) @ weight + bias
           furthest   V_t = V_{t−1} + spikes_t @ weight + bias; value = the V_t furthest from zero, the first of several
    """

    kind: str
    weight: Array  # [features, values]
    bias: Array  # [values]
    share: Array  # [T]: how much a spike of each step counts; for furthest always one

    def __post_init__(self) -> None:
        _known("read-out", self.kind, READOUTS)
        _shape("readout.weight", self.weight, (len(self.weight), self.values))
        if self.kind == "furthest" and (self.share != 1).any():
            raise ValueError("a read-out of the furthest potential counts every step alike")
        if not self.share.sum() > 0:
            raise ValueError("a read-out needs a step that counts")

    @property
    def values(self) -> int:
        return len(self.bias)


@dataclass(frozen=True, eq=False)
class PolicyGraph:
    """Encoder → layers → read-out → action.

    With bounds the action is continuous; without, it is the number of the largest value. Ordinary (ReLU) networks have
    one time step. All neuron states start anew at every decision: at what their equations say.
    """

    time_steps: int
    encoder: Encoder
    layers: tuple[Layer, ...]
    readout: Readout
    bounds: Bounds | None
    origin: Mapping[str, Any] = field(default_factory=dict)  # where it comes from, in words of JSON; see ``info``

    def __post_init__(self) -> None:
        if self.time_steps < 1 or not self.layers:
            raise ValueError("a policy needs at least one time step and one layer")
        size = self.encoder.outputs
        for i, layer in enumerate(self.layers):
            _shape(f"layers.{i}.weight", layer.weight, (size, layer.outputs))
            steps = len(layer.bias)
            _shape(f"layers.{i}.bias", layer.bias, (steps if steps == 1 else self.time_steps, layer.outputs))
            if layer.scale is not None:
                _shape(f"layers.{i}.scale", layer.scale, (self.time_steps, layer.outputs))
            size = layer.outputs
        _shape("readout.weight", self.readout.weight, (size, self.readout.values))
        _shape("readout.share", self.readout.share, (self.time_steps,))
        if self.bounds is not None:
            for name, bound in vars(self.bounds).items():
                _shape(f"bounds.{name}", bound, (self.readout.values,))
        for name, array in self._arrays().items():
            if not np.isfinite(array).all():
                raise ValueError(f"{name} holds NaN or infinity")

    @property
    def spiking(self) -> bool:
        return self.layers[0].neuron.kind != "relu"

    @property
    def info(self) -> dict[str, Any]:
        """What the policy is and where it comes from, in words of JSON. What is not known is not there."""
        encoder, bounds = self.encoder, self.bounds
        observation = {"size": encoder.obs_dim, "type": "uint8" if encoder.byte_observations else "float32"}
        action: dict[str, Any] = {"kind": "discrete", "count": self.readout.values}
        if bounds is not None:
            low, high = bounds.low.tolist(), bounds.high.tolist()
            action = {"kind": "continuous", "size": self.readout.values, "low": low, "high": high}
        known = dict(self.origin)
        observation |= known.pop("observation", {})
        if self.layers[0].integers is not None:
            known["weights"] = self.layers[0].integers.levels.dtype.name
        return known | {"observation": observation, "action": action, "time_steps": self.time_steps}

    def rounded(self, dtype: type[np.floating[Any]]) -> "PolicyGraph":
        """The same policy with every number rounded to what ``dtype`` can hold: what an export in it contains."""
        arrays = {
            name: array if array.dtype.kind == "i" else array.astype(dtype).astype(np.float64)
            for name, array in self._arrays().items()
        }
        return _build(self._description(), arrays)

    # --- as a file ---------------------------------------------------------------------------------------------------

    def _arrays(self) -> dict[str, NDArray[Any]]:
        arrays: dict[str, NDArray[Any]] = {
            f"encoder.{name}": value for name, value in vars(self.encoder).items() if _is_array(value)
        }
        for i, layer in enumerate(self.layers):
            if layer.integers is None:
                arrays[f"layers.{i}.weight"] = layer.weight
            else:
                arrays |= {f"layers.{i}.{name}": value for name, value in vars(layer.integers).items()}
            arrays[f"layers.{i}.bias"] = layer.bias
            if layer.scale is not None:
                arrays[f"layers.{i}.scale"] = layer.scale
        arrays |= {f"readout.{name}": value for name, value in vars(self.readout).items() if _is_array(value)}
        if self.bounds is not None:
            arrays |= {f"bounds.{name}": bound for name, bound in vars(self.bounds).items()}
        return arrays

    def _description(self) -> dict[str, Any]:
        """Everything that is not an array."""
        return {
            "format": FORMAT,
            "version": self._version(),
            "origin": dict(self.origin),
            "time_steps": self.time_steps,
            "readout": self.readout.kind,
            "encoder": {name: value for name, value in vars(self.encoder).items() if not _is_array(value)},
            "neurons": [layer.neuron.as_json() for layer in self.layers],
        }

    def _version(self) -> int:
        """The lowest that can hold it, so that older versions of carebn read what they can."""
        if any(layer.neuron.own for layer in self.layers):
            return WITH_EQUATIONS
        return WITH_INTEGERS if any(layer.integers for layer in self.layers) else VERSION

    def save(self, path: Path | str) -> None:
        """A numpy archive without pickled objects; the description is a JSON text in it."""
        with open(path, "wb") as file:
            np.savez(file, description=np.array(json.dumps(self._description())), **self._arrays())  # type: ignore[arg-type]

    @classmethod
    def read(cls, path: Path | str) -> "PolicyGraph":
        """Nothing in the file is executed."""
        return opened(path, cls.build)

    @classmethod
    def build(cls, description: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> "PolicyGraph":
        """From what an archive holds."""
        return _build(description, arrays)


def _build(description: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> PolicyGraph:
    if description.get("format") == FORMAT and description.get("version") == WHOLE_NUMBERS:
        raise ValueError("it is a policy in whole numbers, which carebn.deploy.load opens")
    if description.get("format") != FORMAT or description.get("version") not in range(1, WITH_EQUATIONS + 1):
        raise ValueError(f"it is not a policy of carebn in format version {VERSION} to {WHOLE_NUMBERS}")
    origin = description.get("origin", {})  # older files have none
    check_origin(origin)
    wide = {name: np.ascontiguousarray(array, dtype=np.float64) for name, array in arrays.items()}

    def room(prefix: str) -> dict[str, Array]:
        return {name.removeprefix(prefix): array for name, array in wide.items() if name.startswith(prefix)}

    steps, bounds = int(description["time_steps"]), room("bounds.")
    if description["version"] == 1:  # these sum, over all steps or those from one on
        wide["readout.share"] = (np.arange(steps) >= int(description.get("read_out_from", 0))).astype(np.float64)
        description = description | {"readout": "sum"}
    return PolicyGraph(
        time_steps=steps,
        encoder=Encoder(**(description["encoder"] | room("encoder."))),
        layers=tuple(
            Layer(
                weight=wide[f"layers.{i}.weight"] if whole is None else whole.weight,
                bias=wide[f"layers.{i}.bias"],
                scale=wide.get(f"layers.{i}.scale"),
                neuron=Neuron.from_json(neuron),
                integers=whole,
            )
            for i, neuron in enumerate(description["neurons"])
            for whole in [_integers(arrays.get(f"layers.{i}.levels"), wide.get(f"layers.{i}.factor"))]
        ),
        readout=Readout(
            kind=description["readout"],
            weight=wide["readout.weight"],
            bias=wide["readout.bias"],
            share=wide["readout.share"],
        ),
        bounds=Bounds(**bounds) if bounds else None,
        origin=origin,
    )


def _integers(levels: NDArray[Any] | None, factor: Array | None) -> Integers | None:
    if levels is None or factor is None:
        return None
    if levels.ndim != 2 or levels.dtype not in (np.int8, np.int16):
        raise ValueError(f"levels of weights are {levels.dtype} of shape {levels.shape}, expected a matrix of int8")
    _shape("factor", factor, levels.shape[1:])
    return Integers(levels, factor)


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray)


def _known(what: str, name: str, known: Any) -> None:
    if name not in known:
        raise ValueError(unknown_name(what, name, known))


def _shape(name: str, array: Array, expected: tuple[int, ...]) -> None:
    if array.shape != expected:
        raise ValueError(f"{name} has shape {array.shape}, expected {expected}")

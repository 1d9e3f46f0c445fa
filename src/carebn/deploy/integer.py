"""The policy in whole numbers: no floating point between observation and motor command. C has the same model.

    observation   int32, in units of 2^−bits of its dimension; bytes where the environment gives bytes
    encoder       spike trains are steps of the observation, looked up in a table of the places where they change
    current_t     sum_t·multiplier_t / 2^shift + bias_t, where sum_t adds up the levels (int8, int16) of what fired
    LIF, CLIF     C = C·k_c / 2^d_c + current;  V = V·k / 2^d + C;  spike if V > threshold, then V = 0
    IF            V = V + current;  spike if V > threshold, then V = V − threshold        (converted networks)
    ReLU          current, no less than 0 and no more than 32,767                         (ordinary networks)
    read-out      value in units of 2^−value_bits; as in the policy graph
    command       int32, in units of 2^−bits: middle + reach·tanh(value) / 2^15, tanh from a table, within its bounds

Every division is by a power of two and rounds towards zero, as C99's own does. Each neuron counts in a unit of its own,
so that one level of its weights is a whole number of them; nothing is multiplied by a factor.

Nothing can overflow: ``Bounds32`` adds up the worst case of every sum, whatever the observation, and a policy that
could leave 32 bits (64 where a sum is wide) cannot be made, nor read from a file.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carebn.deploy.describe import check_origin, title
from carebn.deploy.graph import FORMAT, WHOLE_NUMBERS
from carebn.deploy.integer_parts import (
    EXACT,
    LARGEST,
    LARGEST_ACTIVATION,
    LARGEST_VALUE,
    Bounds32,
    Command,
    Decay,
    Fields,
    Reading,
    Stage,
    Whole,
    Wide,
    check,
    commanded,
    currents,
    fire,
    read,
)
from carebn.deploy.runtime import NOT_FINITE, one_array

BATCH = 2048


@dataclass(frozen=True, eq=False)
class IntegerPolicy:
    """Acts as ``DeployedPolicy`` does; ``decide`` is what the chip does, from whole numbers to whole numbers."""

    time_steps: int
    byte_observations: bool
    observation_bits: Whole  # [obs]
    fields: Fields | None  # None: the observation itself is the input, at every step
    stages: tuple[Stage, ...]
    reading: Reading
    command: Command | None  # None: the action is the number of the largest value
    origin: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check(self.time_steps >= 1 and len(self.stages) > 0, "a policy needs at least one time step and one layer")
        bits = self.observation_bits
        check(bits.ndim == 1 and len(bits) > 0 and bool(((bits >= 0) & (bits <= 30)).all()), "an observation's unit")
        size = self.obs_dim
        if self.fields is not None:
            size = len(self.fields.edges)
            check(size % self.obs_dim == 0 and size > 0, "the encoder has another size")
            check(self.fields.trains.shape[1] == self.time_steps, "the encoder has another number of steps")
        for stage in self.stages:
            check(stage.inputs == size, "a layer has another size than what it receives")
            check(len(stage.bias) in (1, self.time_steps), "a bias has another number of steps")
            rows, columns = stage.multiplier.shape
            check(rows in (1, self.time_steps) and columns in (1, stage.outputs), "a multiplier has another shape")
            size = stage.outputs
        check(len(self.reading.weight) == size, "the read-out has another size than the last layer")
        check(self.reading.share.shape == (self.time_steps,), "the read-out has another number of steps")
        if self.command is not None:
            check(self.command.low.shape == self.reading.bias.shape, "the command has another size than the read-out")
        sums, values = self.reading.largest(self.largest_inputs[-1])
        check(sums < EXACT and values <= LARGEST, "a value might leave 32 bits")
        _ = self.bounds

    @property
    def obs_dim(self) -> int:
        return len(self.observation_bits)

    @property
    def largest_inputs(self) -> list[int]:
        """Of every layer, and of the read-out."""
        first = 1 if self.fields is not None else 255 if self.byte_observations else LARGEST_VALUE
        return [first, *(LARGEST_ACTIVATION if stage.kind == "relu" else 1 for stage in self.stages)]

    @property
    def bounds(self) -> list[Bounds32]:
        return [Bounds32.of(s, x, self.time_steps) for s, x in zip(self.stages, self.largest_inputs, strict=False)]

    @property
    def weights(self) -> str:
        return self.stages[0].levels.dtype.name

    @property
    def info(self) -> dict[str, Any]:
        known = dict(self.origin)
        kind = "uint8" if self.byte_observations else "int32"
        observation = {"size": self.obs_dim, "type": kind, "bits": self.observation_bits.tolist()}
        observation |= known.pop("observation", {})
        action: dict[str, Any] = {"kind": "discrete", "count": len(self.reading.bias), "bits": self.reading.bits}
        if self.command is not None:
            unit = 2.0**-self.command.bits
            low, high = (self.command.low * unit).tolist(), (self.command.high * unit).tolist()
            size = len(self.reading.bias)
            action = {"kind": "continuous", "size": size, "low": low, "high": high, "bits": self.command.bits}
        about = {"observation": observation, "action": action, "time_steps": self.time_steps, "weights": self.weights}
        return known | about | {"integer": True}

    @property
    def engine(self) -> str:
        return "numpy, in whole numbers"

    def __repr__(self) -> str:
        return f"<carebn policy: {title(self.info)}; runs on {self.engine}>"

    # --- acting ------------------------------------------------------------------------------------------------------

    def predict(
        self, observation: NDArray[Any], state: None = None, episode_start: Any = None, deterministic: bool = True
    ) -> tuple[NDArray[Any], None]:
        """For one observation or a batch of them, in the environment's own units."""
        obs = one_array(observation)
        values = self.values(obs[None] if obs.ndim == 1 else obs)
        actions = values.argmax(-1) if self.command is None else values.astype(np.float32)
        return (actions[0] if obs.ndim == 1 else actions), None

    def values(self, obs: NDArray[Any]) -> NDArray[np.float64]:
        """What ``decide`` says, in the environment's own units: [B, outputs]."""
        bits = self.reading.bits if self.command is None else self.command.bits
        return self.decide(self.fixed(obs)) / 2.0**bits

    def fixed(self, obs: NDArray[Any]) -> Wide:
        """Observations in whole numbers, to the nearest, half away from zero; what does not fit is cut off."""
        obs = np.asarray(obs)
        if obs.ndim != 2 or obs.shape[1] != self.obs_dim:
            raise ValueError(f"expected an observation of size {self.obs_dim}, got shape {obs.shape[-1:]}")
        if self.byte_observations:
            if obs.dtype != np.uint8:
                raise ValueError(f"expected an observation of bytes (uint8), got {obs.dtype}")
            return obs.astype(np.int64)
        if obs.dtype.kind not in "fiub":
            raise ValueError(f"expected an observation of numbers, got {obs.dtype}")
        with np.errstate(over="ignore"):
            scaled = obs.astype(np.float32).astype(np.float64) * 2.0**self.observation_bits
        if not np.isfinite(scaled).all():
            raise ValueError(NOT_FINITE)
        nearest = np.trunc(scaled + np.copysign(0.5, scaled))
        found: Wide = np.clip(nearest, -LARGEST, LARGEST).astype(np.int64)
        return found

    def decide(self, fixed: NDArray[Any]) -> Wide:
        """Commands (or values) [B, outputs], for observations [B, obs] in whole numbers."""
        fixed = np.asarray(fixed)
        if fixed.ndim != 2 or fixed.shape[1] != self.obs_dim or fixed.dtype.kind not in "iu":
            raise ValueError(f"expected whole numbers of shape [n, {self.obs_dim}], got {fixed.dtype} {fixed.shape}")
        parts = [self._decide(fixed[i : i + BATCH].astype(np.int64)) for i in range(0, len(fixed), BATCH)]
        return np.concatenate(parts) if parts else np.empty((0, len(self.reading.bias)), np.int64)

    def _decide(self, obs: Wide) -> Wide:
        if self.fields is not None:
            x = self.fields.spikes(obs)
        else:
            x = np.clip(obs, -LARGEST_VALUE, LARGEST_VALUE)[None].astype(np.float64)
        for stage in self.stages:
            x = fire(stage, currents(stage, x, self.time_steps))
        values = read(self.reading, x)
        return values if self.command is None else commanded(self.command, values, self.reading.bits)

    # --- as a file ---------------------------------------------------------------------------------------------------

    def arrays(self) -> dict[str, Whole]:
        """Every array by its name, each in the smallest type that its C declaration has."""
        found: dict[str, Whole] = {"observation_bits": self.observation_bits}
        parts: list[tuple[str, Any]] = [("fields", self.fields), ("reading", self.reading), ("command", self.command)]
        parts += [(f"stages.{i}", stage) for i, stage in enumerate(self.stages)]
        for prefix, part in parts:
            values = {} if part is None else vars(part)
            found |= {f"{prefix}.{name}": value for name, value in values.items() if isinstance(value, np.ndarray)}
        return found

    def save(self, path: Path | str) -> None:
        """A numpy archive without pickled objects; the description is a JSON text in it."""
        description = {
            "format": FORMAT,
            "version": WHOLE_NUMBERS,
            "origin": dict(self.origin),
            "time_steps": self.time_steps,
            "byte_observations": self.byte_observations,
            "reading": {name: getattr(self.reading, name) for name in ("kind", "shift", "bits")},
            "command_bits": None if self.command is None else self.command.bits,
            "stages": [
                {
                    "kind": stage.kind,
                    "shift": stage.shift,
                    "current_decay": [stage.current_decay.numerator, stage.current_decay.bits],
                    "decay": [stage.decay.numerator, stage.decay.bits],
                }
                for stage in self.stages
            ],
        }
        with open(path, "wb") as file:
            np.savez(file, description=np.array(json.dumps(description)), **self.arrays())  # type: ignore[arg-type]

    @classmethod
    def build(cls, description: dict[str, Any], arrays: Mapping[str, NDArray[Any]]) -> "IntegerPolicy":
        """From what an archive holds; whatever is wrong with it is a ValueError or a KeyError."""
        check_origin(description["origin"])
        for name, array in arrays.items():
            check(array.dtype.kind == "i", f"{name} is {array.dtype}, and whole numbers are expected")

        def room(prefix: str) -> dict[str, Any]:
            return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}

        stages = []
        for i, record in enumerate(description["stages"]):
            fade, leak = (Decay(*map(int, record[name])) for name in ("current_decay", "decay"))
            own = room(f"stages.{i}.")
            stages.append(Stage(record["kind"], shift=int(record["shift"]), current_decay=fade, decay=leak, **own))
        fields, command, reading = room("fields."), room("command."), description["reading"]
        return cls(
            time_steps=int(description["time_steps"]),
            byte_observations=bool(description["byte_observations"]),
            observation_bits=arrays["observation_bits"],
            fields=Fields(**fields) if fields else None,
            stages=tuple(stages),
            reading=Reading(
                reading["kind"], shift=int(reading["shift"]), bits=int(reading["bits"]), **room("reading.")
            ),
            command=Command(**command, bits=int(description["command_bits"])) if command else None,
            origin=description["origin"],
        )

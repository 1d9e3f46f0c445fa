"""Executes a folded policy: numpy alone, or compiled by numba where it is installed. No torch.

The compiled engine is event-driven: a neuron that is silent at a step costs nothing, one that fires adds its row of the
weights. With numpy alone one product per layer and all steps is faster than following single spikes, unless more than
half of the inputs are silent throughout; then only the rows of the others are touched.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from carebn.deploy.describe import title
from carebn.deploy.graph import Array, Bounds, Encoder, Layer, Neuron, PolicyGraph, Readout
from carebn.equations import COMPARISONS, OPERATIONS

NOT_FINITE = "got NaN or infinity in an observation"
Watch = Callable[[Array, Any], None]  # is shown potentials [B, F] and their threshold (or thresholds) at every step


class Trace(NamedTuple):
    """Everything that happened in one batch of decisions."""

    spikes: list[Array]  # of the encoder and every layer: [T, B, F]; [1, B, F] where the same at every step
    margins: Array  # [B]: how near any comparison came to falling otherwise, relative to the potentials around it
    values: Array  # [B, outputs]


class DeployedPolicy:
    """Acts as Stable-Baselines3's policies do: ``predict(obs, deterministic=True) → (action, None)``.

    ``compiled``: True needs numba, False does without, None takes it if it is there. Compiling happens here, at loading
    (the result is kept on disk), so that no action waits for it.
    """

    def __init__(self, network: PolicyGraph, compiled: bool | None = None) -> None:
        self.network = network
        self._compiled = None
        if compiled is not False:
            try:
                from carebn.deploy.compiled import CompiledPolicy
            except ModuleNotFoundError as error:
                if error.name != "numba":
                    raise
                if compiled:
                    raise ValueError("numba is not installed, so the policy cannot be compiled; use pip") from error
            else:
                self._compiled = CompiledPolicy(network)
                self._compiled.values(np.zeros((1, network.encoder.obs_dim), np.float32))

    def __repr__(self) -> str:
        return f"<carebn policy: {title(self.info)}; runs on {self.engine}>"

    @property
    def info(self) -> dict[str, Any]:
        """What it is, in plain words and numbers: environment, algorithm, method, neuron, seed, run, trained_steps,
        mean_return, observation, action, time_steps. What the file does not say is not there."""
        return self.network.info

    @property
    def engine(self) -> str:
        return "numpy" if self._compiled is None else "numba"

    def predict(
        self,
        observation: NDArray[Any],
        state: None = None,
        episode_start: Any = None,
        deterministic: bool = True,
    ) -> tuple[NDArray[Any], None]:
        """For one observation or a batch of them. Policies are deterministic; the arguments are SB3's."""
        obs = one_array(observation)
        values = self.values(obs[None] if obs.ndim == 1 else obs)
        actions = values.argmax(-1) if self.network.bounds is None else values.astype(np.float32)
        return (actions[0] if obs.ndim == 1 else actions), None

    def values(self, obs: NDArray[Any]) -> Array:
        """Actions of a continuous policy, values of a discrete one: [B, outputs] for observations [B, obs]."""
        rows = checked(obs, self.network.encoder)
        if self._compiled is not None:
            return self._compiled.values(rows)
        return trace(self.network, rows).values

    def trace(self, obs: NDArray[Any]) -> Trace:
        """All spikes on the way to the values."""
        return trace(self.network, checked(obs, self.network.encoder), with_margins=True)

    def encode(self, obs: NDArray[Any]) -> Array:
        """What the first layer receives, [T, B, F] or [1, B, F]: for a chip that runs the layers alone."""
        return encode(self.network.encoder, self.network.time_steps, checked(obs, self.network.encoder))

    def decode(self, values: Array) -> Array:
        """From the read-out's potentials to actions, or values of a discrete policy."""
        return decode(self.network.bounds, values)


def one_array(observation: Any) -> NDArray[Any]:
    """Of numbers: what an environment gives in parts (a Dict, a Tuple) has to be made flat, which needs its space."""
    try:
        array = np.asarray(observation)
    except ValueError:  # parts of different shapes
        array = np.empty((), object)
    if array.dtype == object:
        raise ValueError(
            f"expected an observation in one array, got a {type(observation).__name__}; make it flat as Gymnasium "
            f"does: gymnasium.spaces.flatten(env.observation_space, observation)"
        )
    return array


def checked(obs: NDArray[Any], encoder: Encoder) -> NDArray[np.float32]:
    """Observations as float32, the precision in which the network saw them in training."""
    obs = np.asarray(obs)
    if obs.ndim != 2 or obs.shape[1] != encoder.obs_dim:
        shape = obs.shape[1:] if obs.ndim == 2 and len(obs) == 1 else obs.shape
        raise ValueError(f"expected an observation of size {encoder.obs_dim}, got shape {shape}")
    if encoder.byte_observations and obs.dtype != np.uint8:
        raise ValueError(f"expected an observation of bytes (uint8), got {obs.dtype}")
    if obs.dtype.kind not in "fiub":
        raise ValueError(f"expected an observation of numbers, got {obs.dtype}")
    if obs.dtype == np.float32:
        rows = np.ascontiguousarray(obs)
    else:
        with np.errstate(over="ignore"):  # what does not fit becomes infinite, and is refused as such
            rows = np.ascontiguousarray(obs, dtype=np.float32)
    if not np.isfinite(rows).all():
        raise ValueError(NOT_FINITE)
    return rows


# --- with numpy alone ------------------------------------------------------------------------------------------------


def trace(network: PolicyGraph, obs: NDArray[np.float32], with_margins: bool = False) -> Trace:
    margins = np.full(len(obs), np.inf)

    def note(potential: Array, threshold: float) -> None:
        size = np.maximum(np.abs(potential).max(1), 1.0)
        np.minimum(margins, np.abs(potential - threshold).min(1) / size, out=margins)

    watch = note if with_margins else None
    x = encode(network.encoder, network.time_steps, obs, watch)
    spikes = [x]
    for layer in network.layers:
        x = fire(layer, currents(layer, x, network.time_steps), watch)
        spikes.append(x)
    return Trace(spikes, margins, decode(network.bounds, read_out(network.readout, x, watch)))


def encode(encoder: Encoder, steps: int, obs: NDArray[np.float32], watch: Watch | None = None) -> Array:
    """What the first layer receives: [T, B, F], or [1, B, F] where it is the same at every step."""
    x = (obs - encoder.offset) / encoder.divisor
    if encoder.squash == "tanh":
        x = np.tanh(x)
    elif encoder.squash == "clip":
        x = np.clip(x, -encoder.limit, encoder.limit)
    if encoder.coding == "direct":
        return x[None]
    u = (x[:, :, None] - encoder.mean) * encoder.precision
    a = np.exp(-(u * u * 0.5)).reshape(len(obs), encoder.outputs)
    if encoder.coding == "analogue":
        return a[None]
    fired = np.empty((steps, *a.shape), bool)
    v = np.zeros_like(a)
    for spike in fired:
        v += a
        np.greater(v, encoder.threshold, out=spike)
        if watch:
            watch(v, encoder.threshold)
        v -= spike * encoder.subtract
    return fired.astype(np.float64)


def currents(layer: Layer, x: Array, steps: int) -> Array:
    """[T, B, outputs], from [T, B, inputs], or from [1, B, inputs] where the input is the same at every step."""
    weight = layer.weight
    rows = x.reshape(-1, layer.inputs)
    if 0 < len(rows) <= steps:  # one observation
        active = np.flatnonzero(rows.any(0))
        if 2 * len(active) < layer.inputs:
            rows, weight = rows[:, active], weight[active]
    z = (rows @ weight).reshape(*x.shape[:2], layer.outputs)
    if layer.scale is not None:
        z = z * layer.scale[:, None]
    z = z + layer.bias[:, None]
    return z if len(z) == steps else np.broadcast_to(z, (steps, *z.shape[1:]))


def read_out(readout: Readout, spikes: Array, watch: Watch | None = None) -> Array:
    """Values [B, outputs] from the last layer's spikes [T, B, features]."""
    if readout.kind == "sum":
        return np.tensordot(readout.share, spikes, 1) @ readout.weight + readout.bias
    potentials = (spikes @ readout.weight + readout.bias).cumsum(0)
    if watch:
        above, below = potentials.max(0), -potentials.min(0)
        gap = (above - below) / np.maximum(np.maximum(above, below), 1.0)
        watch(np.where((above > 0) & (below > 0), gap, 1.0), 0.0)  # only from one sign to the other is it a leap
    return furthest(potentials)


def furthest(potentials: Array) -> Array:
    """Of [T, B, outputs], at each place the one furthest from zero; of several the first."""
    found: Array = np.take_along_axis(potentials, np.abs(potentials).argmax(0)[None], 0)[0]
    return found


def decode(bounds: Bounds | None, values: Array) -> Array:
    """Actions within their bounds; without bounds, the values themselves."""
    if bounds is None:
        return values
    return np.clip(bounds.middle + bounds.reach * np.tanh(values), bounds.low, bounds.high)


def fire(layer: Layer, currents: Array, watch: Watch | None = None) -> Array:
    """Spikes (or the values of ReLU units) [T, B, outputs] under these currents."""
    kind = layer.neuron.kind
    if kind == "relu":
        return np.maximum(currents, 0.0)
    if kind in ("lif", "clif"):
        return _lif(layer.neuron, currents, watch)
    return follow(layer.neuron, currents, _by_threshold(watch) if watch is not None and kind == "if" else watch)


def follow(neuron: Neuron, currents: Array, watch: Watch | None = None) -> Array:
    """The neuron's equations, line by line."""
    step, places, shape = neuron.equations, neuron.equations.registers, currents.shape[1:]
    plan = [
        (
            _function(name, operands, places.booleans),
            operands,
            name in COMPARISONS and places.booleans.isdisjoint(operands),
        )
        for name, operands in places.lines
    ]
    state = [
        np.full(shape, neuron.value(start), bool if name in step.booleans else np.float64)
        for name, start in step.start.items()
    ]
    fixed = [np.array(neuron.value(x)) for x in places.given[1 + len(state) :]]
    spikes = np.empty(currents.shape)
    for current, spike in zip(currents, spikes, strict=True):
        values = [current, *state, *fixed]
        for function, operands, decides in plan:
            arguments = [values[i] for i in operands]
            if decides and watch is not None:
                watch(*(arguments if arguments[0].ndim else reversed(arguments)))
            values.append(function(*arguments))
        spike[:] = values[places.spike]
        state = [np.broadcast_to(x, shape) if x.ndim == 0 else x for x in (values[i] for i in places.after)]
    return spikes


def _function(name: str, operands: tuple[int, ...], booleans: frozenset[int]) -> Callable[..., Any]:
    """numpy's own; but to numpy the sum of two spikes would be a spike."""
    function: Callable[..., Any] = getattr(np, name)
    plain = name == "where" or OPERATIONS[name].boolean or booleans.isdisjoint(operands)
    return function if plain else partial(function, dtype=np.float64)


def _lif(neuron: Neuron, currents: Array, watch: Watch | None) -> Array:
    """C = λ_c·C + x;  H = λ·V + C;  S = 1 if H > V_th;  V = H·(1 − S);  λ_c = 0 for LIF. As the equations have it, and
    in place: with so few numbers, memory is half the time."""
    current_decay = neuron["current_decay"] if neuron.kind == "clif" else 0.0
    decay, threshold = neuron["decay"], neuron["v_threshold"]
    fired = np.empty(currents.shape, bool)
    c, v = np.zeros(currents.shape[1:]), np.zeros(currents.shape[1:])
    for current, spike in zip(currents, fired, strict=True):
        c *= current_decay
        c += current
        v *= decay
        v += c
        np.greater(v, threshold, out=spike)
        if watch:
            watch(v, threshold)
        v *= ~spike
    return fired.astype(np.float64)


def _by_threshold(watch: Watch) -> Watch:
    """Silent neurons of converted networks run far below zero, so each is measured by its own threshold."""
    return lambda potential, threshold: watch(np.clip(potential / threshold, -1.0, 2.0), 1.0)

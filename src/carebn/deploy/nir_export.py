"""NIR, the exchange format of neuromorphic chips and simulators: Affine → CubaLIF for every layer, Affine as read-out.

NIR's equations are continuous in time; the readers step them with dt = 1e-4, first the synapse, then the membrane:

    I = (1 − dt/τ_syn)·I + (dt/τ_syn)·w_in·x;   v = (1 − dt/τ_mem)·v + (dt/τ_mem)·r·I;   spike if v > v_threshold

With τ_syn = dt/(1 − λ_c), w_in = τ_syn/dt, τ_mem = dt/(1 − λ) and r = τ_mem/dt that is a CLIF neuron exactly. A LIF
neuron is written with r = 1 and its weights divided by 1 − λ, because some readers ignore r.

What NIR has no word for is in the graph's metadata, as JSON: the encoder, the number of steps, that all states start at
zero at every decision, how outputs become an action, and what the policy is (``about``). ``NIRPolicy`` reads it back.

``bias="neuron"``: no layer has a bias. Instead every layer has one more neuron, the last, which fires at every step and
whose outgoing weights are the biases of the next layer; the input has one more line, which is always one.

``whole="int8"``: weights and biases are whole numbers, of a network that ``quantised`` has made: levels, in units of
what one is worth to each neuron. So are the thresholds, each in the unit of its neuron, or with ``shared`` one for a
layer. What one unit of the read-out is worth stands in the metadata, as ``readout_worth``.
"""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import nir
import numpy as np
from numpy.typing import NDArray

from carebn.deploy.graph import LEVELS, Array, Bounds, Encoder, Layer, PolicyGraph
from carebn.deploy.regular import check_regular
from carebn.deploy.runtime import checked, decode, encode, furthest

DT = 1e-4
KEY = "carebn"
RESET = "all currents and potentials are zero at the start of every decision"
READOUTS = {
    "sum": "the sum of the outputs over the steps of a decision, each step's times its share",
    "furthest": "of the sums of the outputs up to each step of a decision, the one furthest from zero",
}


def to_nir(
    network: PolicyGraph,
    bias: str = "affine",
    dtype: type[np.floating[Any]] = np.float32,
    whole: str | None = None,
    shared: bool = False,
) -> nir.NIRGraph:
    """The layers and the read-out as a graph; weights in ``dtype``, neuron constants always in float64."""
    for layer in network.layers:
        _check(layer)
    always_on = bias == "neuron"
    nodes: dict[str, nir.NIRNode] = {"input": nir.Input({"input": np.array([network.encoder.outputs + always_on])})}
    for i, layer in enumerate(network.layers, 1):
        constants = layer.neuron.constants
        gain = 1 / (1 - constants["decay"]) if layer.neuron.kind == "lif" else 1.0
        weight, shift = layer.weight.T * gain, layer.bias[0] * gain
        threshold, certain = np.full(layer.outputs, constants["v_threshold"]), 2 * constants["v_threshold"] * gain
        if whole is not None:
            weight, shift, threshold = _in_levels(layer, gain, whole, always_on)
            certain = float(LEVELS[whole])
        if always_on:
            own = _always_on_threshold(threshold, certain / gain, shared or whole is None, i)
            weight, shift = _with_neuron(weight, shift, certain), None  # of one spike: enough to fire at every step
            threshold = np.append(threshold, own)
        nodes[f"weights_{i}"] = _product(weight, shift, dtype)
        nodes[f"neurons_{i}"] = _NEURONS[layer.neuron.kind](layer, threshold)
    readout = network.readout
    per_step = readout.share.sum() if readout.kind == "sum" else 1.0  # a bias comes with every step's output
    weight, shift = readout.weight.T, readout.bias / per_step
    worth = None
    if whole is not None:
        most = np.maximum(np.abs(weight).max(1), np.abs(shift) if always_on else 0.0)
        worth = np.where(most > 0, most, 1.0) / LEVELS[whole]
        weight, shift = np.rint(weight / worth[:, None]), np.rint(shift / worth)
    if always_on:
        weight, shift = np.column_stack([weight, shift]), None
    nodes["readout"] = _product(weight, shift, dtype)
    nodes["output"] = nir.Output({"output": np.array([readout.values])})
    names = list(nodes)
    about = _metadata(network, bias)
    if whole is not None and worth is not None:
        about |= {"whole": whole, "readout_worth": worth.tolist()}
    return nir.NIRGraph(nodes, list(pairwise(names)), metadata={KEY: json.dumps(about)})


def _in_levels(layer: Layer, gain: float, whole: str, always_on: bool) -> tuple[Array, Array, Array]:
    """(weight [outputs, inputs], bias, threshold) in levels. NIR's LIF takes in 1 − λ of its input, so that its whole
    threshold is multiplied by that."""
    assert layer.integers is not None
    levels, factor = layer.integers.levels.T.astype(np.float64), layer.integers.factor
    shift = np.rint(layer.bias[0] / factor)
    if always_on:  # then it is a weight like the others
        shift = np.clip(shift, -LEVELS[whole], LEVELS[whole])
    return levels, shift, np.maximum(np.rint(layer.neuron["v_threshold"] / factor), 1.0) / gain


def _always_on_threshold(threshold: Array, reached: float, shared: bool, number: int) -> float:
    """Of the neuron that always fires: it gets to ``reached`` in a single step."""
    if not shared:
        return reached / 2
    if not reached > threshold[0]:
        raise ValueError(
            f"with one threshold for all neurons of layer {number}, {threshold[0]:g} levels, a single weight cannot "
            "make its always-on neuron fire at every step; export without --shared-threshold or with --bias affine"
        )
    return float(threshold[0])


def write_nir(
    network: PolicyGraph,
    path: Path,
    bias: str,
    dtype: type[np.floating[Any]],
    whole: str | None = None,
    shared: bool = False,
) -> None:
    nir.write(path, to_nir(network, bias, dtype, whole, shared))


def _check(layer: Layer) -> None:
    if layer.neuron.kind not in _NEURONS:
        known = {
            "relu": "ordinary (ReLU) units",
            "if": "the neurons of a converted policy, which start at half their threshold and subtract it on a spike",
        }
        what = known.get(layer.neuron.kind, f"the neuron {layer.neuron.kind}")
        raise ValueError(f"NIR has no node for {what}, only for lif and clif; export --to onnx, c or numpy instead")
    if layer.per_step:
        raise ValueError(
            "NIR cannot express weights that differ from step to step, into which the normaliser of this policy (bntt, "
            "tebn or tab) is folded; export --to onnx, c or numpy instead"
        )
    for name in ("decay", "current_decay"):
        value = layer.neuron.constants.get(name, 0.0)
        if not 0 <= value < 1:
            raise ValueError(f"NIR cannot express a neuron whose {name} is {value}: it must lie in [0, 1)")


def _product(weight: Array, bias: Array | None, dtype: type[np.floating[Any]]) -> nir.NIRNode:
    if bias is None:
        return nir.Linear(np.ascontiguousarray(weight, dtype))
    return nir.Affine(np.ascontiguousarray(weight, dtype), bias.astype(dtype))


def _with_neuron(weight: Array, bias: Array, certain: float) -> Array:
    """[outputs + 1, inputs + 1]: the last input is the always-on neuron before, the last output that of this layer."""
    rows = np.column_stack([weight, bias])
    last = np.zeros((1, rows.shape[1]))
    last[0, -1] = certain
    return np.vstack([rows, last])


def _lif(layer: Layer, threshold: Array) -> nir.NIRNode:
    size = len(threshold)
    return nir.LIF(
        tau=np.full(size, DT / (1 - layer.neuron["decay"])),
        r=np.ones(size),
        v_leak=np.zeros(size),
        v_threshold=threshold,
        v_reset=np.zeros(size),
    )


def _cuba_lif(layer: Layer, threshold: Array) -> nir.NIRNode:
    size, neuron = len(threshold), layer.neuron
    synapse, membrane = 1 / (1 - neuron["current_decay"]), 1 / (1 - neuron["decay"])
    return nir.CubaLIF(
        tau_syn=np.full(size, DT * synapse),
        tau_mem=np.full(size, DT * membrane),
        r=np.full(size, membrane),
        v_leak=np.zeros(size),
        v_threshold=threshold,
        v_reset=np.zeros(size),
        w_in=np.full(size, synapse),
    )


_NEURONS = {"lif": _lif, "clif": _cuba_lif}


# --- what NIR has no word for ----------------------------------------------------------------------------------------


def _metadata(network: PolicyGraph, bias: str) -> dict[str, Any]:
    return {
        "about": network.info,
        "time_steps": network.time_steps,
        "dt": DT,
        "reset": RESET,
        "readout": READOUTS[network.readout.kind],
        "readout_kind": network.readout.kind,
        "readout_share": network.readout.share.tolist(),
        "bias": bias,
        "encoder": _plain(network.encoder),
        "bounds": None if network.bounds is None else _plain(network.bounds),
    }


def _plain(record: Encoder | Bounds) -> dict[str, Any]:
    return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in vars(record).items()}


class NIRPolicy:
    """A NIR file as a policy: encoder and decoder from the metadata, and the graph stepped as its equations say.

    With another simulator: feed it ``encode(obs)`` step by step, and give all its outputs to ``decode``.
    """

    def __init__(self, path: Path | str) -> None:
        check_regular(Path(path))
        self.graph = nir.read(path)
        try:
            about = json.loads(self.graph.metadata[KEY])
        except (KeyError, TypeError, ValueError):
            raise ValueError(f"{path} does not hold a policy of carebn: its metadata has no {KEY!r}") from None
        self.info: dict[str, Any] = about.get("about", {})  # older files do not say
        self.time_steps: int = about["time_steps"]
        self.always_on = about["bias"] == "neuron"
        self.encoder = Encoder(**_arrays(about["encoder"]))
        self.furthest = about.get("readout_kind") == "furthest"
        self.share = np.array(about.get("readout_share", [1.0] * self.time_steps))  # older files count all steps alike
        self.worth = np.array(about.get("readout_worth", 1.0))  # where weights are whole numbers
        self.bounds = None if about["bounds"] is None else Bounds(**_arrays(about["bounds"]))

    def encode(self, obs: NDArray[Any]) -> Array:
        """[T, B, inputs]."""
        x = encode(self.encoder, self.time_steps, checked(obs, self.encoder))
        x = np.array(np.broadcast_to(x, (self.time_steps, *x.shape[1:])))
        return np.concatenate([x, np.ones((*x.shape[:2], 1))], -1) if self.always_on else x

    def decode(self, outputs: NDArray[Any]) -> Array:
        """Actions (or values) from the graph's outputs [T, B, outputs]."""
        each = np.asarray(outputs, np.float64) * self.worth
        values = furthest(each.cumsum(0)) if self.furthest else np.tensordot(self.share, each, 1)
        return decode(self.bounds, values)

    def values(self, obs: NDArray[Any]) -> Array:
        x = self.encode(obs)
        following = dict(self.graph.edges)
        name = following["input"]
        while name != "output":
            node = self.graph.nodes[name]
            x = _STEPS[type(node)](node, x)
            name = following[name]
        return self.decode(x)


def _arrays(record: dict[str, Any]) -> dict[str, Any]:
    return {name: np.array(value, np.float64) if isinstance(value, list) else value for name, value in record.items()}


def _step_product(node: Any, x: Array) -> Array:
    z: Array = x @ np.asarray(node.weight, np.float64).T
    return z + np.asarray(node.bias, np.float64) if isinstance(node, nir.Affine) else z


def _step_cuba_lif(node: Any, x: Array) -> Array:
    synapse, membrane = DT / node.tau_syn, DT / node.tau_mem
    current = v = np.zeros(x.shape[1:])
    spikes = np.empty(x.shape)
    for t, now in enumerate(x):
        current = current + synapse * (node.w_in * now - current)
        v = v + membrane * (node.v_leak - v + node.r * current)
        spikes[t] = v > node.v_threshold
        v = np.where(spikes[t] > 0, node.v_reset, v)
    return spikes


def _step_lif(node: Any, x: Array) -> Array:
    membrane = DT / node.tau
    v = np.zeros(x.shape[1:])
    spikes = np.empty(x.shape)
    for t, now in enumerate(x):
        v = v + membrane * (node.v_leak - v + node.r * now)
        spikes[t] = v > node.v_threshold
        v = np.where(spikes[t] > 0, node.v_reset, v)
    return spikes


_STEPS = {nir.Affine: _step_product, nir.Linear: _step_product, nir.LIF: _step_lif, nir.CubaLIF: _step_cuba_lif}

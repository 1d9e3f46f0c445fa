"""ONNX: the whole policy, observation to action, in one graph of standard operators.

Signals are [1, B, F] for one step and [T, B, F] for all of them: a layer is one product over all steps, then its
neurons step by step. Inputs and outputs: ``observation`` [B, obs] (float32 or uint8) → ``action`` [B, actions]
(float32), or for a discrete policy ``action`` [B] (int64) and ``values`` [B, actions].

What the policy is and where it comes from is in the model's metadata, one entry each: texts as they are, all else JSON.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from carebn import __version__
from carebn.deploy.describe import title
from carebn.deploy.graph import Layer, Neuron, PolicyGraph, Readout
from carebn.deploy.regular import check_regular
from carebn.equations import CONDITIONS, CURRENT, OPERATIONS

OPSET, IR_VERSION = 17, 9  # what runtimes of several years back read
Value = str | float  # the name of a result, or a number that is known already
TYPES: dict[type[np.floating[Any]], int] = {np.float32: TensorProto.FLOAT, np.float64: TensorProto.DOUBLE}


class _Graph:
    """Collects nodes; every method returns the name of its result."""

    def __init__(self, dtype: type[np.floating[Any]]) -> None:
        self.dtype = dtype
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.truths: set[str] = set()  # results that are of type bool
        self._numbers: dict[Value, str] = {}  # constants and casts that are there already

    def constant(self, value: Any, dtype: Any = None) -> str:
        name = f"constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value, dtype or self.dtype), name))
        return name

    def __call__(self, operator: str, *inputs: str, out: str | None = None, **attributes: Any) -> str:
        name = out or f"{operator.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [name], **attributes))
        return name

    def split(self, x: str, steps: int) -> list[str]:
        """[T, B, F] → T times [1, B, F]."""
        names = [f"step_{len(self.nodes)}_{t}" for t in range(steps)]
        self.nodes.append(helper.make_node("Split", [x, self.constant([1] * steps, np.int64)], names, axis=0))
        return names

    def cast(self, x: str) -> str:
        return self("Cast", x, to=TYPES[self.dtype])

    def number(self, x: Value) -> str:
        """A result or a number, as an operand of arithmetic."""
        if isinstance(x, str) and x not in self.truths:
            return x
        if x not in self._numbers:
            self._numbers[x] = self.cast(x) if isinstance(x, str) else self.constant(x)
        return self._numbers[x]

    def truth(self, x: Value) -> str:
        """As a condition."""
        return x if isinstance(x, str) else self.constant(bool(x), np.bool_)


def to_onnx(network: PolicyGraph, dtype: type[np.floating[Any]] = np.float32) -> onnx.ModelProto:
    g = _Graph(dtype)
    encoder = network.encoder
    x = _encode(g, network)
    for layer in network.layers:
        z = _currents(g, layer, x, network.time_steps)
        x = [g("Relu", each) for each in z] if layer.neuron.kind == "relu" else _fire(g, layer.neuron, z)
    values = g("Squeeze", _READOUTS[network.readout.kind](g, network.readout, x), g.constant([0], np.int64))
    outputs: list[tuple[str, int, list[str | int | None]]]
    if network.bounds is None:
        g("Cast", values, out="values", to=TensorProto.FLOAT)
        g("ArgMax", values, out="action", axis=1, keepdims=0)
        outputs = [
            ("action", TensorProto.INT64, ["batch"]),
            ("values", TensorProto.FLOAT, ["batch", network.readout.values]),
        ]
    else:
        bounds = network.bounds
        reach = g("Mul", g("Tanh", values), g.constant(bounds.reach))
        action = g("Max", g("Add", reach, g.constant(bounds.middle)), g.constant(bounds.low))
        g("Cast", g("Min", action, g.constant(bounds.high)), out="action", to=TensorProto.FLOAT)
        outputs = [("action", TensorProto.FLOAT, ["batch", network.readout.values])]
    kind = TensorProto.UINT8 if encoder.byte_observations else TensorProto.FLOAT
    observation = helper.make_tensor_value_info("observation", kind, ["batch", encoder.obs_dim])
    results = [helper.make_tensor_value_info(*output) for output in outputs]
    graph = helper.make_graph(g.nodes, "policy", [observation], results, g.constants)
    model = helper.make_model(
        graph,
        producer_name="carebn",
        producer_version=__version__,
        doc_string=title(network.info),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
    )
    texts = {name: x if isinstance(x, str) else json.dumps(x) for name, x in network.info.items()}
    helper.set_model_props(model, {"producer": "carebn", "weights": np.dtype(dtype).name, **texts})
    onnx.checker.check_model(model, full_check=True)
    return model


def write_onnx(network: PolicyGraph, path: Path, dtype: type[np.floating[Any]]) -> None:
    path.write_bytes(to_onnx(network, dtype).SerializeToString())


class ONNXPolicy:
    """The file in onnxruntime, on one CPU thread."""

    def __init__(self, path: Path | str) -> None:
        check_regular(Path(path))
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(
            Path(path).read_bytes(), options, providers=["CPUExecutionProvider"]
        )

    def values(self, obs: NDArray[Any]) -> NDArray[Any]:
        names = [output.name for output in self.session.get_outputs()]
        wanted = "values" if "values" in names else "action"
        out: NDArray[Any] = self.session.run([wanted], {"observation": obs})[0]
        return out


def _encode(g: _Graph, network: PolicyGraph) -> list[str]:
    """One signal [1, B, F], the same at every step, or T of them."""
    encoder = network.encoder
    x = g.cast("observation")
    if encoder.offset.any():
        x = g("Sub", x, g.constant(encoder.offset))
    if (encoder.divisor != 1).any():
        x = g("Div", x, g.constant(encoder.divisor))
    if encoder.squash == "tanh":
        x = g("Tanh", x)
    elif encoder.squash == "clip":
        x = g("Clip", x, g.constant(-encoder.limit), g.constant(encoder.limit))
    if encoder.coding == "direct":
        return [g("Unsqueeze", x, g.constant([0], np.int64))]
    x = g("Unsqueeze", x, g.constant([2], np.int64))
    u = g("Mul", g("Sub", x, g.constant(encoder.mean)), g.constant(encoder.precision))
    a = g("Exp", g("Mul", g("Mul", u, u), g.constant(-0.5)))
    a = g("Reshape", a, g.constant([1, -1, encoder.outputs], np.int64))
    if encoder.coding == "analogue":
        return [a]
    spikes = []
    threshold, subtract = g.constant(encoder.threshold), g.constant(encoder.subtract)
    v = a
    for t in range(network.time_steps):
        v = a if t == 0 else g("Add", v, a)
        spikes.append(g.cast(g("Greater", v, threshold)))
        v = g("Sub", v, g("Mul", spikes[-1], subtract))
    return spikes


def _currents(g: _Graph, layer: Layer, x: list[str], steps: int) -> list[str]:
    """The current of every step, [1, B, outputs] each."""
    signal = x[0] if len(x) == 1 else g("Concat", *x, axis=0)
    z = g("MatMul", signal, g.constant(layer.weight))
    if layer.scale is not None:
        z = g("Mul", z, g.constant(layer.scale[:, None]))
    z = g("Add", z, g.constant(layer.bias[:, None]))
    if steps == 1:
        return [z]
    return g.split(z, steps) if len(x) > 1 or layer.per_step else [z] * steps


def _sum(g: _Graph, readout: Readout, spikes: list[str]) -> str:
    counted = [
        x if share == 1 else g("Mul", x, g.constant(share))
        for x, share in zip(spikes, readout.share, strict=True)
        if share
    ]
    total = counted[0] if len(counted) == 1 else g("Sum", *counted)
    return g("Add", g("MatMul", total, g.constant(readout.weight)), g.constant(readout.bias))


def _furthest(g: _Graph, readout: Readout, spikes: list[str]) -> str:
    weight, bias = g.constant(readout.weight), g.constant(readout.bias)
    drives = [g("Add", g("MatMul", x, weight), bias) for x in spikes]
    potential = found = drives[0]
    for drive in drives[1:]:
        potential = g("Add", potential, drive)
        further = g("Greater", g("Abs", potential), g("Abs", found))
        found = g("Where", further, potential, found)
    return found


_READOUTS = {"sum": _sum, "furthest": _furthest}


def _fire(g: _Graph, neuron: Neuron, currents: list[str]) -> list[str]:
    """The neuron's equations at every step. What is known before is not computed: a state that starts at zero leaves no
    operation in the first step."""
    step = neuron.equations
    state: dict[str, Value] = {name: neuron.value(start) for name, start in step.start.items()}
    spikes = []
    for current in currents:
        known: dict[str, Value] = {**neuron.constants, **state, CURRENT: current}
        for i, (operation, *operands) in enumerate(step.lines):
            values = [known[x] if isinstance(x, str) else x for x in operands]
            known[f"#{i}"] = _simplified(g, operation, values)
        spikes.append(_signal(g, known[step.spike], current))
        state = {name: known[x] if isinstance(x, str) else x for name, x in step.after.items()}
    return spikes


def _simplified(g: _Graph, operation: str, values: list[Value]) -> Value:
    if not any(isinstance(x, str) for x in values):
        with np.errstate(all="ignore"):
            return float(getattr(np, operation)(*values))
    first, second = values[0], values[-1]
    if operation == "where" and not isinstance(first, str):
        return values[1] if first else values[2]
    if operation == "multiply" and 0.0 in values:
        return 0.0
    if operation == "add" and 0.0 in values:
        return first if second == 0.0 else second
    if operation == "subtract" and second == 0.0:
        return first
    conditions = CONDITIONS.get(operation, 0)
    names = [g.truth(x) if i < conditions else g.number(x) for i, x in enumerate(values)]
    made = g(OPERATIONS[operation].onnx, *names)
    if OPERATIONS[operation].boolean:
        g.truths.add(made)
    return made


def _signal(g: _Graph, spike: Value, current: str) -> str:
    """[1, B, F], also of a spike that does not depend on the current."""
    if isinstance(spike, str):
        return g.number(spike)
    return g("Add", g("Mul", current, g.number(0.0)), g.number(spike))

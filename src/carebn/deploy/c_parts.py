"""The parts of the C file: constants, encoder, layers, read-out."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carebn.deploy.graph import Layer, Neuron, PolicyGraph, Readout
from carebn.equations import CURRENT, OPERATIONS

REFUSED = -1  # is returned for an observation with NaN or infinity
_RELU = "out[f] = current > {zero} ? current : {zero};\n"


@dataclass(frozen=True)
class Dialect:
    """How numbers are written in C."""

    real: str  # the type of every number that is not a spike; the file calls it "real"
    suffix: str  # of its literals and of libm's functions
    dtype: type[np.floating[Any]]

    def number(self, value: Any) -> str:
        text = str(self.dtype(value))
        return (text if set(text) & set(".e") else text + ".0") + self.suffix

    def array(self, name: str, values: NDArray[Any]) -> str:
        """The definition of a constant array."""
        shape = "".join(f"[{n}]" for n in values.shape)
        return f"static const real {name}{shape} = {self._braces(values)};\n"

    def _braces(self, values: NDArray[Any]) -> str:
        if values.ndim > 1:
            return "{\n" + ",\n".join(self._braces(v) for v in values) + "}"
        return "{" + ", ".join(map(self.number, values)) + "}"


DIALECTS = {
    "float32": Dialect("float", "f", np.float32),
    "float64": Dialect("double", "", np.float64),
}


def encoder_code(network: PolicyGraph, d: Dialect) -> str:
    encoder = network.encoder
    x = "(real)observation[i]"
    arrays = ""
    if encoder.offset.any():
        arrays += d.array("offset", encoder.offset)
        x = f"({x} - offset[i])"
    if (encoder.divisor != 1).any():
        arrays += d.array("divisor", encoder.divisor)
        x = f"{x} / divisor[i]"
    lines = [f"real x = {x};"]
    if encoder.squash == "tanh":
        lines.append(f"x = tanh{d.suffix}(x);")
    elif encoder.squash == "clip":
        limit = d.number(encoder.limit)
        lines.append(f"x = x > {limit} ? {limit} : x < -{limit} ? -{limit} : x;")
    out = f"real out[{encoder.outputs}]"
    if encoder.coding == "direct":
        lines.append("out[i] = x;")
    else:
        population = encoder.mean.shape[1]
        arrays += d.array("field_mean", encoder.mean) + d.array("field_precision", encoder.precision)
        lines += [
            f"for (int j = 0; j < {population}; j++) {{",
            "    real u = (x - field_mean[i][j]) * field_precision[i][j];",
            f"    real a = exp{d.suffix}(-(u * u * {d.number(0.5)}));",
        ]
        if encoder.coding == "analogue":
            lines += [f"    out[i * {population} + j] = a;", "}"]
        else:
            out = f"uint8_t out[STEPS][{encoder.outputs}]"
            lines += [
                f"    real v = {d.number(0)};",
                "    for (int t = 0; t < STEPS; t++) {",
                "        v += a;",
                f"        uint8_t fired = v > {d.number(encoder.threshold)};",
                f"        out[t][i * {population} + j] = fired;",
                f"        if (fired) v -= {d.number(encoder.subtract)};",
                "    }",
                "}",
            ]
    kind = "uint8_t" if encoder.byte_observations else "float"
    body = "\n".join("        " + line for line in lines)
    return (
        f"{arrays}\nstatic void encode(const {kind} *observation, {out})\n{{\n"
        f"    for (int i = 0; i < {encoder.obs_dim}; i++) {{\n{body}\n    }}\n}}\n\n"
    )


def layer_code(i: int, layer: Layer, d: Dialect, real_input: bool) -> str:
    """Products, then neurons: ``in`` is [STEPS][inputs] spikes, or [inputs] numbers that are the same at every step."""
    relu = layer.neuron.kind == "relu"
    inputs, outputs = layer.inputs, layer.outputs
    factor = layer.scale
    arrays = d.array(f"weight_{i}", layer.weight)
    arrays += d.array(f"bias_{i}", layer.bias)
    current = "sum[f]"
    if factor is not None:
        arrays += d.array(f"factor_{i}", factor)
        current += f" * factor_{i}[{'t' if len(factor) > 1 else 0}][f]"
    current += f" + bias_{i}[{'t' if len(layer.bias) > 1 else 0}][f]"
    source = f"const real in[{inputs}]" if real_input else f"const uint8_t in[STEPS][{inputs}]"
    target = f"real out[{outputs}]" if relu else f"uint8_t out[STEPS][{outputs}]"
    clear, memory, neurons = "", f"    static real sum[{outputs}];\n", _RELU.format(zero=d.number(0))
    if not relu:
        neurons, previous = _step(layer.neuron, d), _previous_spike(layer.neuron)
        for k, (name, start) in enumerate(layer.neuron.equations.start.items()):
            if name != previous:
                memory += f"    static real state_{k}[{outputs}];\n"
                first = d.number(layer.neuron.value(start))
                clear += f"    for (int f = 0; f < {outputs}; f++) state_{k}[f] = {first};\n"
    row = f"for (int f = 0; f < {outputs}; f++) sum[f] += {'in[j] * ' if real_input else ''}weight_{i}[j][f];"
    product = (
        f"for (int f = 0; f < {outputs}; f++) sum[f] = 0;\n"
        f"for (int j = 0; j < {inputs}; j++)\n"
        f"    if ({'in[j] != 0' if real_input else 'in[t][j]'})\n"
        f"        {row}\n"
    )
    neurons = f"for (int f = 0; f < {outputs}; f++) {{\n    real current = {current};\n" + _indent(neurons, 1) + "}\n"
    if relu:
        body = _indent(product + neurons, 1)
    elif real_input:
        body = _indent(product, 1) + "    for (int t = 0; t < STEPS; t++) {\n" + _indent(neurons, 2) + "    }\n"
    else:
        body = "    for (int t = 0; t < STEPS; t++) {\n" + _indent(product + neurons, 2) + "    }\n"
    return f"{arrays}\nstatic void layer_{i}({source}, {target})\n{{\n{memory}{clear}{body}}}\n\n"


def _step(neuron: Neuron, d: Dialect) -> str:
    """The neuron's equations, one line each."""
    step, previous = neuron.equations, _previous_spike(neuron)
    names = {CURRENT: CURRENT} | {name: d.number(value) for name, value in neuron.constants.items()}
    names |= {state: f"before_{i}" for i, state in enumerate(step.start)}
    names |= {f"#{i}": f"r{i}" for i in range(len(step.lines))}

    def written(operand: str | float) -> str:
        return names[operand] if isinstance(operand, str) else d.number(operand)

    code = ""
    for i, state in enumerate(step.start):
        same = state == previous
        code += (
            f"{'uint8_t' if same else 'real'} before_{i} = {'t ? out[t - 1][f] : 0' if same else f'state_{i}[f]'};\n"
        )
    for i, (operation, *operands) in enumerate(step.lines):
        known = OPERATIONS[operation]
        value = known.c.format(*map(written, operands), f=d.suffix)
        code += f"{'uint8_t' if known.boolean else 'real'} r{i} = {value};\n"
    code += f"out[t][f] = {written(step.spike)} != 0;\n"
    return code + "".join(
        f"state_{i}[f] = {written(step.after[state])};\n" for i, state in enumerate(step.start) if state != previous
    )


def _previous_spike(neuron: Neuron) -> str | None:
    """The state that is the last step's spike, which is known without it."""
    step = neuron.equations
    return next((name for name, start in step.start.items() if start == 0 and step.after[name] == step.spike), None)


def _sum(readout: Readout, d: Dialect, spikes: str, result: str) -> list[str]:
    values = readout.values
    return [
        f"for (int o = 0; o < {values}; o++) {result}[o] = readout_bias[o];",
        f"for (int f = 0; f < {len(readout.weight)}; f++) {{",
        f"    real total = {d.number(0)};",
        f"    for (int t = 0; t < STEPS; t++) total += readout_share[t] * {spikes};",
        f"    if (total != 0) for (int o = 0; o < {values}; o++) {result}[o] += total * readout_weight[f][o];",
        "}",
    ]


def _furthest(readout: Readout, d: Dialect, spikes: str, result: str) -> list[str]:
    values = readout.values
    return [
        f"real potential[{values}];",
        f"for (int o = 0; o < {values}; o++) potential[o] = {result}[o] = {d.number(0)};",
        "for (int t = 0; t < STEPS; t++) {",
        f"    for (int o = 0; o < {values}; o++) potential[o] += readout_bias[o];",
        f"    for (int f = 0; f < {len(readout.weight)}; f++)",
        f"        if ({spikes} != 0)",
        f"            for (int o = 0; o < {values}; o++) potential[o] += {spikes} * readout_weight[f][o];",
        f"    for (int o = 0; o < {values}; o++)",
        f"        if (fabs{d.suffix}(potential[o]) > fabs{d.suffix}({result}[o])) {result}[o] = potential[o];",
        "}",
    ]


_READOUTS = {"sum": _sum, "furthest": _furthest}


def _finite(size: int) -> list[str]:
    """By its bits: compiled with -ffast-math, isfinite() is always true."""
    return [
        f"for (int i = 0; i < {size}; i++) {{",
        "    union { float number; uint32_t bits; } seen;",
        "    seen.number = observation[i];",
        f"    if ((seen.bits & 0x7f800000u) == 0x7f800000u) return {REFUSED};",
        "}",
    ]


def policy_code(network: PolicyGraph, d: Dialect, declaration: str) -> str:
    encoder, readout, spiking = network.encoder, network.readout, network.spiking
    values = readout.values
    arrays = d.array("readout_weight", readout.weight) + d.array("readout_bias", readout.bias)
    result = "values" if network.bounds is None else "action"
    buffers, calls = [], []
    kind = "uint8_t {}[STEPS][{}]" if encoder.coding == "spikes" else "real {}[{}]"
    buffers.append(kind.format("signal_0", encoder.outputs))
    for i, layer in enumerate(network.layers, 1):
        kind = "uint8_t {}[STEPS][{}]" if spiking else "real {}[{}]"
        buffers.append(kind.format(f"signal_{i}", layer.outputs))
        # C has no implicit conversion from an array of arrays to one of constant arrays
        cast = f"(const uint8_t (*)[{layer.inputs}])" if spiking and not (i == 1 and encoder.coding != "spikes") else ""
        calls.append(f"layer_{i}({cast}signal_{i - 1}, signal_{i});")
    spikes = f"signal_{len(network.layers)}" + ("[t][f]" if spiking else "[f]")
    if readout.kind == "sum":
        arrays += d.array("readout_share", readout.share)
    lines = [
        *(f"static {buffer};" for buffer in buffers),
        *([] if encoder.byte_observations else _finite(encoder.obs_dim)),
        "encode(observation, signal_0);",
        *calls,
        *_READOUTS[readout.kind](readout, d, spikes, result),
    ]
    if network.bounds is None:
        lines += [
            "int best = 0;",
            f"for (int o = 1; o < {values}; o++) if (values[o] > values[best]) best = o;",
            "return best;",
        ]
    else:
        arrays += "".join(d.array(name, bound) for name, bound in vars(network.bounds).items())
        lines += [
            f"for (int o = 0; o < {values}; o++) {{",
            f"    real a = middle[o] + reach[o] * tanh{d.suffix}(action[o]);",
            "    action[o] = a < low[o] ? low[o] : a > high[o] ? high[o] : a;",
            "}",
            "return 0;",
        ]
    return f"{arrays}\n{declaration}\n{{\n" + _indent("\n".join(lines) + "\n", 1) + "}\n"


def _indent(text: str, levels: int) -> str:
    return "".join("    " * levels + line + "\n" for line in text.splitlines())

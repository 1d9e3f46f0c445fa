"""The parts of the C file of a policy in whole numbers: tables, memory, encoder, layers, read-out."""

from carebn.deploy.integer import IntegerPolicy
from carebn.deploy.integer_parts import (
    LARGEST,
    LARGEST_VALUE,
    TANH,
    TANH_BITS,
    TANH_STEP,
    Bounds32,
    Decay,
    Stage,
    Whole,
)

TYPES = {"int8": "int8_t", "int16": "int16_t", "int32": "int32_t"}


def array_code(name: str, array: Whole) -> str:
    shape = "".join(f"[{n}]" for n in array.shape)
    return f"static const {TYPES[array.dtype.name]} {name}{shape} = {_braces(array)};\n"


def _braces(array: Whole) -> str:
    if array.ndim > 1:
        return "{\n" + ",\n".join(map(_braces, array)) + "}"
    return "{" + ", ".join("(-2147483647 - 1)" if x == -(2**31) else str(x) for x in array.tolist()) + "}"


def buffer_code(policy: IntegerPolicy) -> str:
    """Static memory, so that the stack stays small."""
    lines = []
    if policy.fields is not None:
        neurons = len(policy.fields.edges)
        lines += [f"static {_train_type(policy)} train[{neurons}];", f"static uint8_t signal_0[{neurons}];"]
    else:
        lines += [f"static int32_t signal_0[{policy.obs_dim}];"]
    shared, values = 0, policy.fields is None
    for i, (stage, bound) in enumerate(zip(policy.stages, policy.bounds, strict=True), 1):
        if values:
            lines.append(f"static {'int64_t' if bound.sum > LARGEST else 'int32_t'} sum_{i}[{stage.outputs}];")
        else:
            shared = max(shared, stage.outputs)
        values = stage.kind == "relu"
        lines.append(f"static {'int16_t' if values else 'uint8_t'} signal_{i}[{stage.outputs}];")
        states = {"clif": ("current", "potential"), "relu": ()}.get(stage.kind, ("potential",))
        lines += [f"static int32_t {state}_{i}[{stage.outputs}];" for state in states]
    if shared:
        lines.append(f"static int32_t sum[{shared}];")
    sums, _ = policy.reading.largest(policy.largest_inputs[-1])
    lines.append(f"static {'int64_t' if sums > LARGEST else 'int32_t'} total[{len(policy.reading.bias)}];")
    if policy.reading.kind == "furthest":
        lines.append(f"static int32_t furthest[{len(policy.reading.bias)}];")
    return "\n".join(lines) + "\n\n"


def _train_type(policy: IntegerPolicy) -> str:
    assert policy.fields is not None
    return "uint8_t" if len(policy.fields.trains) < 256 else "uint16_t"


def encoder_code(policy: IntegerPolicy) -> str:
    assert policy.fields is not None
    neurons, edges = policy.fields.edges.shape
    population = neurons // policy.obs_dim
    return f"""static void encode(const int32_t *observation)
{{
    for (int i = 0; i < {policy.obs_dim}; i++) {{
        for (int n = i * {population}; n < (i + 1) * {population}; n++) {{
            int passed = 0, last = {edges};
            while (passed < last) {{
                int middle = (passed + last) / 2;
                if (observation[i] > edges[n][middle]) passed = middle + 1; else last = middle;
            }}
            train[n] = ({_train_type(policy)})(passed < {edges} - passed ? passed : {edges} - passed);
        }}
    }}
}}

"""


def product_code(i: int, stage: Stage, bound: Bounds32, values: bool) -> str:
    wide = "(int64_t)" if bound.sum > LARGEST else ""
    sums, factor = (f"sum_{i}", f"{wide}signal_{i - 1}[j] * ") if values else ("sum", "")
    return f"""static void product_{i}(void)
{{
    for (int f = 0; f < {stage.outputs}; f++) {sums}[f] = 0;
    for (int j = 0; j < {stage.inputs}; j++) {{
        if (signal_{i - 1}[j]) {{
            const {TYPES[stage.levels.dtype.name]} *row = weight_{i}[j];
            for (int f = 0; f < {stage.outputs}; f++) {sums}[f] += {factor}row[f];
        }}
    }}
}}

"""


def neuron_code(i: int, stage: Stage, bound: Bounds32, values: bool) -> str:
    sums = f"sum_{i}" if values else "sum"
    rows, columns = stage.multiplier.shape
    multiplier = f"multiplier_{i}[{'t' if rows > 1 else 0}][{'f' if columns > 1 else 0}]"
    if stage.multiplier.size == 1:
        multiplier = str(int(stage.multiplier[0, 0]))
    wide = "(int64_t)" if bound.product > LARGEST else ""
    current = f"{wide}{sums}[f] * {multiplier}" if multiplier != "1" else f"{sums}[f]"
    if stage.shift:
        current += f" / {_power(stage.shift, wide or values)}"
    current = f"(int32_t)({current})" if wide or values else current
    lines = [f"int32_t current = {current} + bias_{i}[{'t' if len(stage.bias) > 1 else 0}][f];"]
    if stage.kind == "relu":
        lines.append(f"signal_{i}[f] = (int16_t)(current < 0 ? 0 : current > 32767 ? 32767 : current);")
    else:
        if stage.kind == "clif":
            lines.append(f"current_{i}[f] = {_decayed(f'current_{i}[f]', stage.current_decay, bound)} + current;")
        summand = f"current_{i}[f]" if stage.kind == "clif" else "current"
        after = f"potential - threshold_{i}[f]" if stage.kind == "if" else "0"
        lines += [
            f"int32_t potential = {_decayed(f'potential_{i}[f]', stage.decay, bound)} + {summand};",
            f"signal_{i}[f] = potential > threshold_{i}[f];",
            f"potential_{i}[f] = signal_{i}[f] ? {after} : potential;",
        ]
    body = "".join(f"        {line}\n" for line in lines)
    used = "t" if "[t]" in body else None
    return (
        f"static void layer_{i}({'int t' if used else 'void'})\n{{\n"
        f"    for (int f = 0; f < {stage.outputs}; f++) {{\n{body}    }}\n}}\n\n"
    )


def _power(bits: int, wide: object) -> str:
    return f"{1 << bits}{'LL' if wide else ''}"


def _decayed(state: str, decay: Decay, bound: Bounds32) -> str:
    if decay.numerator == 1 << decay.bits:
        return state
    if bound.decayed > LARGEST:
        return f"(int32_t)((int64_t){state} * {decay.numerator} / {1 << decay.bits})"
    return (
        f"{state} * {decay.numerator} / {1 << decay.bits}" if decay.numerator != 1 else f"{state} / {1 << decay.bits}"
    )


def policy_code(policy: IntegerPolicy, declaration: str, not_loaded: int | None) -> str:
    reading, outputs = policy.reading, len(policy.reading.bias)
    lines = [] if not_loaded is None else [f"if (!blob) return {not_loaded};"]
    if policy.fields is not None:
        lines.append("encode(observation);")
    elif policy.byte_observations:
        lines.append(f"for (int i = 0; i < {policy.obs_dim}; i++) signal_0[i] = observation[i];")
    else:
        most = LARGEST_VALUE
        lines += [
            f"for (int i = 0; i < {policy.obs_dim}; i++) {{",
            "    int32_t x = observation[i];",
            f"    signal_0[i] = x > {most} ? {most} : x < -{most} ? -{most} : x;",
            "}",
        ]
    for i, stage in enumerate(policy.stages, 1):
        if stage.kind == "clif":
            lines.append(f"for (int f = 0; f < {stage.outputs}; f++) current_{i}[f] = 0;")
        if stage.kind != "relu":
            start = f"start_{i}[f]" if stage.kind == "if" else "0"
            lines.append(f"for (int f = 0; f < {stage.outputs}; f++) potential_{i}[f] = {start};")
    far = reading.kind == "furthest"
    lines.append(f"for (int o = 0; o < {outputs}; o++) {'furthest[o] = ' if far else ''}total[o] = 0;")
    if policy.fields is None:
        lines.append("product_1();")
    lines.append("for (int t = 0; t < STEPS; t++) {")
    if policy.fields is not None:
        lines.append(
            f"    for (int n = 0; n < {len(policy.fields.edges)}; n++) signal_0[n] = (uint8_t)trains[train[n]][t];"
        )
    for i, stage in enumerate(policy.stages, 1):
        if i > 1 or policy.fields is not None:
            lines.append(f"    product_{i}();")
        per_step = len(stage.bias) > 1 or len(stage.multiplier) > 1
        lines.append(f"    layer_{i}({'t' if per_step else ''});")
    last, (sums, _) = len(policy.stages), reading.largest(policy.largest_inputs[-1])
    final = "int64_t" if sums > LARGEST else "int32_t"
    share = " * readout_share[t]" if (reading.share != 1).any() else ""
    factor = f"({final})signal_{last}[f] * " if policy.stages[-1].kind == "relu" else ""
    if far:
        lines.append(f"    for (int o = 0; o < {outputs}; o++) total[o] += readout_bias[o];")
    lines += [
        f"    for (int f = 0; f < {len(reading.weight)}; f++)",
        f"        if (signal_{last}[f])",
        f"            for (int o = 0; o < {outputs}; o++) total[o] += {factor}readout_weight[f][o]{share};",
    ]
    if far:
        lines += [
            f"    for (int o = 0; o < {outputs}; o++) {{",
            "        int32_t size = total[o] < 0 ? -total[o] : total[o];",
            "        int32_t most = furthest[o] < 0 ? -furthest[o] : furthest[o];",
            "        if (size > most) furthest[o] = total[o];",
            "    }",
        ]
    lines.append("}")
    divided = f" / {_power(reading.shift, True)}" if reading.shift else ""
    value = "furthest[o]" if far else f"(int32_t)(total[o]{divided}) + readout_bias[o]"
    lines += _discrete(outputs, value) if policy.command is None else _continuous(outputs, value, reading.bits)
    body = "".join(f"    {line}\n" for line in lines)
    return f"{declaration}\n{{\n{body}}}\n"


def _discrete(outputs: int, value: str) -> list[str]:
    return [
        "int best = 0;",
        f"for (int o = 0; o < {outputs}; o++) {{",
        f"    values[o] = {value};",
        "    if (values[o] > values[best]) best = o;",
        "}",
        "return best;",
    ]


def _continuous(outputs: int, value: str, bits: int) -> list[str]:
    fine = bits - TANH_STEP
    return [
        f"for (int o = 0; o < {outputs}; o++) {{",
        f"    int32_t value = {value};",
        "    int32_t size = value < 0 ? -value : value;",
        f"    int32_t place = size >> {fine}, bent = {1 << TANH_BITS};",
        f"    if (place < {len(TANH) - 1}) {{",
        "        int32_t here = tanh_table[place], rise = tanh_table[place + 1] - here;",
        f"        bent = here + (rise * (size & {(1 << fine) - 1}) >> {fine});",
        "    }",
        "    if (value < 0) bent = -bent;",
        f"    int32_t a = action_middle[o] + (int32_t)((int64_t)action_reach[o] * bent / {1 << TANH_BITS});",
        "    action[o] = a < action_low[o] ? action_low[o] : a > action_high[o] ? action_high[o] : a;",
        "}",
        "return 0;",
    ]

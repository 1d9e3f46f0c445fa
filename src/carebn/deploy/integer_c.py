"""C of a policy in whole numbers: a C99 file without floating point, allocation or library, and its header.

Step by step through time, and in each step layer by layer: what fired adds its row of levels to the sums. Types are as
wide as the bounds say (``integer_parts.Bounds32``), so that nothing overflows, on any machine.

The weights are constants of the file, or come at run time from a blob (``blob.py``). Compiled with -DPOLICY_MAIN it
becomes a program that reads observations from its input and prints commands, all as whole numbers.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carebn.deploy.blob import Blob, blob_code, blob_of, blob_program
from carebn.deploy.c_export import HEADER_MARK, CProgram, count, function_name, memory, starred
from carebn.deploy.describe import order_of, origin_lines, piece_lines, range_of
from carebn.deploy.integer import IntegerPolicy
from carebn.deploy.integer_c_parts import (
    array_code,
    buffer_code,
    encoder_code,
    neuron_code,
    policy_code,
    product_code,
)
from carebn.deploy.integer_parts import LARGEST, LARGEST_VALUE, TANH, Whole, Wide

CODES = {
    "NOT_FINITE": (-1, "NaN or infinity in an observation; the wrapper in floats alone says it"),
    "NOT_A_BLOB": (-2, "these are not weights of a policy of carebn"),
    "OTHER_POLICY": (-3, "weights of another policy"),
    "WRONG_SIZE": (-4, "truncated, or with more behind it"),
    "DAMAGED": (-5, "the checksum is another"),
    "NOT_LOADED": (-6, "no weights have been loaded"),
    "MISALIGNED": (-7, "weights must lie at an address that four divides"),
}


def to_c(policy: IntegerPolicy, prefix: str = "", blob: bool = False) -> str:
    code = "".join(_code(policy, prefix, blob_of(tables(policy)) if blob else None))
    return _comment(policy, prefix, code, blob) + code


def write_c(policy: IntegerPolicy, path: Path, prefix: str = "", blob: bool = False) -> None:
    path.write_text(to_c(policy, prefix, blob), encoding="utf-8")


def tables(policy: IntegerPolicy) -> dict[str, Whole]:
    """Every array that the code reads, by its name in C: what is a constant of the file, or in the blob."""
    found: dict[str, Whole] = {}
    if policy.fields is not None:
        found |= {"edges": policy.fields.edges, "trains": policy.fields.trains}
    for i, stage in enumerate(policy.stages, 1):
        found |= {f"weight_{i}": stage.levels, f"bias_{i}": stage.bias}
        if stage.multiplier.size > 1:
            found[f"multiplier_{i}"] = stage.multiplier
        found |= {f"{name}_{i}": getattr(stage, name) for name in ("threshold", "start") if getattr(stage, name).size}
    found |= {"readout_weight": policy.reading.weight, "readout_bias": policy.reading.bias}
    if (policy.reading.share != 1).any():
        found["readout_share"] = policy.reading.share
    if policy.command is not None:
        found |= {f"action_{name}": getattr(policy.command, name) for name in ("middle", "reach", "low", "high")}
    return found


def to_header(policy: IntegerPolicy, prefix: str = "", blob: bool = False) -> str:
    name = function_name(prefix)
    guard = name.upper()
    size = "VALUES" if policy.command is None else "ACTIONS"
    bits = policy.reading.bits if policy.command is None else policy.command.bits
    codes = {what: code for what, code in CODES.items() if what == "NOT_FINITE" or blob}
    defines = "".join(f"#define {guard}_{what} ({code})  /* {text} */\n" for what, (code, text) in codes.items())
    load = ""
    if blob:
        load = f"""
/* Checks {len(blob_of(tables(policy)).data):,} bytes of weights, which have to stay where they are.
   Returns 0; otherwise nothing is loaded, and {name}() refuses to act. */
int {name}_load(const void *weights, uint32_t size);
"""
    return f"""/*
 * {HEADER_MARK}: compile the C file beside it and link with it. No library is needed.
{starred(_meaning(policy))} */
#ifndef {guard}_H
#define {guard}_H

#include <stdint.h>

#define {guard}_OBSERVATIONS {policy.obs_dim}
#define {guard}_OBSERVATION_BITS {{{", ".join(map(str, policy.observation_bits.tolist()))}}}
#define {guard}_{size} {len(policy.reading.bias)}
#define {guard}_{size[:-1]}_BITS {bits}
{defines}
#ifdef __cplusplus
extern "C" {{
#endif

{_declaration(policy, name)};
{load}
#ifdef __cplusplus
}}
#endif
{"" if policy.byte_observations else _float_wrapper(policy, name, bits)}
#endif
"""


def _float_wrapper(policy: IntegerPolicy, name: str, bits: int) -> str:
    """Only in files that ask for it; the policy's own file has no floating point."""
    size, outputs, guard = policy.obs_dim, len(policy.reading.bias), name.upper()
    return f"""
#ifdef {guard}_FLOAT
/* The same with numbers in the environment's own units; define {guard}_FLOAT before this header is included. */
static int {name}_float(const float observation[{size}], float result[{outputs}])
{{
    static const int bits[{size}] = {guard}_OBSERVATION_BITS;
    int32_t fixed[{size}], commands[{outputs}];
    for (int i = 0; i < {size}; i++) {{
        union {{ float number; uint32_t bits; }} seen;
        seen.number = observation[i];
        if ((seen.bits & 0x7f800000u) == 0x7f800000u) return {guard}_NOT_FINITE;
        double scaled = (double)observation[i] * (double)(1L << bits[i]);
        scaled += scaled < 0 ? -0.5 : 0.5;
        fixed[i] = scaled >= 2147483647.0 ? 2147483647 : scaled <= -2147483647.0 ? -2147483647 : (int32_t)scaled;
    }}
    int code = {name}(fixed, commands);
    if (code < 0) return code;
    for (int o = 0; o < {outputs}; o++) result[o] = (float)((double)commands[o] / {1 << bits}.0);
    return code;
}}
#endif
"""


# --- what it says of itself ------------------------------------------------------------------------------------------


def _declaration(policy: IntegerPolicy, name: str) -> str:
    result, kind = "values" if policy.command is None else "action", _observation_type(policy)
    return f"int {name}(const {kind} observation[{policy.obs_dim}], int32_t {result}[{len(policy.reading.bias)}])"


def _observation_type(policy: IntegerPolicy) -> str:
    return "uint8_t" if policy.byte_observations else "int32_t"


def _comment(policy: IntegerPolicy, prefix: str, code: str, blob: bool) -> str:
    flash, ram = memory(code)
    environment = policy.origin.get("environment")
    spiking = policy.stages[0].kind != "relu"
    lines = [
        f"A{' spiking' if spiking else 'n ordinary'} policy{f' for {environment}' if environment else ''} in whole "
        "numbers, exported by carebn.",
        "",
        *origin_lines(policy.info),
        f"time steps: {policy.time_steps} per decision",
        f"numbers: {policy.weights} weights; all else int32, or int64 where a sum asks for it. No floating point",
        f"flash: {flash:,} bytes of constants, and the code" + (", and the weights, which are loaded" if blob else ""),
        f"RAM: {ram:,} bytes of static memory, and the gaps that a compiler leaves between arrays (size tells)",
        "stack: compile with -fstack-usage",
        "",
        *bound_lines(policy),
        "",
        *_meaning(policy),
        "",
        "C99, no library, no allocation. It works in static memory, so it must not run twice at the same time.",
        "For a test program, compile with -DPOLICY_MAIN (cc -std=c99 -O2 -DPOLICY_MAIN THIS_FILE): it reads",
        f"{count(policy.obs_dim)} per observation and prints {len(policy.reading.bias)} per line, all of them whole.",
    ]
    return f"/*\n{starred(lines)} */\n"


def bound_lines(policy: IntegerPolicy) -> list[str]:
    """The worst cases, which no observation can pass."""
    lines = ["largest magnitudes, whatever the observation (32 bits hold 2,147,483,647):"]
    for i, (stage, bound) in enumerate(zip(policy.stages, policy.bounds, strict=True), 1):
        wide = " (in 64 bits)" if max(bound.sum, bound.product, bound.decayed) > LARGEST else ""
        what = "activation" if stage.kind == "relu" else "potential"
        lines.append(f"    layer {i}: sum {bound.sum:,}, {what} {bound.state:,}{wide}")
    sums, values = policy.reading.largest(policy.largest_inputs[-1])
    lines.append(f"    read-out: sum {sums:,}, value {values:,}")
    return lines


def _meaning(policy: IntegerPolicy) -> list[str]:
    info, bits = policy.info, sorted(set(policy.observation_bits.tolist()))
    kind, observation = _observation_type(policy), info["observation"]
    lines = [f"observation: {count(policy.obs_dim)} ({kind}), {order_of(observation)}"]
    lines += piece_lines(observation)
    if len(bits) == 1 and not policy.byte_observations:
        lines.append(f"    in units of 2^-{bits[0]}: multiply the environment's number by {1 << bits[0]} and round")
    elif not policy.byte_observations:
        units = ", ".join(map(str, policy.observation_bits.tolist()))
        lines.append(f"    observation[i] in units of 2^-b, where b is {units}")
    if policy.fields is None and not policy.byte_observations:
        lines.append(f"    beyond {LARGEST_VALUE} of its units on either side it is cut off")
    lines += range_of(observation.get("low"), observation.get("high"), "in the environment's units: observation")
    if policy.command is None:
        lines += [
            f"values: {len(policy.reading.bias)}, one for each action, the higher the better; in units of "
            f"2^-{policy.reading.bits}",
            "returned: the number of the best action, counted from 0",
        ]
        if policy.origin.get("first_action"):
            lines.append(f"          (the environment counts them from {policy.origin['first_action']})")
    else:
        bits_ = policy.command.bits
        lines += [
            f"action: {count(len(policy.reading.bias))}, in units of 2^-{bits_}: divide by {1 << bits_}",
            *range_of(info["action"]["low"], info["action"]["high"], "in the environment's units: action"),
            "returned: 0",
        ]
    return lines


# --- the code --------------------------------------------------------------------------------------------------------


def _code(policy: IntegerPolicy, prefix: str, blob: Blob | None) -> Iterator[str]:
    name = function_name(prefix)
    yield f"#include <stdint.h>\n\n#define STEPS {policy.time_steps}\n\n{_declaration(policy, name)};\n\n"
    if blob is None:
        yield "".join(array_code(name, array) for name, array in tables(policy).items()) + "\n"
    else:
        yield blob_code(blob, name, {what: code for what, (code, _) in CODES.items()})
    if policy.command is not None:
        yield f"static const uint16_t tanh_table[{len(TANH)}] = {{{', '.join(map(str, TANH.tolist()))}}};\n\n"
    yield buffer_code(policy)
    if policy.fields is not None:
        yield encoder_code(policy)
    values = policy.fields is None
    for i, (stage, bound) in enumerate(zip(policy.stages, policy.bounds, strict=True), 1):
        yield product_code(i, stage, bound, values)
        yield neuron_code(i, stage, bound, values)
        values = stage.kind == "relu"
    yield policy_code(policy, _declaration(policy, name), None if blob is None else CODES["NOT_LOADED"][0])
    yield _main(policy, name, blob)


def _main(policy: IntegerPolicy, name: str, blob: Blob | None) -> str:
    size, outputs, kind = policy.obs_dim, len(policy.reading.bias), _observation_type(policy)
    low, high = (0, 255) if policy.byte_observations else (f"-{LARGEST}LL - 1", f"{LARGEST}LL")
    start, arguments = ("", "void") if blob is None else (blob_program(name), "int count, char **words")
    return f"""
#ifdef POLICY_MAIN
#include <stdio.h>

int main({arguments})
{{
    {kind} observation[{size}];
    int32_t result[{outputs}];
{start}    for (;;) {{
        for (int i = 0; i < {size}; i++) {{
            long long number;
            int read = scanf("%lld", &number);
            if (read == EOF && i == 0) return 0;
            if (read != 1) {{
                fprintf(stderr, "expected {size} whole numbers for an observation, got %d\\n", i);
                return 1;
            }}
            if (number < {low} || number > {high}) {{
                fprintf(stderr, "%lld does not fit in the type of an observation\\n", number);
                return 1;
            }}
            observation[i] = ({kind})number;
        }}
        int code = {name}(observation, result);
        if (code < 0) {{
            fprintf(stderr, "the policy refuses: code %d\\n", code);
            return 1;
        }}
        for (int o = 0; o < {outputs}; o++) printf("%ld%c", (long)result[o], o + 1 < {outputs} ? ' ' : '\\n');
        fflush(stdout);
    }}
}}
#endif
"""


class IntegerProgram(CProgram):
    """The file as a program."""

    def decide(self, fixed: NDArray[Any]) -> Wide:
        return np.array([[int(word) for word in line] for line in self.answers(fixed)], np.int64)

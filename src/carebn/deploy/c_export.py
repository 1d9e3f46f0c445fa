"""C: a self-contained C99 file, without allocation and with nothing but libm, and a header that declares its function.

Event-driven: per layer and step, the rows of the inputs that fired are added up. All numbers are float, or all double;
``integer_c.py`` writes policies in whole numbers.

Compiled with -DPOLICY_MAIN it becomes a program that reads observations from its input and prints values.
"""

import math
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carebn.deploy.c_parts import DIALECTS, REFUSED, Dialect, encoder_code, layer_code, policy_code
from carebn.deploy.describe import order_of, origin_lines, piece_lines, range_of
from carebn.deploy.graph import Array, PolicyGraph
from carebn.deploy.regular import check_regular
from carebn.deploy.runtime import NOT_FINITE

COMPILERS = ("cc", "gcc", "clang")
FLAGS = ("-std=c99", "-pedantic", "-O2", "-Wall", "-Wextra", "-Werror")
HEADER_MARK = "Declares a policy exported by carebn"
STACK = 512  # measured: a third of it without optimisation
BYTES = {
    "int8_t": 1, "uint8_t": 1, "int16_t": 2, "uint16_t": 2, "int32_t": 4, "int64_t": 8, "float": 4, "double": 8,
}  # fmt: skip


def to_c(network: PolicyGraph, weights: str = "float32", prefix: str = "") -> str:
    """The file. All its names but one are its own."""
    code = "".join(_code(network, DIALECTS[weights], prefix))
    return _comment(network, weights, prefix, code) + code


def to_header(network: PolicyGraph, weights: str = "float32", prefix: str = "") -> str:
    name, guard = function_name(prefix), function_name(prefix).upper()
    meaning = _meaning(network)
    size = "VALUES" if network.bounds is None else "ACTIONS"
    return f"""/*
 * {HEADER_MARK}: compile the C file beside it and link with it and -lm.
{starred(meaning)} */
#ifndef {guard}_H
#define {guard}_H

#include <stdint.h>

#define {guard}_OBSERVATIONS {network.encoder.obs_dim}
#define {guard}_{size} {network.readout.values}
#define {guard}_REFUSED ({REFUSED})

#ifdef __cplusplus
extern "C" {{
#endif

{_declaration(network, DIALECTS[weights].real, name)};

#ifdef __cplusplus
}}
#endif

#endif
"""


def write_c(network: PolicyGraph, path: Path, weights: str, prefix: str = "") -> None:
    path.write_text(to_c(network, weights, prefix), encoding="utf-8")


def function_name(prefix: str) -> str:
    """``policy``, or with a prefix ``hopper_policy``, so that several can be linked into one program."""
    if not re.fullmatch(r"([A-Za-z][A-Za-z0-9_]*)?", prefix):
        raise ValueError(
            f"--prefix {prefix!r} cannot begin a name in C: it must be letters, digits and underscores, a letter first"
        )
    return f"{prefix.rstrip('_')}_policy" if prefix else "policy"


def memory(code: str) -> tuple[int, int]:
    """(flash, RAM): bytes of the constant and of the static arrays that the code defines."""
    steps = re.search(r"^#define STEPS (\d+)$", code, re.MULTILINE)
    real = re.search(r"^typedef (\w+) real;$", code, re.MULTILINE)
    assert steps is not None
    found = {"const ": 0, "": 0}
    for const, kind, shape in re.findall(r"^ *static (const )?(\w+) \w+((?:\[\w+\])+)(?: =|;)", code, re.MULTILINE):
        sides = [steps[1] if side == "STEPS" else side for side in re.findall(r"\w+", shape)]
        found[const] += BYTES[real[1] if real is not None and kind == "real" else kind] * math.prod(map(int, sides))
    return found["const "], found[""]


def stack(network: PolicyGraph) -> int:
    """Bytes that local variables and calls take at most."""
    return STACK + (8 * network.readout.values if network.readout.kind == "furthest" else 0)


# --- the parts of the file -------------------------------------------------------------------------------------------


def _code(network: PolicyGraph, d: Dialect, prefix: str) -> Iterator[str]:
    encoder, name = network.encoder, function_name(prefix)
    declaration = _declaration(network, d.real, name)
    yield f"""#include <math.h>
#include <stdint.h>

#define STEPS {network.time_steps}

typedef {d.real} real;

{declaration};

"""
    yield encoder_code(network, d)
    for i, layer in enumerate(network.layers, 1):
        first_is_real = i == 1 and encoder.coding != "spikes"
        yield layer_code(i, layer, d, real_input=first_is_real or layer.neuron.kind == "relu")
    yield policy_code(network, d, declaration)
    yield _main(network, name)


def _declaration(network: PolicyGraph, real: str, name: str) -> str:
    observation = _observation_type(network)
    result = "values" if network.bounds is None else "action"
    inputs, outputs = network.encoder.obs_dim, network.readout.values
    return f"int {name}(const {observation} observation[{inputs}], {real} {result}[{outputs}])"


def _observation_type(network: PolicyGraph) -> str:
    return "uint8_t" if network.encoder.byte_observations else "float"


def _comment(network: PolicyGraph, weights: str, prefix: str, code: str) -> str:
    flash, ram = memory(code)
    kind = "ordinary" if not network.spiking else "spiking"
    environment = network.origin.get("environment")
    lines = [
        f"A {kind} policy{f' for {environment}' if environment else ''}, exported by carebn.",
        "",
        *origin_lines(network.info),
        f"time steps: {network.time_steps} per decision",
        f"numbers: {DIALECTS[weights].real}",
        f"flash: {flash:,} bytes of constants, and the code",
        f"RAM: {ram:,} bytes of static memory, and less than {stack(network):,} of the stack, libm's own not counted",
        "",
        *_meaning(network),
        "",
        "C99, libm (-lm), no allocation. It works in static memory, so it must not run twice at the same time.",
        "For a test program, compile with -DPOLICY_MAIN (cc -std=c99 -O2 -DPOLICY_MAIN THIS_FILE -lm): it reads",
        f"{count(network.encoder.obs_dim)} per observation and prints {network.readout.values} per line.",
    ]
    return f"/*\n{starred(lines)} */\n"


def _meaning(network: PolicyGraph) -> list[str]:
    """What goes in, what comes out, and what is refused."""
    info, kind = network.info, _observation_type(network)
    observation, size = info["observation"], network.encoder.obs_dim
    lines = [
        f"observation: {count(size)} ({kind}), {order_of(observation, ' and the units')}",
        *piece_lines(observation),
        *range_of(observation.get("low"), observation.get("high"), "observation"),
    ]
    if network.bounds is None:
        lines += [
            f"values: {network.readout.values}, one for each action, the higher the better",
            "returned: the number of the best action, counted from 0",
        ]
        if network.origin.get("first_action"):
            lines.append(f"          (the environment counts them from {network.origin['first_action']})")
        left = "values are"
    else:
        lines += [
            f"action: {count(network.readout.values)}, as the environment takes them",
            *range_of(info["action"]["low"], info["action"]["high"], "action"),
            "returned: 0",
        ]
        left = "action is"
    if not network.encoder.byte_observations:
        lines.append(f"          {REFUSED} if the observation holds NaN or infinity; then the {left} left as before")
    return lines


def count(number: int) -> str:
    return "1 number" if number == 1 else f"{number} numbers"


def starred(lines: list[str]) -> str:
    """As lines of a comment, which nothing in them can end."""
    plain = (line.encode("ascii", "backslashreplace").decode() for line in lines)
    safe = (
        re.sub(r"[^ -~]", " ", line).replace("*/", "* /").replace("/*", "/ *").replace("??", "? ?") for line in plain
    )
    return "".join(f" * {line}".rstrip() + "\n" for line in safe)


def _main(network: PolicyGraph, name: str) -> str:
    obs_dim, values, kind = network.encoder.obs_dim, network.readout.values, _observation_type(network)
    fits = "number != (float)(uint8_t)number" if network.encoder.byte_observations else ""
    check = ""
    if fits:
        check = f"""            if (!(number >= 0 && number <= 255) || {fits}) {{
                fprintf(stderr, "expected a byte, 0 to 255, got %g\\n", (double)number);
                return 1;
            }}
"""
    return f"""
#ifdef POLICY_MAIN
#include <stdio.h>

int main(void)
{{
    {kind} observation[{obs_dim}];
    real result[{values}];
    for (;;) {{
        for (int i = 0; i < {obs_dim}; i++) {{
            float number;
            int read = scanf("%f", &number);
            if (read == EOF && i == 0) return 0;
            if (read != 1) {{
                fprintf(stderr, "expected {obs_dim} numbers for an observation, got %d\\n", i);
                return 1;
            }}
{check}            observation[i] = {"(uint8_t)" if fits else ""}number;
        }}
        if ({name}(observation, result) < 0) {{
            fprintf(stderr, "{NOT_FINITE}\\n");
            return 1;
        }}
        for (int o = 0; o < {values}; o++) printf("%.17g%c", (double)result[o], o + 1 < {values} ? ' ' : '\\n');
    }}
}}
#endif
"""


# --- trying it out ---------------------------------------------------------------------------------------------------


def compiler() -> str | None:
    """The C compiler of this machine, if there is one."""
    return next((found for name in COMPILERS if (found := shutil.which(name))), None)


class CProgram:
    """A C file that was exported, as a program; ``words`` are its command line."""

    def __init__(self, path: Path | str, *words: str) -> None:
        check_regular(Path(path))
        cc = compiler()
        if cc is None:
            raise ValueError(f"there is no C compiler ({', '.join(COMPILERS)}) on this machine")
        self._directory = tempfile.TemporaryDirectory(prefix="carebn-")
        self._program = Path(self._directory.name) / "policy.exe"  # the ending is for Windows
        self._words = words
        command = [cc, *FLAGS, "-DPOLICY_MAIN", "-x", "c", str(path), "-o", str(self._program), "-lm"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise ValueError(f"{cc} does not compile the exported file: {done.stderr.strip().splitlines()[0]}")

    def answers(self, numbers: NDArray[Any]) -> list[list[str]]:
        """What it prints for each row; every call runs it once."""
        text = "\n".join(" ".join(map(str, row)) for row in numbers.tolist())
        done = subprocess.run([str(self._program), *self._words], input=text, capture_output=True, text=True)
        if done.returncode:
            raise ValueError(done.stderr.strip() or f"the exported program ended with code {done.returncode}")
        return [line.split() for line in done.stdout.splitlines()]


class CPolicy(CProgram):
    """A policy in floating point."""

    def values(self, obs: NDArray[Any]) -> Array:
        return np.array([[float(word) for word in line] for line in self.answers(obs)])

"""Whether there is floating point in an object file: by the symbols that it asks for, and by its instructions."""

import re

# what compilers call for floats where there is no unit for them (ARM's run-time ABI; libgcc), and libm
HELPERS = re.compile(
    r"^(__aeabi_(f|d|h|cf|cd|i2f|i2d|ui2f|ui2d|l2f|l2d|ul2f|ul2d)\w*|"
    r"__(add|sub|mul|div|neg|eq|ne|lt|le|gt|ge|cmp|unord|extend|trunc|fix|fixuns|float|floatun|pow)\w*[sdtxh]f\w*|"
    r"(tanh|exp|log|sqrt|fabs|floor|ceil|round|rint|pow|fma|fmin|fmax)f?)$"
)
INSTRUCTIONS = {
    "cortex-m4": re.compile(r"^(v[a-z]|f(add|sub|mul|div|ld|st|mr|ms|cmp|cvt|sito|uito|tosi|toui|abs|neg|sqrt|cpy))"),
    "riscv32": re.compile(
        r"^(c\.)?f(add|sub|mul|div|sqrt|sgnj|min|max|cvt|mv|eq|lt|le|class|n?madd|n?msub|lw|ld|sw|sd|abs|neg)"
    ),
    "computer": re.compile(
        r"^(v?(add|sub|mul|div|sqrt|min|max|u?comi|rcp|rsqrt|cmp\w*|round|hadd|dp)(ss|sd|ps|pd)|v?cvt\w*|"
        r"vfn?m\w+|f(ld|st|add|sub|mul|div|com|ucom|ist|ild|abs|chs|sqrt)\w*)$"
    ),
}


def helpers(nm: str) -> list[str]:
    """Of the output of ``nm``: every symbol of floating point, defined or not."""
    return [name for line in nm.splitlines() if line.split() and HELPERS.match(name := line.split()[-1])]


def undefined(nm: str) -> list[str]:
    return [line.split()[-1] for line in nm.splitlines() if " U " in f" {line} "]


def instructions(objdump: str, board: str) -> list[str]:
    """Of the output of ``objdump -d``: every instruction of floating point."""
    found = []
    for line in objdump.splitlines():
        parts = line.split("\t")
        if len(parts) > 2 and INSTRUCTIONS[board].match(parts[2].strip().split(" ")[0]):
            found.append(line.strip())
    return found

"""A neuron's step as plain data: a short list of operations, from which everything outside of torch is made.

An operand is a number or a name: ``current``, a state, a constant of the neuron, or ``#0``, ``#1``, ... for the results
of the lines before. Nothing in it is code, so that it can come from a file. The known neurons are written down here,
because a deployed policy has no torch from whose modules it could learn them; a test compares them with those.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

Operand = str | float
CURRENT = "current"
MOST_LINES = 1000  # of a step; one with more is no neuron


class Operation(NamedTuple):
    operands: int
    c: str  # {f} is how libm's functions of the type end
    onnx: str
    boolean: bool = False  # whether its result is 0 or 1
    multiplications: int = 0  # what it costs; a function counts as one
    additions: int = 0


# By numpy's names.
OPERATIONS = {
    "add": Operation(2, "{0} + {1}", "Add", additions=1),
    "subtract": Operation(2, "{0} - {1}", "Sub", additions=1),
    "multiply": Operation(2, "{0} * {1}", "Mul", multiplications=1),
    "divide": Operation(2, "{0} / {1}", "Div", multiplications=1),
    "negative": Operation(1, "-({0})", "Neg"),
    "absolute": Operation(1, "fabs{f}({0})", "Abs"),
    "exp": Operation(1, "exp{f}({0})", "Exp", multiplications=1),
    "log": Operation(1, "log{f}({0})", "Log", multiplications=1),
    "sqrt": Operation(1, "sqrt{f}({0})", "Sqrt", multiplications=1),
    "tanh": Operation(1, "tanh{f}({0})", "Tanh", multiplications=1),
    "minimum": Operation(2, "{0} < {1} ? {0} : {1}", "Min"),
    "maximum": Operation(2, "{0} > {1} ? {0} : {1}", "Max"),
    "greater": Operation(2, "{0} > {1}", "Greater", boolean=True),
    "greater_equal": Operation(2, "{0} >= {1}", "GreaterOrEqual", boolean=True),
    "logical_not": Operation(1, "!{0}", "Not", boolean=True),
    "logical_and": Operation(2, "{0} && {1}", "And", boolean=True),
    "logical_or": Operation(2, "{0} || {1}", "Or", boolean=True),
    "where": Operation(3, "{0} ? {1} : {2}", "Where"),
}
COMPARISONS = ("greater", "greater_equal")
CONDITIONS = {"logical_not": 1, "logical_and": 2, "logical_or": 2, "where": 1}  # how many operands must be 0 or 1


class Registers(NamedTuple):
    """Equations with places instead of names, for those that execute them."""

    given: tuple[Operand, ...]  # the first places: the current, every state, then every constant and number
    lines: tuple[tuple[str, tuple[int, ...]], ...]  # (operation, places); the results have the places that follow
    spike: int
    after: tuple[int, ...]  # of the states, in their order
    booleans: frozenset[int]


@dataclass(frozen=True)
class Equations:
    start: Mapping[str, Operand]  # every state, and the number or the constant at which a decision starts it
    lines: tuple[tuple[Any, ...], ...]  # (operation, operand, ...)
    spike: str  # 0 or 1
    after: Mapping[str, Operand]  # what every state becomes, all at once

    @cached_property
    def booleans(self) -> frozenset[str]:
        """What is only ever 0 or 1. A state is, if it starts so and never becomes anything else."""
        found = {f"#{i}" for i, line in enumerate(self.lines) if OPERATIONS[line[0]].boolean}
        found |= {name for name, start in self.start.items() if start in (0, 1)}
        while others := {name for name in self.start if name in found and self.after[name] not in found}:
            found -= others
        return frozenset(found)

    @cached_property
    def registers(self) -> Registers:
        results = {f"#{i}" for i in range(len(self.lines))}
        used = [x for line in self.lines for x in line[1:]] + [*self.after.values()]
        given = tuple(dict.fromkeys([CURRENT, *self.start, *(x for x in used if x not in results)]))
        place = {x: i for i, x in enumerate([*given, *(f"#{i}" for i in range(len(self.lines)))])}
        return Registers(
            given,
            tuple((name, tuple(place[x] for x in operands)) for name, *operands in self.lines),
            place[self.spike],
            tuple(place[self.after[name]] for name in self.start),
            frozenset(place[name] for name in self.booleans),
        )

    @property
    def multiplications(self) -> int:
        return sum(OPERATIONS[line[0]].multiplications for line in self.lines)

    @property
    def additions(self) -> int:
        return sum(OPERATIONS[line[0]].additions for line in self.lines)

    def check(self, constants: Collection[str]) -> None:
        """Refuse what is not the step of a neuron with these constants."""
        known = {CURRENT, *self.start, *constants}
        if len(known) != 1 + len(self.start) + len(constants) or any(name.startswith("#") for name in known):
            raise ValueError("the equations of a neuron have two things of the same name")
        for start in self.start.values():
            _check_operand(start, {*constants})
        if len(self.lines) > MOST_LINES:
            raise ValueError(f"the equations of a neuron have {len(self.lines)} lines, at most {MOST_LINES} are read")
        for i, (name, *operands) in enumerate(self.lines):
            if not isinstance(name, str) or name not in OPERATIONS:
                raise ValueError(f"{name!r} is no operation of a neuron; known: {', '.join(OPERATIONS)}")
            if len(operands) != OPERATIONS[name].operands:
                raise ValueError(
                    f"the operation {name} needs {OPERATIONS[name].operands} operands, got {len(operands)}"
                )
            for operand in operands:
                _check_operand(operand, known)
            known.add(f"#{i}")
        if self.after.keys() != self.start.keys():
            raise ValueError("the equations of a neuron do not say what each of its states becomes")
        for operand in self.after.values():
            _check_operand(operand, known)
        conditions = [x for name, *operands in self.lines for x in operands[: CONDITIONS.get(name, 0)]]
        for operand in (*conditions, self.spike):
            if operand not in self.booleans:
                raise ValueError(f"{operand!r} is used as a spike or a condition, and may be other than 0 or 1")

    def as_json(self) -> dict[str, Any]:
        lines = [list(line) for line in self.lines]
        return {"start": dict(self.start), "lines": lines, "spike": self.spike, "after": dict(self.after)}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> "Equations":
        """To be checked before it is used."""
        lines = tuple(tuple(line) for line in record["lines"])
        return cls(dict(record["start"]), lines, record["spike"], dict(record["after"]))


def _check_operand(operand: Any, known: set[str]) -> None:
    if isinstance(operand, str):
        if operand not in known:
            raise ValueError(f"{operand!r} is used in the equations of a neuron before it is known")
    elif isinstance(operand, bool) or not isinstance(operand, int | float) or not math.isfinite(operand):
        raise ValueError(f"{operand!r} in the equations of a neuron is neither a name nor a number")


KNOWN = {
    "lif": Equations(
        {"v": 0.0},
        (
            ("multiply", "decay", "v"),
            ("add", "#0", CURRENT),
            ("greater", "#1", "v_threshold"),
            ("where", "#2", 0.0, "#1"),
        ),
        "#2",
        {"v": "#3"},
    ),
    "clif": Equations(
        {"c": 0.0, "v": 0.0},
        (
            ("multiply", "current_decay", "c"),
            ("add", "#0", CURRENT),
            ("multiply", "decay", "v"),
            ("add", "#2", "#1"),
            ("greater", "#3", "v_threshold"),
            ("where", "#4", 0.0, "#3"),
        ),
        "#4",
        {"c": "#1", "v": "#5"},
    ),
    "dn": Equations(
        {"c": 0.0, "v": 0.0, "u": 0.0, "s": 0.0},
        (
            ("multiply", "current_decay", "c"),
            ("add", "#0", CURRENT),
            ("where", "s", "theta_r", "v"),
            ("where", "s", "theta_s", 0.0),
            ("add", "u", "#3"),
            ("multiply", "#2", "#2"),
            ("subtract", "#5", "#2"),
            ("subtract", "#6", "#4"),
            ("add", "#7", "#1"),
            ("add", "#2", "#8"),
            ("multiply", "theta_v", "#2"),
            ("multiply", "theta_u", "#4"),
            ("subtract", "#10", "#11"),
            ("add", "#4", "#12"),
            ("greater", "#9", "v_threshold"),
        ),
        "#14",
        {"c": "#1", "v": "#9", "u": "#13", "s": "#14"},
    ),
    "if": Equations(  # of converted networks
        {"v": "v_start"},
        (
            ("add", "v", CURRENT),
            ("greater", "#0", "v_threshold"),
            ("where", "#1", "v_threshold", 0.0),
            ("subtract", "#0", "#2"),
        ),
        "#1",
        {"v": "#3"},
    ),
}


def known_kind(equations: Equations) -> str | None:
    """The name of the known neuron that has these equations."""
    return next((kind for kind, known in KNOWN.items() if known == equations), None)

"""Symbols that stand for tensors in a neuron's step, and note what is done with them.

What multiplies by a spike is written as what it means, a choice; to the last bit (but for the sign of a zero and for
infinities) the two are the same:

    x·S = x if S else 0;   x·(1 − S) = 0 if S else x;   x·(1 − S) + y·S = y if S else x;   x − y > 0 is x > y
"""

import math
from collections.abc import Callable
from functools import partial
from numbers import Real
from typing import Any

import numpy as np
from torch import Tensor

from carebn.equations import OPERATIONS, Operand

DTYPE = object()  # of every symbol: the only one that it can be turned into


class UntraceableError(ValueError):
    """What in a step cannot be written as equations."""


class NamedFloat(float):
    """A constant of the neuron: to Python a number, in the equations a name."""

    name: str


class NamedInt(int):
    name: str


class Recorder:
    """The lines so far; what was computed before is not computed again."""

    def __init__(self, booleans: set[str]) -> None:
        self.lines: dict[str, tuple[Any, ...]] = {}
        self.names: dict[tuple[Any, ...], str] = {}
        self.constants: dict[str, float] = {}
        self.booleans = booleans  # operands that are 0 or 1

    def operand(self, x: Any) -> Operand:
        if isinstance(x, Symbol):
            return x.operand
        if isinstance(x, NamedFloat | NamedInt):
            self.constants[x.name] = _finite(float(x))
            return x.name
        if isinstance(x, Tensor):
            if x.numel() != 1:
                raise UntraceableError(f"it has a number for each neuron (a tensor of shape {list(x.shape)})")
            return _finite(float(x.detach()))
        if isinstance(x, Real):
            return _finite(float(x))
        raise UntraceableError(f"it computes with a {type(x).__name__}")

    def is_boolean(self, x: Operand) -> bool:
        return x in self.booleans

    def emit(self, operation: str, *operands: Operand) -> Operand:
        if not any(isinstance(x, str) for x in operands):
            with np.errstate(all="ignore"):
                return _finite(float(getattr(np, operation)(*operands)))
        line = (operation, *operands)
        if line not in self.names:
            self.names[line] = f"#{len(self.lines)}"
            self.lines[self.names[line]] = line
            if OPERATIONS[operation].boolean:
                self.booleans.add(self.names[line])
        return self.names[line]

    def made(self, x: Operand) -> tuple[Any, ...]:
        """The line that x comes from."""
        return self.lines.get(x, ("",)) if isinstance(x, str) else ("",)

    def add(self, a: Operand, b: Operand) -> Operand:
        (one, *this), (other, *that) = self.made(a), self.made(b)
        if one == other == "where" and this[0] == that[0]:
            for (_, yes, otherwise), (_, gone, no) in ((this, that), (that, this)):
                if otherwise == gone == 0.0:
                    return self.choose(this[0], yes, no)
        return self.emit("add", a, b)

    def subtract(self, a: Operand, b: Operand) -> Operand:
        return self.emit("logical_not", b) if a == 1.0 and self.is_boolean(b) else self.emit("subtract", a, b)

    def multiply(self, a: Operand, b: Operand) -> Operand:
        if self.is_boolean(a) and self.is_boolean(b):
            return self.emit("logical_and", a, b)
        if self.is_boolean(b):
            return self.choose(b, a, 0.0)
        return self.choose(a, b, 0.0) if self.is_boolean(a) else self.emit("multiply", a, b)

    def choose(self, condition: Operand, yes: Operand, no: Operand) -> Operand:
        if not isinstance(condition, str):
            return yes if condition else no
        operation, *operands = self.made(condition)
        if operation == "logical_not":
            return self.choose(operands[0], no, yes)
        return self.emit("where", condition, yes, no)

    def greater(self, a: Operand, b: Operand) -> Operand:
        operation, *operands = self.made(a)
        if operation == "subtract" and b == 0.0:
            return self.emit("greater", *operands)
        return a if self.is_boolean(a) and b == 0.0 else self.emit("greater", a, b)


def _finite(x: float) -> float:
    if not math.isfinite(x):
        raise UntraceableError(f"it computes with {x}")
    return x


def _operators(name: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """x ∘ y, and what Python asks y for if x does not know: y's own method, with x as the other."""
    return lambda *both: call(name, *both), lambda *both: call(name, *reversed(both))


class Symbol:
    """Stands for a tensor of currents or states, and notes what is done with it."""

    __array_ufunc__ = None  # numpy's numbers leave arithmetic to it

    def __init__(self, recorder: Recorder, operand: Operand, truth: bool = False) -> None:
        self.recorder = recorder
        self.operand = operand
        self.truth = truth  # whether torch would have a tensor of bool, which computes otherwise

    @classmethod
    def __torch_function__(
        cls, function: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> "Symbol":
        return call(function.__name__, *args, **(kwargs or {}))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name not in FUNCTIONS:
            raise UntraceableError(f"it uses .{name}")
        return partial(call, name, self)

    @property
    def dtype(self) -> Any:
        return DTYPE

    def __bool__(self) -> bool:
        raise UntraceableError("it decides by what a neuron receives which code runs (if, while, and, or, not)")

    __add__, __radd__ = _operators("add")
    __sub__, __rsub__ = _operators("sub")
    __mul__, __rmul__ = _operators("mul")
    __truediv__, __rtruediv__ = _operators("div")
    __pow__, __rpow__ = _operators("pow")
    __and__, __rand__ = _operators("logical_and")
    __or__, __ror__ = _operators("logical_or")
    __gt__, __lt__ = _operators("gt")
    __ge__, __le__ = _operators("ge")
    __neg__, __abs__, __invert__ = (_operators(name)[0] for name in ("neg", "abs", "logical_not"))

    def __eq__(self, other: object) -> bool:
        raise UntraceableError("it asks whether two numbers are equal")

    __hash__ = None  # type: ignore[assignment]


# --- what a step may use, by torch's names ---------------------------------------------------------------------------

Rule = Callable[..., Operand]


def _clamp(r: Recorder, x: Operand, min: Operand | None = None, max: Operand | None = None) -> Operand:
    x = x if min is None else r.emit("maximum", x, min)
    return x if max is None else r.emit("minimum", x, max)


def _power(r: Recorder, x: Operand, exponent: Operand) -> Operand:
    if exponent not in (2.0, 3.0):
        raise UntraceableError(f"it raises to the power {exponent}, and only 2 and 3 are known")
    square = r.emit("multiply", x, x)
    return square if exponent == 2.0 else r.emit("multiply", square, x)


def _sigmoid(r: Recorder, x: Operand) -> Operand:
    return r.emit("divide", 1.0, r.emit("add", 1.0, r.emit("exp", r.emit("negative", x))))


def _relu(r: Recorder, x: Operand, inplace: Operand = 0.0) -> Operand:
    return r.emit("maximum", x, 0.0)


def _like(r: Recorder, x: Operand, value: Operand) -> Operand:
    return value


def _emits(operation: str) -> Rule:
    def rule(r: Recorder, *operands: Operand) -> Operand:
        if len(operands) != OPERATIONS[operation].operands:
            raise UntraceableError(f"it gives {len(operands)} operands to {operation}")
        return r.emit(operation, *operands)

    return rule


# Each takes a recorder and operands, and gives the operand that is its result.
FUNCTIONS: dict[str, Rule] = {
    "add": Recorder.add,
    "sub": Recorder.subtract,
    "mul": Recorder.multiply,
    "div": _emits("divide"),
    "true_divide": _emits("divide"),
    "neg": _emits("negative"),
    "abs": _emits("absolute"),
    **{name: _emits(name) for name in ("exp", "log", "sqrt", "tanh", "minimum", "maximum")},
    "sigmoid": _sigmoid,
    "relu": _relu,
    "square": lambda r, x: r.emit("multiply", x, x),
    "pow": _power,
    "clamp": _clamp,
    "where": Recorder.choose,
    "gt": Recorder.greater,
    "ge": _emits("greater_equal"),
    "lt": lambda r, a, b: r.greater(b, a),
    "le": lambda r, a, b: r.emit("greater_equal", b, a),
    **{name: _emits(name) for name in ("logical_not", "logical_and", "logical_or")},
    "zeros_like": lambda r, x: 0.0,
    "ones_like": lambda r, x: 1.0,
    "full_like": _like,
    "detach": lambda r, x: x,
    "clone": lambda r, x: x,
    "to": lambda r, x: x,
}
TRUTHS = ("gt", "ge", "lt", "le", "logical_not", "logical_and", "logical_or")  # of these torch makes tensors of bool
USABLE = "+, -, *, /, >, >=, <, <=, &, |, ~, **2, **3, its surrogate, numbers, .to(x.dtype), and torch's " + ", ".join(
    name for name in FUNCTIONS if name not in {*TRUTHS, "add", "sub", "mul", "div", "true_divide", "to"}
)


def call(name: str, *arguments: Any, **options: Any) -> Symbol:
    if name not in FUNCTIONS:
        raise UntraceableError(f"it uses {name}")
    everything = (*arguments, *options.values())
    recorder = next(x.recorder for x in everything if isinstance(x, Symbol))
    if name == "to":
        if arguments[1:] != (DTYPE,) or options:
            raise UntraceableError("it changes the type of its numbers other than by .to(x.dtype)")
        arguments = arguments[:1]
    _check_truths(name, arguments)
    operands = [recorder.operand(x) for x in arguments]
    named = {key: recorder.operand(x) for key, x in options.items() if x is not None}
    return Symbol(recorder, FUNCTIONS[name](recorder, *operands, **named), truth=name in TRUTHS)


def _check_truths(name: str, arguments: tuple[Any, ...]) -> None:
    """With tensors of bool torch computes by rules of their own; only where it gives the same are they taken."""
    truths = [isinstance(x, Symbol) and x.truth for x in arguments]
    tensors = [isinstance(x, Symbol) and not x.truth for x in arguments]
    if name.startswith("logical_"):
        fine = all(truths)
    elif name == "where":
        fine = truths[0] and not any(truths[1:]) and any(tensors)
    else:
        fine = not any(truths) or name == "to" or (name == "mul" and any(tensors))
    if not fine:
        raise UntraceableError(
            f"it computes {name} of conditions and numbers; turn a condition into a number with .to(x.dtype) first"
        )

"""From a neuron's step to its equations: the step is called once, with symbols in place of tensors."""

import copy
from numbers import Integral, Real
from typing import Any

from carebn.equations import CURRENT, Equations, Operand
from carebn.neuron.base import Neuron
from carebn.neuron.surrogate import Surrogate
from carebn.neuron.symbols import DTYPE, USABLE, NamedFloat, NamedInt, Recorder, Symbol, UntraceableError, call


def equations_of(neuron: Neuron) -> tuple[Equations, dict[str, float]]:
    """The neuron's step, and the constants that it names. A ValueError says what in it cannot be written so."""
    try:
        return _traced(neuron)
    except Exception as error:  # a step may be any code, and may fail in any way when it gets a symbol
        reason = error if isinstance(error, UntraceableError) else f"{type(error).__name__}: {error}"
        raise ValueError(
            f"the step of the neuron {type(neuron).__name__} cannot be written as equations: {reason}; "
            f"a step may use {USABLE}"
        ) from error


def _traced(neuron: Neuron) -> tuple[Equations, dict[str, float]]:
    layout = neuron.initial_state(Symbol(Recorder(set()), CURRENT))  # type: ignore[arg-type]  # stands for a tensor
    start = {name: _start(x) for name, x in _named(layout).items()}
    stand_in = _with_symbols(neuron, {CURRENT, *start})
    booleans = {name for name, x in start.items() if x in (0.0, 1.0)}
    while True:
        recorder = Recorder(set(booleans))
        state = _like_layout(layout, [Symbol(recorder, name) for name in start])
        fired, following = stand_in.step(Symbol(recorder, CURRENT), state)  # type: ignore[arg-type]
        spike, after = recorder.operand(fired), {n: recorder.operand(x) for n, x in _named(following).items()}
        if after.keys() != start.keys():
            raise UntraceableError("the state after it has other parts than the state before it")
        others = {name for name in booleans if not recorder.is_boolean(after[name])}
        if not others:
            break
        booleans -= others  # what was taken for a spike is not one
    if not isinstance(spike, str) or not recorder.is_boolean(spike) or (isinstance(fired, Symbol) and fired.truth):
        raise UntraceableError("what it gives as its spike is not what its surrogate gave")
    equations = _numbered(recorder, start, spike, after)
    used = {x for line in equations.lines for x in line[1:]} | {*equations.after.values()}
    constants = {name: value for name, value in recorder.constants.items() if name in used}
    equations.check(constants)
    return equations, constants


def _start(x: Any) -> float:
    found = Recorder(set()).operand(x)
    if isinstance(found, str):
        raise UntraceableError("a state starts at something else than a number")
    return found


def _with_symbols(neuron: Neuron, taken: set[str]) -> Neuron:
    """A copy whose numbers have names and whose surrogates fire symbols."""
    stand_in = copy.copy(neuron)
    for name, value in vars(neuron).items():
        if isinstance(value, Surrogate):
            if type(value).__call__ is not Surrogate.__call__:
                raise UntraceableError(f"it fires by {type(value).__name__}, not above its threshold")
            setattr(stand_in, name, _fires)
        elif isinstance(value, Real) and not isinstance(value, bool) and name not in taken:
            number = NamedInt(value) if isinstance(value, Integral) else NamedFloat(value)
            number.name = name
            setattr(stand_in, name, number)
    return stand_in


def _fires(x: Symbol) -> Symbol:
    return call("to", call("gt", x, 0.0), DTYPE)


def _named(state: Any) -> dict[str, Any]:
    """The parts of a state: a tensor, or a tuple, list or dictionary of tensors."""
    if isinstance(state, dict):
        return state
    if isinstance(state, tuple) and hasattr(state, "_asdict"):
        return dict(state._asdict())
    if isinstance(state, tuple | list):
        return {f"state_{i}": x for i, x in enumerate(state)}
    return {"state": state}


def _like_layout(layout: Any, parts: list[Symbol]) -> Any:
    if isinstance(layout, dict):
        return dict(zip(layout, parts, strict=True))
    if isinstance(layout, tuple) and hasattr(layout, "_asdict"):
        return type(layout)(*parts)
    return type(layout)(parts) if isinstance(layout, tuple | list) else parts[0]


def _numbered(r: Recorder, start: dict[str, float], spike: str, after: dict[str, Operand]) -> Equations:
    """Without the lines and states that no spike ever depends on."""
    needed: set[Operand] = set()
    open_ends: list[Operand] = [spike]
    while open_ends:
        x = open_ends.pop()
        if x not in needed:
            needed.add(x)
            open_ends += [after[x]] if x in after else r.made(x)[1:]
    kept = [name for name in r.lines if name in needed]
    names: dict[Operand, Operand] = {name: f"#{i}" for i, name in enumerate(kept)}
    lines = tuple((line[0], *(names.get(x, x) for x in line[1:])) for line in map(r.lines.__getitem__, kept))
    states = [name for name in start if name in needed]
    return Equations(
        {name: start[name] for name in states},
        lines,
        str(names.get(spike, spike)),
        {name: names.get(after[name], after[name]) for name in states},
    )

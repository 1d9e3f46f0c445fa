"""Equations from a step: those of the known neurons, bit for bit what torch computes, and what is refused."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from traced_neurons import Everything, Toy

from carebn.equations import KNOWN, OPERATIONS, Equations, known_kind
from carebn.kernels import pure
from carebn.neuron import CLIF, DN, LIF, Neuron, make_neuron
from carebn.neuron.tracing import equations_of

STEPS = 6


def followed(neuron: Neuron, currents: Any) -> list[tuple[Any, dict[str, Any]]]:
    """Spike and states after every step, by the equations alone."""
    equations, constants = equations_of(neuron)
    shape = currents.shape[1:]
    state = {name: np.full(shape, start) for name, start in equations.start.items()}
    seen = []
    for current in currents:
        known = {**constants, **state, "current": current}
        get = lambda x: known[x] if isinstance(x, str) else x  # noqa: B023, E731
        for i, (operation, *operands) in enumerate(equations.lines):
            known[f"#{i}"] = np.asarray(getattr(np, operation)(*map(get, operands)), np.float64)
        state = {name: np.broadcast_to(get(x), shape) for name, x in equations.after.items()}
        seen.append((get(equations.spike), state))
    return seen


def assert_same_as_the_step(neuron: Neuron, currents: Any, exact: bool = True) -> None:
    state, fired = neuron.initial_state(torch.from_numpy(currents[0])), 0
    for current, (spike, ours) in zip(torch.from_numpy(currents), followed(neuron, currents), strict=True):
        theirs, state = neuron.step(current, state)
        assert np.array_equal(spike, theirs.numpy())
        fired += int(theirs.sum())
        parts = state._asdict() if hasattr(state, "_asdict") else {"state": state}
        for name, part in parts.items():
            if exact:
                assert np.array_equal(ours[name], part.numpy()), name
            else:
                np.testing.assert_allclose(ours[name], part.numpy(), rtol=1e-13, atol=1e-15)
    assert 0 < fired < currents.size


number = st.floats(-2.0, 2.0, allow_subnormal=False)
threshold = st.floats(0.0, 1.0, allow_subnormal=False)


@settings(max_examples=60, deadline=None)
@given(
    st.one_of(
        st.builds(LIF, threshold, number),
        st.builds(CLIF, threshold, number, number),
        st.builds(DN, threshold, number, number, number, number, number),
    ),
    st.integers(0, 1000),
)
def test_known_neurons_bit_for_bit(neuron: Neuron, seed: int) -> None:
    currents = np.random.default_rng(seed).standard_normal((3, 50))  # a dynamic neuron may explode after more
    assert_same_as_the_step(neuron, currents)
    assert known_kind(equations_of(neuron)[0]) == type(neuron).__name__.lower()


@pytest.mark.parametrize("name", ["lif", "clif", "dn", "dn-authors"])
def test_every_neuron_of_the_paper_is_known(name: str) -> None:
    equations, constants = equations_of(make_neuron(name))
    assert known_kind(equations) == name.removesuffix("-authors")
    neuron = make_neuron(name)
    assert constants == {name: getattr(neuron, name) for name in constants}


def test_a_neuron_of_ones_own() -> None:
    equations, constants = equations_of(Toy())
    assert equations.start == {"v": 0.0, "a": 0.05}
    assert constants == {"decay": 0.8, "v_threshold": 0.3, "beta": 0.2}
    assert (equations.multiplications, equations.additions) == (
        5,
        3,
    )  # λ·V, tanh, e^(−1/τ)·a, e^−a, β·S·e^−a; x, a, β·S·e^−a
    assert known_kind(equations) is None
    assert equations == Equations.from_json(equations.as_json())
    assert_same_as_the_step(Toy(), np.random.default_rng(0).standard_normal((STEPS, 500)), exact=False)


def test_whatever_a_step_may_use() -> None:
    currents = np.random.default_rng(1).standard_normal((STEPS, 300))
    with pure(), torch.no_grad():
        assert_same_as_the_step(Everything(), currents, exact=False)
    equations = equations_of(Everything())[0]
    equations.check(["v_threshold"])
    assert {line[0] for line in equations.lines} == set(OPERATIONS)


def broken(step: Any, start: Any = None) -> Neuron:
    class Broken(LIF):
        pass

    Broken.step = step  # type: ignore[method-assign]
    if start is not None:
        Broken.initial_state = start  # type: ignore[method-assign]
    neuron = Broken()
    neuron.each = torch.ones(7)  # type: ignore[assignment]
    return neuron


REFUSED = {
    "a branch": (lambda n, x, s: (x, s) if x.sum() > 0 else (-x, s), r"it uses \.sum"),
    "a condition": (lambda n, x, s: (x, s) if x > 0 else (-x, s), "it decides by what a neuron receives which code"),
    "a function": (lambda n, x, s: (torch.erf(x), s), "it uses erf"),
    "chance": (lambda n, x, s: (n.surrogate(x - torch.rand_like(x)), s), "it uses rand_like"),
    "its place": (lambda n, x, s: (n.surrogate(x * torch.arange(x.shape[-1])), s), r"it uses \.shape"),
    "numbers of each": (lambda n, x, s: (n.surrogate(x * n.each), s), r"a number for each neuron .* shape \[7\]"),
    "infinity": (lambda n, x, s: (n.surrogate(x * float("inf")), s), "it computes with inf"),
    "another type": (lambda n, x, s: (n.surrogate(x.to(torch.float32)), s), "it changes the type of its numbers"),
    "a sum of conditions": (lambda n, x, s: (n.surrogate((x > 0) + (x > 1)), s), "it computes add of conditions"),
    "float32 by the way": (lambda n, x, s: (n.surrogate(0.1 * (x > 0)), s), "it computes mul of conditions"),
    "an analogue spike": (lambda n, x, s: (torch.sigmoid(x), s), "is not what its surrogate gave"),
    "a condition as spike": (lambda n, x, s: (x > 0, s), "is not what its surrogate gave"),
    "another state": (lambda n, x, s: (n.surrogate(x), (x, x)), "the state after it has other parts"),
    "an option": (lambda n, x, s: (n.surrogate(torch.add(x, x, alpha=2)), s), "TypeError"),
    "a power": (lambda n, x, s: (n.surrogate(x**0.5), s), r"the power 0\.5"),
    "numpy": (lambda n, x, s: (n.surrogate(np.tanh(x)), s), "TypeError"),
    "equality": (lambda n, x, s: (n.surrogate(x == 0), s), "whether two numbers are equal"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_followed_is_refused_by_name(what: str) -> None:
    step, reason = REFUSED[what]
    with pytest.raises(
        ValueError, match=f"the step of the neuron Broken cannot be written as equations: .*{reason}"
    ) as e:
        equations_of(broken(step))
    assert "; a step may use +, -, *, /, >" in str(e.value)


def test_a_state_starts_at_a_number() -> None:
    with pytest.raises(ValueError, match="a state starts at something else than a number"):
        equations_of(broken(LIF.step, lambda n, x: (2 * x,)))


def test_the_neuron_is_left_as_it_was() -> None:
    neuron = Toy()
    before = dict(vars(neuron))
    equations_of(neuron)
    assert all(vars(neuron)[name] is value for name, value in before.items())


WRONG = {
    "operation": ({"lines": [["system", "v"]]}, "'system' is no operation of a neuron; known: add, subtract"),
    "no name": ({"lines": [[["add"], "v", "v"]]}, "is no operation of a neuron"),
    "operands": ({"lines": [["add", "v"]]}, "the operation add needs 2 operands, got 1"),
    "later": ({"lines": [["add", "v", "#0"]]}, "'#0' is used in the equations of a neuron before it is known"),
    "operand": ({"lines": [["add", "v", None]]}, "None in the equations of a neuron is neither a name nor a number"),
    "infinity": ({"lines": [["add", "v", float("inf")]]}, "inf in the equations"),
    "truth": ({"lines": [["add", "v", True]]}, "True in the equations"),
    "spike": ({"spike": "#1"}, "'#1' is used as a spike or a condition, and may be other than 0 or 1"),
    "state": ({"after": {}}, "do not say what each of its states becomes"),
    "start": ({"start": {"v": "current"}}, "'current' is used in the equations of a neuron before"),
    "names": ({"start": {"decay": 0.0}}, "two things of the same name"),
    "length": ({"lines": [["add", "v", "v"]] * 1001}, "have 1001 lines, at most 1000 are read"),
}


@pytest.mark.parametrize("what", WRONG)
def test_made_up_equations_are_refused(what: str) -> None:
    change, reason = WRONG[what]
    KNOWN["lif"].check(["decay", "v_threshold"])
    with pytest.raises(ValueError, match=reason):
        Equations.from_json(KNOWN["lif"].as_json() | change).check(["decay", "v_threshold"])

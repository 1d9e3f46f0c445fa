"""The fuzzer for some seconds; ``make fuzz`` runs it for longer. And that it is one: it notices, and it can repeat."""

import pytest
import torch

from . import judging
from .cases import Case, draw, simpler
from .children import FAILED, Crew, sweep
from .running import Outcome, Recorder, run

CASES = 120
SEED = 11


@pytest.mark.slow
def test_a_few_random_cases():
    """Compiled and pure path agree, in processes of their own."""
    cases = [draw(SEED, number) for number in range(CASES)]
    results = list(sweep(cases, known=lambda found: found.symptom != "hangs"))  # it may only have been compiling
    failed = [f"{found.symptom}: {found.detail}\n  {found.case.to_json()}" for found in results if found.kind == FAILED]
    assert not failed, "\n".join(failed)
    compared = [found for found in results if found.kind in (judging.AGREED, judging.REDRAWN)]
    assert len(compared) > 0.8 * CASES
    assert sum(found.lively for found in compared) > 0.5 * CASES


def test_a_case_says_everything():
    for number in range(200):
        case = draw(3, number)
        assert case == draw(3, number)
        assert Case.from_json(case.to_json()) == case
        assert all(other != case for other in simpler(case))


PLAIN = Case(seed=5, hidden=(16, 9), steps=4, batch=70, obs=3, population=4, distinct_rows=6)


@pytest.mark.parametrize(
    "name", ["output 0", "gradient 0 layers.0.linear.weight", "buffer 0 layers.1.norm.running_var"]
)
def test_a_wrong_number_is_noticed(name, monkeypatch):
    """A change of less than a hundredth in one entry, anywhere."""

    def slightly_wrong(case, attempt, way) -> Outcome:
        outcome = run(case, attempt, way)
        if way.compiled:
            value = outcome.values[name]
            value.view(-1)[-1] += 5e-3 * value.abs().max()
        return outcome

    assert judging.judge(PLAIN).kind in (judging.AGREED, judging.REDRAWN)
    monkeypatch.setattr(judging, "run", slightly_wrong)
    verdict = judging.judge(PLAIN)
    assert verdict.kind == judging.FAILED
    assert name in verdict.detail


@pytest.mark.parametrize(
    ("potentials", "in_float64", "undecided"),
    [
        ([1e-7, 0.3], [1.2e-7, 0.3000001], True),  # nearer than rounding
        ([1e-7, 0.3], [-1e-9, 0.3], True),  # decided otherwise
        ([0.1, 0.3], [0.1000002, 0.3], False),  # far enough
        ([0.4999999, 0.3], [0.5, 0.3], True),  # at the edge of a rectangle, where the gradient ends
        ([0.0, 0.5], [0.0, 0.5], False),  # exact arithmetic
    ],
)
def test_what_is_left_to_rounding(potentials, in_float64, undecided):
    here, there = (Recorder(torch.float32, [(torch.tensor(x), 0.5)]) for x in (potentials, in_float64))
    assert judging._near_a_threshold(Case(), here, there, torch.float32, blind=False) == undecided


@pytest.mark.slow
def test_a_child_that_dies_is_reported_and_the_next_goes_on():
    crew = Crew()
    try:
        assert crew.run(PLAIN).kind in (judging.AGREED, judging.REDRAWN)
        crew._child._process.kill()
        crew._child._process.wait()
        dead = crew._child.run(PLAIN, 30)
        assert dead.kind == FAILED
        assert "SIGKILL" in dead.symptom
        assert crew.run(PLAIN).kind in (judging.AGREED, judging.REDRAWN)
    finally:
        crew.close()


# Two samples and one step: a batch norm cancels every gradient, exactly on the pure path, to rounding in kernels.
CANCELLING = Case(seed=218256, obs=1, actions=3, population=3, hidden=(2,), steps=1, batch=2, loss="sum")


def test_what_cancels_is_rounding_and_a_fault_of_the_same_size_as_others_is_not(monkeypatch):
    assert judging.judge(CANCELLING).kind == judging.AGREED

    def slightly_wrong(case, attempt, way) -> Outcome:
        outcome = run(case, attempt, way)
        if way.compiled:
            outcome.values["gradient 0 layers.0.norm.bias"] += 0.01  # where others are 1
        return outcome

    monkeypatch.setattr(judging, "run", slightly_wrong)
    assert judging.judge(CANCELLING).kind == judging.FAILED

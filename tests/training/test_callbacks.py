"""Who listens to a run hears all of it and changes nothing; who stops it anywhere leaves a run that resumes exactly."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_extension import assert_same, config

from carebn.measure.observers import observers_for
from carebn.training import Run, TrainConfig
from carebn.training.callbacks import KINDS, Callback, Event, Kind, listeners, may_go_on

STEPS = 50  # evaluated at 20 and 40, and at 50 only because it ends; saved at 15, 30, 45 and 50


def trained(config: TrainConfig, callback: Callback | None = None) -> Run:
    run = Run(config, callback=callback, observers=observers_for(config))
    run.train()
    return run


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("whole")
    trained(config("measured", directory, STEPS))
    return directory


class StopsAt:
    """An object that listens to one kind of event alone."""

    def __init__(self, kind: Kind, step: int) -> None:
        self.step, self.heard = step, 0
        setattr(self, f"on_{kind}", self.hear)

    def hear(self, event: Event) -> bool:
        self.heard += 1
        return event.step != self.step


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "step"),
    [
        ("training_start", 0),
        ("before_step", 0),
        ("before_step", 30),  # saved there already
        ("before_step", 33),
        ("step", 33),
        ("step", 40),  # which is evaluated
        ("step", STEPS),
        ("before_evaluation", 20),
        ("before_evaluation", STEPS),
        ("evaluation", 40),
        ("evaluation", STEPS),
        ("checkpoint", 15),
        ("training_end", STEPS),
    ],
)
def test_a_run_stopped_anywhere_resumes_exactly(kind: Kind, step: int, tmp_path: Path, whole: Path) -> None:
    asked = config("measured", tmp_path / "run", STEPS)
    stopped = trained(asked, StopsAt(kind, step))
    assert stopped.step == step
    assert stopped.is_complete == (step == STEPS and kind != "before_evaluation")
    again = trained(asked, StopsAt("training_start", step))  # and at once where it goes on
    assert again.step == step
    trained(asked)
    assert_same(whole, tmp_path / "run")


@pytest.mark.slow
def test_a_run_that_is_stopped_before_its_last_evaluation_can_be_given_more_steps(tmp_path: Path) -> None:
    trained(config("measured", tmp_path / "whole", 74))
    stopped = trained(config("measured", tmp_path / "grown", STEPS), StopsAt("before_evaluation", STEPS))
    assert not stopped.is_complete
    trained(config("measured", tmp_path / "grown", 74))
    assert_same(tmp_path / "whole", tmp_path / "grown")


@pytest.mark.slow
def test_stopped_before_every_single_step(tmp_path: Path, whole: Path) -> None:
    asked = config("measured", tmp_path / "run", STEPS)
    for step in range(STEPS):
        assert trained(asked, StopsAt("before_step", step)).step == step
    trained(asked)
    assert_same(whole, tmp_path / "run")


@pytest.mark.slow
def test_everything_is_heard_in_order(tmp_path: Path, whole: Path) -> None:
    heard: list[tuple[Kind, int]] = []
    found: dict[tuple[Kind, int], Event] = {}

    def listen(event: Event) -> None:
        heard.append((event.kind, event.step))
        found[heard[-1]] = event
        event.losses["ruin"] = math.nan  # a copy

    trained(config("measured", tmp_path / "run", STEPS), listen)
    assert_same(whole, tmp_path / "run")
    expected: list[tuple[Kind, int]] = [("training_start", 0)]
    for step in range(1, STEPS + 1):
        expected += [("before_step", step - 1), ("step", step)]
        if step % 20 == 0 or step == STEPS:
            expected += [("before_evaluation", step), ("evaluation", step)]
        if step % 15 == 0 or step == STEPS:
            expected += [("checkpoint", step)]
    assert heard == [*expected, ("training_end", STEPS)]
    assert found["before_evaluation", 20].mean_return is None
    assert found["evaluation", 20].mean_return == found["before_step", 30].mean_return != None  # noqa: E711
    assert found["training_end", STEPS].best_return == max(
        found["evaluation", step].mean_return or -math.inf for step in (20, 40, STEPS)
    )


def test_an_object_hears_what_it_has_methods_for() -> None:
    one = StopsAt("step", 3)
    assert list(listeners(one)) == ["step"]
    assert list(listeners([one, StopsAt("checkpoint", 1), StopsAt("step", 5)])) == ["step", "checkpoint"]
    assert len(listeners([one, StopsAt("step", 5)])["step"]) == 2
    assert listeners(None) == listeners([]) == {}
    assert tuple(listeners(print)) == KINDS


def test_every_one_hears_it_and_one_is_enough_to_stop() -> None:
    one, other = StopsAt("step", 3), StopsAt("step", 4)
    hearing = listeners([one, other])["step"]

    def event(step: int) -> Any:
        return Event("step", step, 9, Path(), 0.0, {}, None, None)

    assert [may_go_on(hearing, event(step)) for step in (2, 3, 4)] == [True, False, False]
    assert (one.heard, other.heard) == (3, 3)
    assert may_go_on([lambda event: None, lambda event: 0], event(1))  # only False says that it is enough
    assert not may_go_on([lambda event: np.False_], event(1))

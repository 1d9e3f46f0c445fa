"""Frames: what they show is what was recorded, where and when it happened."""

import numpy as np
import pytest
from numpy.typing import NDArray

from carebn.measure.spikes import Decision, Population
from carebn.show.screen import ANALOGUE, BAR, CHOSEN, STRIPES, Controls, Screen

SIZES = {"mp4": (1920, 1080), "gif": (1280, 720)}
VIEW = np.full((200, 100, 3), 77, np.uint8)


def decision(rng: np.random.Generator, neurons: list[int], steps: int = 5) -> Decision:
    values = [(rng.random((steps, 1, n)) < 0.4).astype(np.float32) for n in neurons]
    action = rng.uniform(-1, 1, (1, 2)).astype(np.float32)
    return Decision(action, action, [Population(f"layer {i}", v, True) for i, v in enumerate(values)])


def controls() -> Controls:
    return Controls(["1", "2"], np.array([-1, -1], np.float32), np.array([1, 1], np.float32))


def read_raster(screen: Screen, frame: NDArray[np.uint8], panel: int, back: int) -> NDArray[np.float32]:
    """Spikes [T, N shown] of the decision that was made ``back`` decisions before the newest, read off the frame."""
    p = screen.panels[panel]
    right = screen.raster_left + screen.raster_width - back * screen.column * screen.steps
    left = right - screen.column * screen.steps
    area = frame[p.top : p.top + p.rows.height, left:right].astype(int)
    blocks = area.reshape(p.rows.shown, p.rows.pixels, screen.steps, screen.column, 3)
    assert (blocks == blocks[:, :1, :, :1]).all()  # every neuron and step is one plain block
    colours = blocks[:, 0, :, 0]
    lit = (colours == p.colour).all(-1)
    assert (lit | (colours == STRIPES[0]).all(-1) | (colours == STRIPES[1]).all(-1)).all()
    return lit.T.astype(np.float32)


@pytest.mark.parametrize("form", SIZES)
@pytest.mark.parametrize("neurons", [[110, 256, 256, 10], [270, 256, 256, 80], [3760, 256, 170], [3]])
@pytest.mark.parametrize("rate", [20.0, 125.0, None])
def test_the_raster_is_what_was_recorded(form: str, neurons: list[int], rate: float | None) -> None:
    rng = np.random.default_rng(0)
    made = [decision(rng, neurons) for _ in range(5)]
    screen = Screen(SIZES[form], "title", made[0].populations, controls(), rate, 1.0)
    for each in made:
        screen.add(each)
    frame = screen.frame(VIEW, 0.0, 4)
    assert frame.shape == (*SIZES[form][::-1], 3)
    assert frame.dtype == np.uint8
    assert screen.panels[-1].top + screen.panels[-1].rows.height < SIZES[form][1]
    for back, each in enumerate(reversed(made)):
        for i, population in enumerate(each.populations):
            shown = population.values[:, 0, :: screen.panels[i].rows.every]
            np.testing.assert_array_equal(read_raster(screen, frame, i, back), shown)


def test_the_window_scrolls_and_is_cleared() -> None:
    rng = np.random.default_rng(1)
    made = [decision(rng, [30, 8]) for _ in range(60)]
    screen = Screen((1920, 1080), "title", made[0].populations, controls(), 20.0, 1.0)
    for each in made:
        screen.add(each)
    assert screen.window < 60
    frame = screen.frame(VIEW, 0.0, 0)
    for back in range(screen.window):
        expected = made[-1 - back].populations[0].values[:, 0]
        np.testing.assert_array_equal(read_raster(screen, frame, 0, back), expected)
    screen.clear()
    screen.add(made[0])
    frame = screen.frame(VIEW, 0.0, 0)
    assert not read_raster(screen, frame, 0, 1).any()
    np.testing.assert_array_equal(read_raster(screen, frame, 0, 0), made[0].populations[0].values[:, 0])


@pytest.mark.parametrize(("rate", "least", "most"), [(20.0, 0.9, 1.2), (15.0, 0.9, 1.4), (125.0, 0.5, 1.2)])
def test_the_window_is_about_a_second(rate: float, least: float, most: float) -> None:
    made = decision(np.random.default_rng(0), [30, 8])
    for size in SIZES.values():
        assert least <= Screen(size, "", made.populations, controls(), rate, 1.0).window / rate <= most


def test_analogue_values_are_told_apart_from_spikes() -> None:
    values = np.array([0.0, 0.5, -0.5, 9.0], np.float32).reshape(1, 1, 4)
    made = Decision(np.zeros((1, 2), np.float32), np.zeros((1, 2), np.float32), [Population("layer 1", values, False)])
    screen = Screen((1920, 1080), "", made.populations, controls(), 20.0, 1.0)
    screen.add(made)
    panel = screen.panels[0]
    column = screen.frame(VIEW, 0.0, 0)[panel.top : panel.top + panel.rows.height : panel.rows.pixels]
    shown = column[:, screen.raster_left + screen.raster_width - 1].astype(float)
    share = (shown - STRIPES[0]) / (np.array(ANALOGUE, float) - STRIPES[0])
    np.testing.assert_allclose(share, np.tanh([0, 0.5, 0.5, 9.0])[:, None] * np.ones(3), atol=0.01)
    assert panel.unit == "ReLU units"


def test_the_view_is_shown_whole() -> None:
    made = decision(np.random.default_rng(0), [30])
    screen = Screen((1920, 1080), "", made.populations, controls(), 20.0, 1.0)
    view = np.zeros((210, 160, 3), np.uint8)
    view[:105], view[105:, :80], view[105:, 80:] = (200, 0, 0), (0, 200, 0), (0, 0, 200)
    frame = screen.frame(view, 0.0, 0)
    width, height = screen.view_size
    area = frame[screen.view_top : screen.view_top + height, screen.left : screen.left + width]
    for colour, share in (((200, 0, 0), 0.5), ((0, 200, 0), 0.25), ((0, 0, 200), 0.25)):
        assert (area == colour).all(-1).mean() == pytest.approx(share * 160 / 210, abs=0.01)


def bars(frame: NDArray[np.uint8], colour: tuple[int, int, int], screen: Screen) -> int:
    area = frame[screen.view_top + screen.view_size[1] :, : screen.raster_left]
    return int((area == colour).all(-1).any(0).sum())


@pytest.mark.parametrize("value", [-1.0, -0.25, 0.5, 1.0])
def test_the_length_of_an_action_bar(value: float) -> None:
    made = decision(np.random.default_rng(0), [30])
    action = np.array([[value]], np.float32)
    made = Decision(action, action, made.populations)
    one = Controls(["1"], np.array([-1], np.float32), np.array([1], np.float32))
    screen = Screen((1920, 1080), "", made.populations, one, 20.0, 1.0)
    full = bars(_frame(screen, made._replace(output=np.ones((1, 1), np.float32))), BAR, screen)
    assert bars(_frame(screen, made), BAR, screen) == pytest.approx(full * abs(value), abs=2)


def _frame(screen: Screen, made: Decision) -> NDArray[np.uint8]:
    screen.add(made)
    return screen.frame(VIEW, 0.0, 0)


@pytest.mark.parametrize("actions", [2, 6, 18])
def test_the_chosen_action_stands_out(actions: int) -> None:
    made = decision(np.random.default_rng(0), [30])
    q = np.linspace(-1, 1, actions, dtype=np.float32)[None]
    made = Decision(np.array([actions - 1]), q, made.populations)
    screen = Screen((1920, 1080), "", made.populations, Controls([f"A{i}" for i in range(actions)], None, None), 15, 1)
    frame = _frame(screen, made)
    assert bars(frame, CHOSEN, screen) > 50
    assert bars(frame, BAR, screen) > 0


def test_seventeen_actions_fit() -> None:
    made = decision(np.random.default_rng(0), [30])
    action = np.full((1, 17), 0.4, np.float32)
    many = Controls([str(i) for i in range(17)], np.full(17, -0.4, np.float32), np.full(17, 0.4, np.float32))
    for size in SIZES.values():
        screen = Screen(size, "", made.populations, many, 67.0, 1.0)
        frame = _frame(screen, Decision(action, action, made.populations))
        lit = (frame[:, : screen.raster_left] == BAR).all(-1)
        assert lit.any()
        assert not lit[-5:].any()
        starts = np.diff(lit.any(1).astype(int)) == 1
        assert starts.sum() * 2 >= 17  # two columns at most

"""The picture of one decision: every spike is painted where it belongs."""

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb

from carebn.measure.spikes import Decision, Population
from carebn.show.raster import COLOURS, DPI, figure
from carebn.show.screen import Controls

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("neurons", [[30, 256, 20], [1000, 10]])
@pytest.mark.parametrize("steps", [1, 5])
def test_painted_pixels_equal_recorded_spikes(neurons: list[int], steps: int) -> None:
    rng = np.random.default_rng(0)
    spikes = [(rng.random((steps, 1, n)) < 0.4).astype(np.float32) for n in neurons]
    names = ["encoder", *(f"layer {i}" for i in range(1, len(neurons)))]
    populations = [Population(name, s, True) for name, s in zip(names, spikes, strict=True)]
    action = np.array([[0.5, -0.5]], np.float32)
    controls = Controls(["1", "2"], np.full(2, -1, np.float32), np.ones(2, np.float32))
    picture = figure("title", rng.normal(size=neurons[0] // 10), Decision(action, action, populations), controls)
    picture.set_dpi(DPI)
    canvas = FigureCanvasAgg(picture)
    canvas.draw()
    pixels = np.asarray(canvas.buffer_rgba())[..., :3].astype(float) / 255
    assert len(picture.axes) == len(neurons) + 2
    for axes, recorded, colour in zip(picture.axes[1:-1], spikes, COLOURS, strict=False):
        grid = [(n + 0.5, t + 1) for t in range(steps) for n in range(recorded.shape[2])]
        x, y = np.rint(axes.transData.transform(grid)).astype(int).T
        painted = pixels[pixels.shape[0] - 1 - y, x]
        lit = np.abs(painted - to_rgb(colour)).max(1) < 0.02
        dark = np.abs(painted - to_rgb("whitesmoke")).max(1) < 0.02
        assert (lit | dark).mean() > 0.99  # a centre may fall on the edge of a pixel
        np.testing.assert_array_equal(lit[lit | dark], recorded[:, 0].ravel()[lit | dark] == 1)


def test_titles_tell_what_is_shown() -> None:
    spikes = np.zeros((5, 1, 8), np.float32)
    spikes[0, 0, :4] = 1
    relu = np.array([0.0, 2.5], np.float32).reshape(1, 1, 2)
    q = np.array([[0.1, 0.9]], np.float32)
    made = Decision(np.array([1]), q, [
        Population("input", np.zeros((1, 1, 3), np.float32), False),
        Population("layer 1", spikes, True),
        Population("layer 2", relu, False),
    ])  # fmt: skip
    picture = figure("title", np.arange(3.0), made, Controls(["NOOP", "FIRE"], None, None))
    told = [axes.get_title("left") + " | " + axes.get_title("right") for axes in picture.axes]
    assert told == [
        "observation: 3 values | ",
        "layer 1: 8 neurons | 4 spikes, 10.0% of 5 × 8 fire",
        "layer 2: 2 ReLU units | activity, not spikes: 50.0% active, darkest 2.5",
        "value Q of each action; chosen: FIRE | ",
    ]


@pytest.mark.parametrize(
    ("number", "ticks"),
    [(1, [1]), (3, [1, 2, 3]), (32, [1, *range(2, 33, 2)]), (256, [1, *range(10, 257, 10)])],
)
def test_everything_is_counted_from_one(number: int, ticks: list[int]) -> None:
    """Neurons, steps, values and actions, each tick in the middle of its own; not so many that they overlap."""
    spikes = np.zeros((5, 1, number), np.float32)
    action = np.zeros((1, number), np.float32)
    controls = Controls([str(i) for i in range(number)], -np.ones(number, np.float32), np.ones(number, np.float32))
    made = Decision(action, action, [Population("layer 1", spikes, True), Population("output", spikes, True)])
    for axes in figure("title", np.zeros(number), made, controls).axes:
        assert [label.get_text() for label in axes.get_xticklabels()] == list(map(str, ticks))
        assert list(axes.get_xticks()) == pytest.approx([tick - 0.5 for tick in ticks])
        assert axes.get_xlim() == (0, number)
        if axes.get_ylabel() == "step":
            assert list(axes.get_yticks()) == [1, 2, 3, 4, 5]

"""``carebn measure``: on a real run, which it must leave as it is; and mistakes in one sentence."""

import json
from pathlib import Path

import numpy as np
import pytest

from carebn.commands.measure import Distributions, TrainingCost, run
from carebn.measure.cost import measure_costs
from carebn.measure.distributions import Snapshot, _told_apart, most_and_least_moving, snapshots
from carebn.study.evidence.measured import read_measured
from carebn.training import Run, TrainConfig


def contents(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("run") / "care"
    config = TrainConfig(
        env_id="Hopper-v4", total_timesteps=120, learning_starts=100, hidden=(16, 16), batch_size=16, eval_interval=120,
        eval_episodes=1, recalibration_batches=3, checkpoint_interval=120, quiet=True, run_dir=directory,
    )  # fmt: skip
    Run(config).train()
    return directory


@pytest.mark.slow
def test_distributions_of_a_run(trained: Path, tmp_path: Path) -> None:
    before = contents(trained)
    config, taken = snapshots(trained, layer=2, number=3, updates=4)
    assert config.env_id == "Hopper-v4"
    assert [s.updates for s in taken] == [0, 4, 8]
    assert taken[0].samples.shape == (2048 * 5, 16)
    assert not np.array_equal(taken[0].samples, taken[1].samples)  # it goes on learning
    assert not np.array_equal(taken[0].mean, taken[1].mean)
    _, again = snapshots(trained, layer=2, number=3, updates=4)
    assert all(np.array_equal(a.samples, b.samples) for a, b in zip(taken, again, strict=True))
    for name in ("a.png", "a.pdf"):
        assert run(Distributions((trained, trained), out=tmp_path / name, layer=3, snapshots=2, updates=2)) == 0
        assert (tmp_path / name).stat().st_size > 5000
    assert contents(trained) == before


def test_the_numbers_of_a_figure_lie_beside_it(trained: Path, tmp_path: Path) -> None:
    """Where carebn report and carebn study show find them, as they are in the figure."""
    _, taken = snapshots(trained, layer=1, number=2, updates=3)
    out = tmp_path / "runs" / "input-distributions.png"
    assert run(Distributions((trained,), out=out, snapshots=2, updates=3)) == 0
    measured = read_measured([out.parent])
    assert measured.problems == []
    (one,) = measured.distributions
    assert (one.run, one.layer, one.config) == ("care", 1, json.loads((trained / "config.json").read_bytes()))
    for feature, moments in zip(most_and_least_moving(taken), (one.most, one.least), strict=True):
        assert [moment.updates for moment in moments] == [0, 3]
        for snapshot, moment in zip(taken, moments, strict=True):
            assert moment.mean == pytest.approx(snapshot.mean[feature])
            assert moment.var == pytest.approx(snapshot.var[feature])
            assert moment.distance == pytest.approx(snapshot.distance[feature])
            samples, edges = snapshot.samples[:, feature], np.array(moment.edges)
            inside = np.mean((samples >= edges[0]) & (samples <= edges[-1]))
            assert np.sum(moment.density * np.diff(edges)) == pytest.approx(inside)  # of all samples, not of these
            assert inside > 0.95


def test_runs_of_one_method_go_by_their_directories() -> None:
    runs = (Path("a/first"), Path("b/second"), Path("c/third"))
    assert _told_apart(["bn", "care-bn", "bn"], runs) == ["first\nbn", "care-bn", "third\nbn"]
    assert _told_apart(["bn", "bn"], (Path("a/run"), Path("b/run"))) == ["a/run\nbn", "b/run\nbn"]


def test_most_and_least_moving() -> None:
    rng = np.random.default_rng(0)
    first = rng.normal(size=(100, 4))
    first[:, 3] = 1.0  # never varies: there is nothing to draw
    last = first + np.array([0.1, 5.0, 0.5, 9.0])
    none = np.zeros(4)
    pair = [Snapshot(0, first, none, none, none), Snapshot(9, last, none, none, none)]
    assert most_and_least_moving(pair) == (1, 0)
    with pytest.raises(ValueError, match="no feature of this layer varies"):
        most_and_least_moving([Snapshot(i, np.ones((5, 2)), none, none, none) for i in range(2)])


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"layer": 4}, "--layer must lie between 1 and 3"),
        ({"layer": 0}, "--layer must lie between 1 and 3"),
        ({"out": Path("x.jpg")}, "--out must end in .png or .pdf, got x.jpg"),
        ({"snapshots": 1}, "--snapshots must be at least 2"),
        ({"out": Path("/proc/x.png")}, "cannot write /proc/x.png"),
        ({"runs": ()}, "name one or more run directories"),
        ({"runs": (Path("nowhere"),)}, "nowhere is not a run directory"),
    ],
)
def test_mistakes_about_distributions(trained: Path, tmp_path: Path, options: dict[str, object], told: str) -> None:
    settings = {"runs": (trained,), "out": tmp_path / "x.png", "snapshots": 2, "updates": 1} | options
    with pytest.raises((ValueError, OSError), match=told):
        run(Distributions(**settings))


def test_no_normaliser_and_no_checkpoint(trained: Path, tmp_path: Path) -> None:
    config = json.loads((trained / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="has no checkpoint"):
        snapshots(tmp_path, 1, 2, 1)
    (tmp_path / "config.json").write_text(json.dumps({**config, "method": "vanilla"}))
    with pytest.raises(ValueError, match="method vanilla has no normaliser"):
        snapshots(tmp_path, 1, 2, 1)


@pytest.mark.slow
def test_costs_side_by_side(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "runs" / "training-cost.json"
    config = TrainingCost(("ann", "care-bn"), env_id="Pendulum-v1", steps=40, out=out)
    assert run(config) == 0
    said = capsys.readouterr()
    progress = [line for line in said.err.splitlines() if line.startswith(("memory", "warm-up", "time"))]
    assert progress == [
        "memory of ann, 1 of 2", "memory of care-bn, 2 of 2", "warm-up of ann, 1 of 2", "warm-up of care-bn, 2 of 2",
        "time of all in turns, 0 of 40 steps each", "time of all in turns, 20 of 40 steps each",
    ]  # fmt: skip
    rows = said.out.splitlines()
    assert [row.split()[0] for row in rows[1:]] == ["ann", "care-bn", "numbers:"]
    assert rows[1].split()[2] == rows[1].split()[4] == "1.000"
    saved = json.loads(out.read_text())
    ann, care = saved["costs"]
    assert min(ann["seconds"], care["seconds"]) > 0
    assert ann["mebibytes"] is None or ann["mebibytes"] > 50  # None where the system does not tell
    costs = read_measured([out.parent]).costs  # as carebn report and carebn study show read it
    assert costs is not None
    assert (costs.env_id, costs.algo, costs.steps) == ("Pendulum-v1", "td3", 40)
    assert costs.by_method[("care-bn", "clif")] == (care["seconds"], care["mebibytes"])
    assert costs.by_method[("ann", "none")] == (ann["seconds"], ann["mebibytes"])


@pytest.mark.parametrize(
    ("methods", "steps", "told"),
    [
        ((), 40, "at least one method"),
        (("bn", "bn"), 40, "named twice"),
        (("bn",), 5, "--steps must be at least 20"),
        (("bnn",), 40, "did you mean"),
    ],
)
def test_mistakes_about_cost(methods: tuple[str, ...], steps: int, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        measure_costs("Pendulum-v1", "td3", methods, steps, print)

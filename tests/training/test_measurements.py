"""Measuring during training: the run is the same with and without, and a kill leaves no trace in the measurements."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from test_resume import contents

from carebn.measure.observers import observers_for
from carebn.measure.wasserstein import WassersteinObserver
from carebn.training import Run, TrainConfig
from carebn.training.observers import ObserverLog

pytestmark = pytest.mark.slow

FILE = "measure-wasserstein.jsonl"
PLAIN = TrainConfig(
    env_id="Hopper-v4", total_timesteps=450, learning_starts=100, hidden=(16, 16), batch_size=16, eval_interval=100,
    eval_episodes=1, checkpoint_interval=150, log_interval=50, recalibration_batches=5, quiet=True,
)  # fmt: skip
MEASURED = replace(PLAIN, measure=("wasserstein",))


class Crash(Exception):  # noqa: N818  # a planted one
    pass


class Crashing(Run):
    def make_step(self) -> None:
        if self.step == 420:  # measured at 400, last checkpoint at 300
            raise Crash
        super().make_step()


def train(config: TrainConfig, kind: type[Run] = Run) -> None:
    kind(config, observers=observers_for(config)).train()


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("measured") / "run"
    train(replace(MEASURED, run_dir=directory))
    return directory


def test_a_measured_run_is_otherwise_identical(measured: Path, tmp_path: Path) -> None:
    train(replace(PLAIN, run_dir=tmp_path / "plain"))
    plain, with_it = contents(tmp_path / "plain"), contents(measured)
    assert with_it.keys() - plain.keys() == {FILE}
    assert [name for name in plain if plain[name] != with_it[name]] == ["checksums.json", "command.txt"]
    assert with_it["command.txt"].decode().strip() == plain["command.txt"].decode().strip() + " --measure wasserstein"


def test_rows_are_one_per_evaluation(measured: Path) -> None:
    rows = [json.loads(line) for line in (measured / FILE).read_text().splitlines()]
    assert [row["step"] for row in rows] == [100, 200, 300, 400, 450]
    assert all(len(row["before"]) == len(row["after"]) == 3 for row in rows)
    assert sum(map(sum, (row["after"] for row in rows))) < sum(map(sum, (row["before"] for row in rows)))


def test_a_run_that_crashed_measures_the_same(measured: Path, tmp_path: Path) -> None:
    config = replace(MEASURED, run_dir=tmp_path / "run")
    with pytest.raises(Crash):
        train(config, Crashing)
    assert '"step": 400' in (tmp_path / "run" / FILE).read_text()
    train(config)
    assert contents(tmp_path / "run") == contents(measured)


def test_without_recalibration_before_and_after_are_the_same(tmp_path: Path) -> None:
    train(replace(MEASURED, method="bn", run_dir=tmp_path / "run", total_timesteps=200))
    rows = [json.loads(line) for line in (tmp_path / "run" / FILE).read_text().splitlines()]
    assert len(rows) == 2
    assert all(row["before"] == row["after"] for row in rows)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text('{"step": 1}\n{"st\n{"step": 3}\n')
    with pytest.raises(ValueError, match=f"{FILE} is damaged; move it away"):
        ObserverLog(WassersteinObserver(), tmp_path).length_until(10)


def test_half_a_row_and_rows_beyond_the_checkpoint_are_cut(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text('{"step": 1}\n{"step": 5}\n{"step": 9}\n{"st')
    log = ObserverLog(WassersteinObserver(), tmp_path)
    log.file.cut_back(log.length_until(5))
    log.file.close()
    assert (tmp_path / FILE).read_text() == '{"step": 1}\n{"step": 5}\n'


def test_what_is_to_be_measured_needs_who_measures_it() -> None:
    with pytest.raises(ValueError, match="measure is wasserstein and the observers of the run are none"):
        Run(MEASURED)
    with pytest.raises(ValueError, match="measure is empty and the observers of the run are wasserstein"):
        Run(PLAIN, observers=[WassersteinObserver()])


def test_nothing_to_measure() -> None:
    with pytest.raises(ValueError, match="vanilla has none"):
        TrainConfig(method="vanilla", measure=("wasserstein",)).checked()

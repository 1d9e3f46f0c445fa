"""Run directories read back: what a real run wrote, and what damage does."""

import json
import shutil
import sys
from pathlib import Path

import pytest
from fake_runs import write_run

from carebn.study.evidence.runs import DamagedRun, find_runs, read_run, read_runs
from carebn.training import Run, TrainConfig

sys.path.insert(0, str(Path(__file__).parents[1] / "training"))  # quick_tasks


def tiny(run_dir: Path, **options: object) -> TrainConfig:
    settings = {
        "env_id": "PointMass-v0", "total_timesteps": 60, "learning_starts": 20, "eval_interval": 20, "hidden": (8,),
        "batch_size": 8, "eval_episodes": 2, "recalibration_batches": 2, "checkpoint_interval": 30, "quiet": True,
        "import_modules": ("quick_tasks",),
    }  # fmt: skip
    return TrainConfig(run_dir=run_dir, **(settings | options))


@pytest.mark.slow
def test_real_run(tmp_path: Path) -> None:
    run = Run(tiny(tmp_path / "a"))
    run.train()
    record = read_run(tmp_path / "a", episodes=True)
    rows = [json.loads(line) for line in (tmp_path / "a" / "metrics.jsonl").read_text().splitlines()]
    evaluations = [row for row in rows if "eval/mean_return" in row]
    assert record.steps == [20, 40, 60]
    assert record.returns == [row["eval/mean_return"] for row in evaluations]
    assert record.stds == [row["eval/std_return"] for row in evaluations]
    assert record.best == run.best
    assert record.complete
    assert (record.env_id, record.algo, record.method, record.neuron) == ("PointMass-v0", "td3", "care-bn", "clif")
    assert record.config == run.config.as_json()
    assert record.command == run.config.command()
    assert record.versions["torch"]
    assert record.timing.steps == 60
    assert record.seconds > 0
    episodes = [row for row in rows if "charts/episodic_return" in row]
    assert len(episodes) == 1
    assert list(record.episode_steps) == [row["step"] for row in episodes]
    assert list(record.episode_returns) == [row["charts/episodic_return"] for row in episodes]


def test_not_complete_until_its_last_checkpoint(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a", done=15_000)
    assert not read_run(run).complete
    assert read_run(run).step == 15_000
    whole = write_run(tmp_path / "b")
    assert read_run(whole).complete
    (whole / "checkpoint" / "000020000" / "manifest.json").unlink()
    assert not read_run(whole).complete


def test_cell_ignores_the_seed_only(tmp_path: Path) -> None:
    first = read_run(write_run(tmp_path / "a", seed=0))
    assert first.cell() == read_run(write_run(tmp_path / "b", seed=1, threads=2)).cell()
    assert first.cell() != read_run(write_run(tmp_path / "c", seed=1, gamma=0.9)).cell()
    assert first.cell() != read_run(write_run(tmp_path / "d", seed=1, total=25_000)).cell()


def test_a_run_kept_for_its_numbers_is_complete(tmp_path: Path) -> None:
    """Thinned out: neither checkpoints nor a policy, and all its evaluations."""
    run, begun = write_run(tmp_path / "a"), write_run(tmp_path / "b", done=10_000)
    (run / "policy.safetensors").unlink()
    assert not read_run(run).complete  # it has checkpoints: it was killed before its policy was saved
    shutil.rmtree(run / "checkpoint")
    assert read_run(run).complete
    assert not read_run(begun).complete


def test_time_over_several_sittings(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a")
    sittings = [(0, 1000, 10.0), (0, 2000, 20.0), (0, 1000, 30.0), (0, 2000, 50.0), (2000, 3000, 60.0)]
    rows = [{"step": s, "charts/SPS": (s - first) / t, "time/elapsed": t} for first, s, t in sittings]
    # The second sitting, from the same first step, shows only where its clock is behind.
    rows[2]["time/elapsed"], rows[2]["charts/SPS"] = 15.0, 1000 / 15.0
    (run / "timing.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    record = read_run(run)
    assert record.seconds == 20.0 + 50.0 + 60.0
    assert record.timing.steps == 2000 + 2000 + 1000
    assert record.speed == 5000 / 130


def test_found_once_at_any_depth(tmp_path: Path) -> None:
    a, b = write_run(tmp_path / "x" / "a"), write_run(tmp_path / "b")
    write_run(tmp_path / ".trash" / "c")
    assert find_runs([tmp_path, a, tmp_path / "x"]) == sorted([a, b])
    assert find_runs([b]) == [b]
    with pytest.raises(ValueError, match="is not a directory"):
        find_runs([tmp_path / "nowhere"])


def test_lines_in_another_order_are_read_as_json(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a", done=10_000)
    before = read_run(run)
    for name in ("metrics.jsonl", "timing.jsonl"):
        rows = [json.loads(line) for line in (run / name).read_text().splitlines()]
        (run / name).write_text("".join(json.dumps(row, sort_keys=True) + "\n" for row in rows))
    after = read_run(run)
    assert (after.steps, after.returns, after.stds) == (before.steps, before.returns, before.stds)
    assert (after.seconds, after.timing.steps) == (before.seconds, before.timing.steps)


def test_half_a_line_is_not_an_evaluation_yet(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a", done=10_000)
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 15000, "eval/mean_return": 12')
    assert read_run(run).steps == [5_000, 10_000]


@pytest.mark.parametrize(
    ("file", "content", "told"),
    [
        ("config.json", "{", "not readable as JSON"),
        ("config.json", "[" * 100_000, "not readable as JSON"),
        ("config.json", "[]", "does not hold the configuration"),
        ("config.json", '{"env_id": 3}', "'env_id' is 3"),
        ("metrics.jsonl", '{"step": 1, "eval/mean_return": }\n', "records cannot be read"),
        ("metrics.jsonl", '{"step": 1, "eval/mean_return": NaN, "eval/std_return": 0}\n', "not a finite number"),
        ("metrics.jsonl", '{"step": 1, "eval/mean_return": null, "eval/std_return": 0}\n', "records cannot be read"),
        ("metrics.jsonl", '["eval/mean_return"]\n', "records cannot be read"),
        ("metrics.jsonl", '{"step": 5, "eval/mean_return": 1, "eval/std_return": 0}\n' * 2, "do not ascend"),
        ("versions.json", "3", "records cannot be read"),
        ("timing.jsonl", '{"time/elapsed": 1}\n', "records cannot be read"),
    ],
)
def test_damage_is_one_sentence_and_the_rest_is_read(tmp_path: Path, file: str, content: str, told: str) -> None:
    write_run(tmp_path / "good")
    bad = write_run(tmp_path / "bad")
    (bad / file).write_text(content)
    with pytest.raises(DamagedRun, match=told):
        read_run(bad)
    runs = read_runs([tmp_path])
    assert [record.directory.name for record in runs.records] == ["good"]
    assert len(runs.problems) == 1
    assert str(bad) in runs.problems[0]
    assert "\n" not in runs.problems[0]


def test_metrics_without_a_configuration(tmp_path: Path) -> None:
    bad = write_run(tmp_path / "bad")
    (bad / "config.json").unlink()
    assert "no config.json" in read_runs([tmp_path]).problems[0]


@pytest.mark.slow
def test_a_method_that_converts_counts_its_converted_policy_only(tmp_path):
    """Until there is one, the run is not complete."""
    from carebn.commands.train import run

    directory = tmp_path / "run"
    config = tiny(directory, method="ann-snn")
    assert run(config) == 0
    (evaluation,) = directory.glob("converted-*/evaluation.json")
    record = read_run(directory)
    assert record.complete
    assert (record.steps, record.returns) == ([60], [json.loads(evaluation.read_bytes())["mean_return"]])
    evaluation.unlink()
    with pytest.raises(DamagedRun, match=r"evaluation\.json is missing"):
        read_run(directory)
    shutil.rmtree(evaluation.parent)
    assert (read_run(directory).complete, read_run(directory).returns) == (False, [])
    assert read_run(directory).step == 60  # trained to the end all the same
    assert (record.step, record.best, record.converted) == (60, None, True)
    assert run(config) == 0  # the same command again makes up for it
    assert read_run(directory) == record

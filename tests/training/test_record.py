"""What a run writes down: complete, readable by other tools, free of paths, and the same every time."""

import json
from pathlib import Path
from typing import Any

import pytest

from carebn.training import Run, TrainConfig
from carebn.training.files import sha256
from carebn.training.methods import METHODS
from carebn.training.record import LineFile, read_rows, write_tensorboard

COMPLETE = {
    "config.json",
    "command.txt",
    "versions.json",
    "checksums.json",
    ".lock",
    "metrics.jsonl",
    "timing.jsonl",
    "policy.safetensors",
    "best.safetensors",
    "best.json",
    "spaces.json",
    "tensorboard/events.out.tfevents.0.carebn",
    "checkpoint/000000020/agent.safetensors",
    "checkpoint/000000020/state.json",
    "checkpoint/000000020/best.safetensors",
    "checkpoint/000000020/manifest.json",
    "checkpoint/000000040/agent.safetensors",
    "checkpoint/000000040/state.json",
    "checkpoint/000000040/best.safetensors",
    "checkpoint/000000040/manifest.json",
    "replay/0000000000-0000000020.safetensors",
    "replay/0000000020-0000000040.safetensors",
}


def config(directory: Path, **options: Any) -> TrainConfig:
    values: dict[str, Any] = {
        "env_id": "InvertedPendulum-v4",
        "total_timesteps": 40,
        "learning_starts": 24,
        "hidden": (8,),
        "batch_size": 8,
        "eval_interval": 20,
        "eval_episodes": 1,
        "checkpoint_interval": 20,
        "recalibration_batches": 2,
        "log_interval": 8,
        "run_dir": directory,
        "quiet": True,
    }
    return TrainConfig(**(values | options))


def fitting(algo: str) -> str:
    return "CartPole-v1" if algo == "dqn" else "InvertedPendulum-v4"


def contents(directory: Path) -> dict[str, bytes]:
    return {str(p.relative_to(directory)): p.read_bytes() for p in sorted(directory.rglob("*")) if p.is_file()}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("finished")
    Run(config(directory)).train()
    return directory


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algo", "method"),
    [
        *(("td3", method) for method in METHODS),
        *(("dqn", method) for method in ("care-bn", "tab", "vanilla", "ann", "ann-care")),
        *((algo, method) for algo in ("ddpg", "sac") for method in ("care-bn", "tab", "ann")),
    ],
)
def test_every_algorithm_and_method_makes_a_complete_run(tmp_path: Path, algo: Any, method: str) -> None:
    more = {"update_interval": 8} if method.endswith("-original") else {}  # 50 is more than all of this run
    assert Run(config(tmp_path, algo=algo, method=method, env_id=fitting(algo), **more)).train()
    files = contents(tmp_path)
    assert files.keys() == COMPLETE
    assert [name for name, data in files.items() if not data] == [".lock"]  # which is never written to


@pytest.mark.slow
@pytest.mark.parametrize(("algo", "method"), [("td3", "care-bn"), ("dqn", "bn"), ("ddpg", "tebn"), ("sac", "re")])
def test_the_same_configuration_gives_the_same_files(tmp_path: Path, algo: Any, method: str) -> None:
    for name in ("a", "b"):
        Run(config(tmp_path / name, algo=algo, method=method, env_id=fitting(algo))).train()
    a, b = contents(tmp_path / "a"), contents(tmp_path / "b")
    assert a.keys() == b.keys() == COMPLETE
    assert [name for name in a if a[name] != b[name] and name != "timing.jsonl"] == []


def test_metrics_have_the_names_that_others_use(finished: Path) -> None:
    rows = read_rows(finished / "metrics.jsonl")
    names = {name for row in rows for name in row}
    assert names >= {
        "charts/episodic_return", "charts/episodic_length", "losses/qf_loss", "losses/qf_values", "losses/actor_loss",
        "eval/mean_return", "eval/std_return",
    }  # fmt: skip
    steps = [row["step"] for row in rows]
    assert steps == sorted(steps)
    assert steps[-1] == 40
    assert [row["step"] for row in rows if "losses/qf_loss" in row] == [32, 40]  # none before learning starts
    episodes = [row for row in rows if "charts/episodic_length" in row]
    assert [sum(row["charts/episodic_length"] for row in episodes[: i + 1]) for i in range(len(episodes))] == [
        row["step"] for row in episodes
    ]
    assert all(row["charts/episodic_return"] <= row["charts/episodic_length"] for row in episodes)


def test_actor_losses_are_logged_whatever_the_interval(tmp_path: Path) -> None:
    """TD3 updates its actor every second time; an interval that always meets the other half must not hide it."""
    Run(config(tmp_path, learning_starts=23, log_interval=8)).train()
    rows = read_rows(tmp_path / "metrics.jsonl")
    assert any("losses/actor_loss" in row for row in rows)


def test_timing_is_apart(finished: Path) -> None:
    rows = read_rows(finished / "timing.jsonl")
    assert [row["step"] for row in rows] == [20, 40]
    assert all(row["charts/SPS"] > 0 for row in rows)
    assert all(row["time/processor"] > 0 and row["processor"] for row in rows)
    assert all(row["memory/peak"] is None or row["memory/peak"] > 1 for row in rows)  # not every system tells
    assert "SPS" not in (finished / "metrics.jsonl").read_text()


def test_tensorboard_reads_it(finished: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(str(finished / "tensorboard"))
    events.Reload()
    rows = read_rows(finished / "metrics.jsonl")
    tags = {name for row in rows for name in row if "/" in name}
    assert set(events.Tags()["scalars"]) == tags
    for tag in tags:
        expected = [(row["step"], row[tag]) for row in rows if tag in row]
        assert [(e.step, e.value) for e in events.Scalars(tag)] == [(s, pytest.approx(v)) for s, v in expected]


def test_tensorboard_files_are_reproducible_and_replaced(tmp_path: Path) -> None:
    rows = [{"step": 1, "charts/a": 1.5}, {"step": 2, "charts/a": 2, "returns": [1, 2]}]
    for name in ("a", "b"):
        write_tensorboard(rows, tmp_path / name)
    write_tensorboard(rows, tmp_path / "b")
    (one,), (other,) = ((tmp_path / name).iterdir() for name in ("a", "b"))
    assert one.name == other.name
    assert one.read_bytes() == other.read_bytes()


def test_no_file_tells_where_it_was_made(finished: Path) -> None:
    places = [str(finished), str(finished.parent), str(Path.cwd()), str(Path.home())]
    for name, data in contents(finished).items():
        for place in places:
            if len(place) > 1:
                assert place.encode() not in data, name
        if name.endswith((".json", ".jsonl", ".txt")):
            words = data.decode().replace('"', " ").split()
            assert [word for word in words if word.startswith(("/", "~"))] == [], name


def test_text_files_are_proper_json(finished: Path) -> None:
    for name, data in contents(finished).items():
        if name.endswith(".json"):
            json.loads(data)
        if name.endswith(".jsonl"):
            assert data.endswith(b"\n")
            for line in data.splitlines():
                json.loads(line, parse_constant=pytest.fail)  # NaN and Infinity are not JSON


def test_lines_are_cut_back_and_written_on(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    lines = LineFile(path)
    lines.write({"step": 1})
    length, _ = lines.secure()
    assert length == path.stat().st_size
    lines.write({"step": 2})
    assert len(read_rows(path)) == 2  # seen at once
    lines.close()
    lines = LineFile(path)
    lines.cut_back(length)
    lines.write({"step": 3})
    assert lines.secure() == (path.stat().st_size, sha256(path.read_bytes()))
    lines.close()
    assert [row["step"] for row in read_rows(path)] == [1, 3]


def test_cutting_back_never_makes_a_file_longer(tmp_path: Path) -> None:
    """If lines were lost, no bytes of nothing may stand in for them: they could not be read again."""
    path = tmp_path / "lines.jsonl"
    lines = LineFile(path)
    lines.write({"step": 1})
    try:
        lines.cut_back(100)
    except ValueError:
        return  # to refuse is fine as well
    lines.write({"step": 2})
    lines.close()
    assert b"\0" not in path.read_bytes()
    assert [row["step"] for row in read_rows(path)] == [1, 2]


def test_half_a_line_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_bytes(b'{"step": 1}\n{"step": 2, "cha')
    assert read_rows(path) == [{"step": 1}]
    assert read_rows(tmp_path / "none.jsonl") == []

"""The index of many runs: what it saves, and that nothing but time depends on it."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from fake_runs import write_converted_run, write_run

from carebn.study.evidence import index, runs
from carebn.study.evidence.runs import Runs, read_runs
from carebn.training.files import sha256
from carebn.training.vouch import vouch


def vouched(directory: Path) -> Path:
    logs = {path.name: path.read_bytes() for path in directory.glob("*.jsonl") if path.name != "timing.jsonl"}
    vouch(directory, {name: (len(data), sha256(data)) for name, data in logs.items()})
    return directory


@pytest.fixture
def many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Runs that an index is kept of, although they are few and were written a moment ago."""
    monkeypatch.setattr(index, "WORTH_IT", 1)
    monkeypatch.setattr(index, "QUIET", 0)
    root = tmp_path / "runs"
    for seed in range(3):
        vouched(write_run(root / "some" / f"run{seed}", seed=seed, wasserstein=seed > 0))
    vouched(write_run(root / "stopped", done=10_000))
    vouched(write_converted_run(root / "converted", "Hopper-v4", 500.0))
    return root


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the runs that were read from their own files."""
    names: list[str] = []
    read = runs.read_run

    def counting(directory: Path, *options: Any) -> Any:
        names.append(directory.name)
        return read(directory, *options)

    monkeypatch.setattr(runs, "read_run", counting)
    return names


ALL = ["converted", "run0", "run1", "run2", "stopped"]


def plain(found: Runs) -> list[dict[str, Any]]:
    return [vars(one) | {"episode_steps": list(one.episode_steps), "episode_returns": list(one.episode_returns)}
            for one in found.records]  # fmt: skip


def without_index(root: Path, *options: bool) -> Runs:
    (root / index.INDEX).unlink(missing_ok=True)
    found = read_runs([root], *options)
    (root / index.INDEX).unlink(missing_ok=True)
    return found


@pytest.mark.parametrize("options", [(False, False), (True, False), (True, True)])
def test_it_says_what_the_files_say(many: Path, opened: list[str], options: tuple[bool, bool]) -> None:
    fresh = without_index(many, *options)
    read_runs([many], *options)
    opened.clear()
    again = read_runs([many], *options)
    assert opened == []
    assert plain(again) == plain(fresh)
    assert again.problems == fresh.problems == []
    assert any(record.measures for record in again.records) == options[1]


def test_more_is_read_if_more_is_asked_for_and_nothing_is_forgotten(many: Path, opened: list[str]) -> None:
    read_runs([many])
    opened.clear()
    assert all(len(record.episode_steps) for record in read_runs([many], True, True).records)
    assert opened == ALL
    opened.clear()
    assert not any(len(record.episode_steps) or record.measures for record in read_runs([many]).records)
    read_runs([many], True, True)
    assert opened == []


FILES = ["config.json", "command.txt", "versions.json", "metrics.jsonl", "timing.jsonl", "checksums.json",
         "measure-wasserstein.jsonl"]  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_a_changed_file_is_noticed_also_with_its_old_size_and_time(many: Path, opened: list[str], name: str) -> None:
    read_runs([many], True, True)
    path = many / "some" / "run1" / name
    before = path.stat()
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    with open(path, "r+b") as file:  # in place, as an editor or a failing disk may
        file.write(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    opened.clear()
    found = read_runs([many], True, True)
    assert opened == ["run1"]
    expected = without_index(many, True, True)
    assert found.problems == expected.problems
    assert plain(found) == plain(expected)


def test_what_comes_and_goes_is_noticed(many: Path, opened: list[str]) -> None:
    read_runs([many], True, True)
    (many / "some" / "run0" / "policy.safetensors").unlink()
    write_run(many / "new", seed=7)
    shutil.rmtree(many / "stopped")
    score = many / "converted" / "converted-T100" / "evaluation.json"
    score.write_text(score.read_text().replace("500", "600"))
    opened.clear()
    found = read_runs([many], True, True)
    assert opened == ["converted", "new", "run0"]
    assert [record.directory.name for record in found.records] == ["converted", "new", "run1", "run2"]
    assert found.records[0].returns == [600.0]
    assert ["policy.safetensors is missing" in problem for problem in found.problems] == [True]
    listed = [json.loads(line)["run"] for line in (many / index.INDEX).read_text().splitlines()]
    assert sorted(listed) == ["converted", "some/run1", "some/run2"]  # "new" has no checksums yet


def test_files_that_were_just_written_are_not_believed(
    many: Path, opened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "QUIET", 3600 * 10**9)
    read_runs([many])
    opened.clear()
    read_runs([many])
    assert opened == ALL
    assert not (many / index.INDEX).exists()


@pytest.mark.parametrize("damage", ["cut", "flipped", "noise", "other runs", "empty", "directory"])
def test_a_damaged_index_changes_nothing(many: Path, damage: str) -> None:
    expected = plain(without_index(many, True, True))
    read_runs([many], True, True)
    path = many / index.INDEX
    data = path.read_bytes()
    path.unlink()
    if damage == "cut":
        path.write_bytes(data[: len(data) // 2])
    elif damage == "flipped":
        path.write_bytes(data.replace(b'"returns": [', b'"returns": [9', 2).replace(b"Hopper", b"Walker"))
    elif damage == "noise":
        path.write_bytes(
            os.urandom(5000) + b'\n{"run": 3, "stamps": \n{"run": "some/run0", "stamps": {}\n' + data[:700]
        )
    elif damage == "other runs":
        lines = data.splitlines(keepends=True)
        names = [line.partition(b', "stamps": ') for line in lines]
        path.write_bytes(b"".join(a[0] + b"".join(b[1:]) for a, b in zip(names, names[1:] + names[:1], strict=True)))
    elif damage == "empty":
        path.write_bytes(b"")
    else:
        path.mkdir()
    assert plain(read_runs([many], True, True)) == expected
    assert plain(read_runs([many], True, True)) == expected


def test_it_is_written_only_if_there_is_something_new_to_say(many: Path) -> None:
    read_runs([many])
    before = (many / index.INDEX).stat()
    read_runs([many])
    assert (many / index.INDEX).stat() == before
    assert sorted(path.name for path in many.iterdir()) == [index.INDEX, "converted", "some", "stopped"]


def test_a_few_runs_get_none(many: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "WORTH_IT", 200)
    read_runs([many, many / "some"])
    assert not list(many.rglob(".carebn*"))


def test_a_place_that_cannot_be_written_to(many: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "replace", refused)
    assert len(read_runs([many]).records) == 5
    assert not list(many.rglob(".carebn*"))

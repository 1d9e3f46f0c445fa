"""What is kept of a run opens like a run, cannot be trained over, and is refused when damaged."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from said import assert_one_sentence

import carebn as package
from carebn.checksums import sealed
from carebn.deploy import load
from carebn.study.evidence.runs import read_run
from carebn.zoo.keeping import Hidden, keep

NAME = "pendulum-care"


def test_it_is_small_and_whole(zoo, runs) -> None:
    entry = zoo / NAME
    assert sorted(path.name for path in entry.iterdir()) == [
        "card.json", "card.md", "checksums.json", "command.txt", "config.json", "kept.json", "metrics.jsonl",
        "policy.safetensors", "spaces.json", "versions.json",
    ]  # fmt: skip
    kept, run = read_run(entry), read_run(runs / f"seed{package.load(entry).config.seed}")
    assert kept.complete
    assert (kept.steps, kept.returns, kept.command, kept.versions) == (
        run.steps,
        run.returns,
        run.command,
        run.versions,
    )
    for name in ("config.json", "command.txt", "versions.json", "spaces.json", "policy.safetensors"):
        assert (entry / name).read_bytes() == (run.directory / name).read_bytes()


def test_an_export_says_where_it_comes_from(carebn, zoo) -> None:
    assert carebn("export", NAME, "--to", "numpy", "--out", "p.npz", "--observations", 20).code == 0
    info = load("p.npz").info
    assert info["trained_steps"] == 60
    assert info["mean_return"] == read_run(zoo / NAME).returns[-1]
    assert (
        json.loads(Path("p.npz.json").read_text())["observations"] == "20 observations of its own and random episodes"
    )


def test_it_cannot_be_trained_over(carebn, zoo, contents) -> None:
    before = contents(zoo / NAME)
    for words in ((), ("--total-timesteps", 90)):
        said = carebn("train", "--run-dir", zoo / NAME, *words)
        assert_one_sentence(said)
        assert "holds a finished run without its checkpoints and replay, so it cannot go on" in said.err
    assert contents(zoo / NAME) == before


def test_what_needs_the_replay_says_so(carebn, zoo) -> None:
    said = carebn("convert", "pendulum-ann")
    assert said.code == 1
    assert "it has no checkpoint, and so no replay to set thresholds from" in said.err
    assert "leave out --which best" in carebn("evaluate", NAME, "--which", "best").err


def flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    "name", ["policy.safetensors", "config.json", "spaces.json", "checksums.json", "kept.json", "card.json"]
)
def test_a_damaged_one_is_refused(carebn, zoo, name) -> None:
    flipped(zoo / NAME / name)
    said = carebn("card" if name == "card.json" else "evaluate", NAME)
    assert said.code == 1
    assert f"{name}" in said.err
    assert "Traceback" not in said.err
    listed = carebn("zoo")
    if name in ("config.json", "kept.json", "card.json", "policy.safetensors"):
        assert f"{NAME} is left out" in listed.err or NAME in listed.out
        assert "pendulum-ann" in listed.out


def test_another_policy_in_its_place_is_refused(carebn, zoo, runs) -> None:
    seed = package.load(zoo / NAME).config.seed
    shutil.copy(runs / f"seed{1 - seed}" / "policy.safetensors", zoo / NAME)
    said = carebn("evaluate", NAME)
    assert said.code == 1
    assert "is not the policy that kept.json beside it is about" in said.err


@pytest.mark.parametrize("record", [{}, {"step": "60", "policy": ""}, {"step": True, "policy": ""}])
def test_a_record_of_something_else_is_damage(carebn, zoo, record) -> None:
    (zoo / NAME / "kept.json").write_bytes(sealed(record))
    assert "kept.json is damaged" in carebn("evaluate", NAME).err


def test_an_unfinished_run_is_not_kept(runs, tmp_path) -> None:
    from conftest import config

    from carebn.training import Run

    run = Run(config(tmp_path / "half"))
    run.open()
    while run.step < 40:
        run.make_step()
    run.save()
    run.close()
    (tmp_path / "to").mkdir()
    with pytest.raises(ValueError, match=r"is unfinished: step 40 of 60; only finished runs are kept"):
        keep(tmp_path / "half", tmp_path / "to")
    assert not list((tmp_path / "to").iterdir())


def test_a_directory_is_there_when_it_is_complete(tmp_path) -> None:
    def fail() -> None:
        with Hidden(tmp_path / "new") as place:
            (place / "a").write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert not list(tmp_path.iterdir())
    for text in ("first", "second"):
        with Hidden(tmp_path / "new") as place:
            (place / text).write_text(text)
        assert [path.name for path in tmp_path.iterdir()] == ["new"]
        assert [path.name for path in (tmp_path / "new").iterdir()] == [text]


def test_a_converted_policy_is_kept_as_such(carebn, runs, tmp_path) -> None:
    assert carebn("convert", runs / "ann", "--time-steps", 4, "--iterations", 5, "--out", "converted").code == 0
    (tmp_path / "to").mkdir()
    keep(tmp_path / "converted", tmp_path / "to")
    observation = np.array([0.01, -0.02, 0.0, 0.03])
    expected = package.load(tmp_path / "converted").predict(observation)[0]
    np.testing.assert_array_equal(package.load(tmp_path / "to").predict(observation)[0], expected)
    said = carebn("card", tmp_path / "to", "--episodes", 3)
    assert said.code == 0, said.err
    assert "Converted from a trained ANN to 4 time steps." in (tmp_path / "to" / "card.md").read_text()

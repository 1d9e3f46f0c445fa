"""Damaged checkpoints are refused or fallen back from; nothing in them is ever executed."""

import json
import pickle
from pathlib import Path

import pytest
from test_resume import contents

from carebn.checksums import Mismatch, as_json, sealed, without_seal
from carebn.training import Run, TrainConfig
from carebn.training.checkpoint import Damaged, OtherFormat, unfinished


def config(directory: Path, steps: int = 60) -> TrainConfig:
    return TrainConfig(
        env_id="InvertedPendulum-v4",
        total_timesteps=steps,
        learning_starts=20,
        hidden=(8,),
        batch_size=8,
        eval_interval=60,
        eval_episodes=1,
        checkpoint_interval=20,
        recalibration_batches=2,
        run_dir=directory,
        quiet=True,
    )


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    assert Run(config(tmp_path)).train()
    return tmp_path


def newest(directory: Path) -> Path:
    return max((directory / "checkpoint").iterdir())


def resumed(directory: Path) -> Run:
    run = Run(config(directory))
    run.train()
    return run


def test_two_checkpoints_and_only_new_transitions(finished: Path) -> None:
    assert [p.name for p in sorted((finished / "checkpoint").iterdir())] == ["000000040", "000000060"]
    assert len(list((finished / "replay").iterdir())) == 3


@pytest.mark.parametrize("name", ["agent.safetensors", "state.json", "manifest.json"])
@pytest.mark.parametrize("damage", ["truncate", "flip", "delete", "pickle"])
def test_a_damaged_newest_checkpoint_falls_back(finished: Path, name: str, damage: str) -> None:
    policy = (finished / "policy.safetensors").read_bytes()
    path = newest(finished) / name
    data = bytearray(path.read_bytes())
    if damage == "truncate":
        path.write_bytes(data[: len(data) // 2])
    elif damage == "flip":
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    elif damage == "delete":
        path.unlink()
    else:
        path.write_bytes(pickle.dumps(Trap(str(finished / "trap"))))
    run = resumed(finished)
    assert len(run.warnings) == 1
    assert "step 60 is damaged" in run.warnings[0]
    assert not (finished / "trap").exists()
    assert (finished / "policy.safetensors").read_bytes() == policy  # the lost steps were repeated exactly


class Trap:
    """Leaves a file behind if somebody unpickles it."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> object:
        return open, (self.path, "w")


def test_a_damaged_replay_segment_is_noticed(finished: Path) -> None:
    path = min((finished / "replay").iterdir())
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(Damaged, match="no checkpoint of this run is whole") as error:
        resumed(finished)
    assert f"({path} does not match its checksum)" in str(error.value)
    path.unlink()
    with pytest.raises(Damaged, match="no checkpoint of this run is whole") as error:
        resumed(finished)
    assert f"({path} is missing)" in str(error.value)


def test_all_that_is_damaged_is_named(finished: Path) -> None:
    for step, name in ((40, "state.json"), (60, "manifest.json")):
        (finished / "checkpoint" / f"{step:09d}" / name).write_bytes(b"x")
    with pytest.raises(Damaged) as error:
        resumed(finished)
    assert f"{finished}/checkpoint/000000040/state.json does not match its checksum" in str(error.value)
    assert f"{finished}/checkpoint/000000060/manifest.json is not a manifest" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_manifest_cannot_point_outside(finished: Path) -> None:
    path = newest(finished) / "manifest.json"
    manifest = without_seal(json.loads(path.read_bytes()))
    manifest["files"]["../../policy.safetensors"] = manifest["files"].pop("agent.safetensors")
    path.write_bytes(sealed(manifest))
    run = resumed(finished)
    assert "names files elsewhere" in run.warnings[0]


def with_format(directory: Path, step: int, number: object, seal: bool = True) -> None:
    path = directory / "checkpoint" / f"{step:09d}" / "manifest.json"
    manifest = without_seal(json.loads(path.read_bytes())) | {"format": number}
    path.write_bytes(sealed(manifest) if seal else as_json(manifest))


@pytest.mark.parametrize("seal", [True, False])
@pytest.mark.parametrize("step", [40, 60])
def test_a_checkpoint_of_another_format_is_refused_and_stays(finished: Path, step: int, seal: bool) -> None:
    with_format(finished, step, 3, seal)
    before = contents(finished)
    with pytest.raises(OtherFormat) as error:
        resumed(finished)
    assert str(error.value) == (
        f"{finished}/checkpoint/{step:09d}/manifest.json has the checkpoint format 3, and this version of carebn reads "
        f"formats 1 and 2: install a newer one, or the one that wrote it"
    )
    assert contents(finished) == before  # it is not taken for damage, which would be cleaned up


def test_a_manifest_without_number_and_checksum_is_of_the_first_format(finished: Path) -> None:
    path = newest(finished) / "manifest.json"
    manifest = without_seal(json.loads(path.read_bytes()))
    assert manifest.pop("format") == 2
    path.write_bytes(as_json(manifest))
    assert not resumed(finished).warnings
    assert unfinished(finished, config(finished).checked()) is None


@pytest.mark.parametrize("line", range(15))
def test_no_line_of_a_manifest_can_go_missing(finished: Path, line: int) -> None:
    path = newest(finished) / "manifest.json"
    lines = path.read_text().splitlines(keepends=True)
    before = contents(finished)
    path.write_text("".join(lines[:line] + lines[line + 1 :]))
    run = resumed(finished)
    assert "the checkpoint at step 60 is damaged" in run.warnings[0]
    assert contents(finished) == before  # made again from the one before
    path.write_text("".join(lines).replace(lines[line], lines[line].swapcase()))
    if path.read_text() != "".join(lines):
        assert "the checkpoint at step 60 is damaged" in resumed(finished).warnings[0]


def test_another_version_voids_exactness_but_not_the_run(finished: Path) -> None:
    path = finished / "versions.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"torch": "1.0.0"}))
    with pytest.raises(Mismatch, match=r"versions\.json does not match its checksum"):
        resumed(finished)
    (finished / "checksums.json").unlink()
    assert not resumed(finished).warnings  # it is complete as it is
    run = Run(config(finished, steps=80))
    assert run.train()
    assert "torch 1.0.0" in run.warnings[0]
    assert "no longer promised" in run.warnings[0]

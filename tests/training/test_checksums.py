"""What a run has written down is under a checksum: what does not match is named, and not counted."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from said import assert_one_sentence
from test_extension import config, contents, make_older, measured

from carebn import load
from carebn.checksums import Mismatch, read_sealed, sealed
from carebn.commands.train import run as train
from carebn.deploy.origin import origin_of
from carebn.study.evidence.runs import DamagedRun, read_run
from carebn.training import Run
from carebn.training.checkpoint import Damaged
from carebn.training.policy_file import policy_bytes
from carebn.training.vouch import replace_policy


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("checksums") / "run"
    measured(config("measured", directory, 60)).train()
    return directory


@pytest.fixture
def finished(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "run"))


def change_a_digit(path: Path, after: str) -> None:
    text = path.read_text()
    place = next(i for i in range(text.index(after) + len(after), len(text)) if text[i].isdigit())
    path.write_text(text[:place] + str((int(text[place]) + 1) % 10) + text[place + 1 :])


@pytest.mark.parametrize(
    ("name", "after"),
    [
        ("config.json", '"total_timesteps"'),
        ("versions.json", '"torch"'),
        ("command.txt", "--seed"),
        ("metrics.jsonl", '"eval/mean_return"'),
        ("measure-wasserstein.jsonl", '"before"'),
        ("timing.jsonl", '"time/elapsed"'),
        ("checksums.json", '"bytes"'),
    ],
)
def test_a_report_names_what_was_changed(finished: Path, name: str, after: str) -> None:
    change_a_digit(finished / name, after)
    with pytest.raises(DamagedRun, match=name) as error:
        read_run(finished, measures=True)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["versions.json", "metrics.jsonl", "measure-wasserstein.jsonl", "policy.safetensors"])
def test_a_report_names_what_is_missing(finished: Path, name: str) -> None:
    (finished / name).unlink()
    with pytest.raises(DamagedRun, match=f"{name} is missing"):
        read_run(finished, measures=True)


def test_lines_of_timing_cannot_get_lost(finished: Path) -> None:
    path = finished / "timing.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    with pytest.raises(DamagedRun, match=r"timing\.jsonl is damaged"):
        read_run(finished)
    path.unlink()  # as it says
    assert read_run(finished).seconds == 0


def test_only_what_is_vouched_for_is_shown(finished: Path) -> None:
    with open(finished / "metrics.jsonl", "a") as file:
        file.write('{"step": 80, "eval/mean_return": 1e9, "eval/std_return": 0.0, "returns": [], "lengths": []}\n')
    assert read_run(finished).steps == [20, 40, 60]


def test_metrics_that_were_changed_are_repeated_or_refused(finished: Path) -> None:
    before = contents(finished)
    text = (finished / "metrics.jsonl").read_text()
    lines = text.splitlines(keepends=True)
    (finished / "metrics.jsonl").write_text("".join(lines[:-1]) + lines[-1].replace("eval/", "evil/"))
    run = measured(config("measured", finished, 60))
    run.train()
    assert "metrics.jsonl does not match its checksum; falling back to the one before" in run.warnings[0]
    assert contents(finished) == before
    (finished / "metrics.jsonl").write_text("x" + text)
    with pytest.raises(Damaged, match=r"no checkpoint of this run is whole \(.*metrics\.jsonl does not match"):
        measured(config("measured", finished, 60)).train()


@pytest.mark.parametrize("name", ["config.json", "versions.json", "measure-wasserstein.jsonl"])
def test_a_run_does_not_go_on_with_what_was_changed(finished: Path, name: str) -> None:
    change_a_digit(finished / name, '"log_interval"' if name == "config.json" else ": ")
    with pytest.raises(Mismatch, match=f"{name} does not match its checksum"):
        measured(config("measured", finished, 60, log_interval=8 if name == "config.json" else 7)).train()


def test_a_policy_is_not_opened_with_another_configuration(finished: Path, carebn: Any) -> None:
    change_a_digit(finished / "config.json", '"time_steps"')
    for words in (["evaluate"], ["export", "--to", "numpy", "--out", "x.npz"], ["convert"]):
        result = carebn(words[0], str(finished), *words[1:])
        assert_one_sentence(result)
        assert "config.json does not match its checksum" in result.err


def test_a_run_of_an_earlier_version_opens(finished: Path, carebn: Any) -> None:
    expected = read_run(finished, measures=True)
    make_older(finished)
    assert read_run(finished, measures=True) == expected
    assert carebn("evaluate", str(finished), "--episodes", "1").code == 0
    assert not measured(config("measured", finished, 60)).train()
    assert (finished / "checksums.json").exists()  # from now on


def test_a_damaged_older_checkpoint_is_noticed_at_once(finished: Path, carebn: Any) -> None:
    path = finished / "checkpoint" / "000000045" / "agent.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    said = carebn("train", "--run-dir", str(finished), "--quiet")
    assert said.code == 0
    assert said.err.count("\n") == 1
    assert "the checkpoint at step 45, kept in case the newest is lost, is damaged" in said.err


def test_and_while_training(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    class Damaging(Run):
        def make_step(self) -> None:
            if self.step == 20:
                path = self.directory / "checkpoint" / "000000015" / "agent.safetensors"
                path.write_bytes(path.read_bytes()[:-1] + b"x")
            super().make_step()

    Damaging(config("td3", tmp_path, 35)).train()
    assert capfd.readouterr().err.count("the checkpoint at step 15, kept in case the newest is lost, is damaged") == 1


def test_sealed_files(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(sealed({"a": [1, 2.5], "b": None}))
    assert read_sealed(path) == {"a": [1, 2.5], "b": None}
    path.write_bytes(path.read_bytes().replace(b"2.5", b"2.6"))
    with pytest.raises(Mismatch, match="does not match its checksum"):
        read_sealed(path)
    for shape in (b"", b"[]", b"7", b"[" * 100_000, b"\xff"):
        path.write_bytes(shape)
        with pytest.raises(ValueError, match="is damaged") as error:
            read_sealed(path)
        assert "\n" not in str(error.value)
    path.write_text(json.dumps({"a": 1}))
    assert read_sealed(path) == {"a": 1}  # an earlier version's


@pytest.mark.parametrize("left", [".policy.safetensors.part", "policy.safetensors"])
def test_what_a_crash_leaves_of_a_converted_policy(left: str, tmp_path: Path) -> None:
    """Also one of an earlier version, which filled the directory under its own name."""
    train(config("converted", tmp_path, 45))
    before = contents(tmp_path)
    [converted] = tmp_path.glob("converted-*")
    shutil.rmtree(converted)
    converted.mkdir()
    (converted / left).write_bytes(b"half")
    train(config("converted", tmp_path, 45))
    assert contents(tmp_path) == before


def test_the_score_of_a_converted_policy_is_sealed(tmp_path: Path) -> None:
    train(config("converted", tmp_path, 45))
    [path] = tmp_path.glob("converted-*/evaluation.json")
    change_a_digit(path, '"mean_return"')
    with pytest.raises(DamagedRun, match=r"evaluation\.json does not match its checksum"):
        read_run(tmp_path)
    path.unlink()
    with pytest.raises(DamagedRun, match=r"evaluation\.json is missing"):
        read_run(tmp_path)


@pytest.mark.parametrize("damage", ["changed", "cut"])
def test_an_export_does_not_carry_a_return_that_was_changed(finished: Path, damage: str) -> None:
    """It is told of the policy wherever the policy goes."""
    metrics = finished / "metrics.jsonl"
    right = origin_of(load(finished), finished)
    assert right["mean_return"] == json.loads(metrics.read_text().splitlines()[-1])["eval/mean_return"]
    if damage == "changed":
        change_a_digit(metrics, '"eval/mean_return"')
    else:
        metrics.write_bytes(metrics.read_bytes()[:-60])
    with pytest.raises(Mismatch, match=r"metrics\.jsonl"):
        origin_of(load(finished), finished)


def test_a_measurement_that_is_gone_is_missed(finished: Path, carebn: Any) -> None:
    """The directory alone tells that a run measures: without the file it would go on without."""
    (finished / "measure-wasserstein.jsonl").unlink()
    said = carebn("train", "--run-dir", finished, "--quiet")
    assert_one_sentence(said)
    assert "measure-wasserstein.jsonl is missing" in said.err
    assert not (finished / "measure-wasserstein.jsonl").exists()


def test_a_measurement_that_was_appended_does_not_stay(finished: Path, carebn: Any) -> None:
    path = finished / "measure-wasserstein.jsonl"
    before = contents(finished)
    path.write_bytes(path.read_bytes() + path.read_bytes().splitlines(keepends=True)[-1])
    assert carebn("train", "--run-dir", finished, "--quiet").code == 0
    after = contents(finished)
    assert {name for name in before if before[name] != after[name]} == set()


@pytest.mark.parametrize("other", [{"steps": 40}, {"steps": 60, "seed": 9}])
def test_another_policy_of_the_same_kind_is_not_taken_for_the_last(
    finished: Path, tmp_path: Path, carebn: Any, other: dict[str, int]
) -> None:
    """An earlier one, as the best may be, or that of another run: each is whole, and vouches for itself."""
    right = (finished / "policy.safetensors").read_bytes()
    measured(config("measured", tmp_path / "other", **other)).train()
    theirs = (tmp_path / "other" / "policy.safetensors").read_bytes()
    assert theirs != right
    (finished / "policy.safetensors").write_bytes(theirs)
    with pytest.raises(ValueError, match="is not the policy that was saved here last"):
        load(finished)
    for command in (["evaluate"], ["export", "--to", "numpy", "--out", str(tmp_path / "p.npz")], ["energy"]):
        said = carebn(command[0], finished, *command[1:])
        assert_one_sentence(said)
        assert "not the policy that was saved here last" in said.err
    load(finished, which="best")  # it has a record of its own
    assert carebn("train", "--run-dir", finished).code == 0
    assert (finished / "policy.safetensors").read_bytes() == right
    load(finished)


def test_a_crash_while_the_policy_is_replaced(finished: Path) -> None:
    """Before and after its writing it opens; a third policy does not."""
    before = (finished / "policy.safetensors").read_bytes()
    checksums = (finished / "checksums.json").read_bytes()
    tensors = load(finished).network.state_dict()
    new, third = (policy_bytes({name: tensor + k for name, tensor in tensors.items()}) for k in (1, 2))
    replace_policy(finished, new)
    for data in (new, before):
        (finished / "policy.safetensors").write_bytes(data)
        load(finished)
    (finished / "policy.safetensors").write_bytes(third)
    with pytest.raises(Mismatch, match="saved here last"):
        load(finished)
    assert not measured(config("measured", finished, 60)).train()  # complete; what follows from the checkpoint is made
    assert (finished / "policy.safetensors").read_bytes() == before
    assert (finished / "checksums.json").read_bytes() == checksums


def test_a_converted_policy_is_vouched_for_too(tmp_path: Path) -> None:
    train(config("converted", tmp_path, 45))
    [converted] = tmp_path.glob("converted-*")
    tensors = load(converted).network.state_dict()
    (converted / "policy.safetensors").write_bytes(policy_bytes({k: v + 1 for k, v in tensors.items()}))
    with pytest.raises(Mismatch, match=r"saved here last.*carebn convert command again restores it"):
        load(converted)

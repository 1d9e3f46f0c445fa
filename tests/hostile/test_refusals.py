"""One sentence before anything is computed: sizes that do not fit, work without an end, files that are none."""

import json
import os
import shutil
import sys
from pathlib import Path

import pytest
from said import assert_one_sentence

from carebn import cli
from carebn.errors import told
from carebn.limits import check_work, number, spelled
from carebn.machine import memory
from carebn.reading import parse_json, parse_rows, read_file, read_object
from carebn.training.files import write_atomically

TRAINED = Path(__file__).parents[1] / "deploy" / "trained_clif"
DEPTH = 100_000


@pytest.fixture
def refused(carebn):
    """Runs a command in an empty directory; returns the one sentence that it says."""

    def call(*words: str) -> str:
        said = carebn(*words)
        assert_one_sentence(said)
        assert said.out == ""
        return said.err

    return call


@pytest.fixture
def run(tmp_path: Path) -> Path:
    shutil.copytree(TRAINED, tmp_path / "run")
    return tmp_path / "run"


# --- the command line -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--hidden 1000000000 1000000000", "a network of these sizes needs about 14,901,1"),
        (f"--hidden {10**400}", "a network of these sizes needs about 10^"),
        ("--batch-size 100000000000", "GiB of memory, and there is"),
        ("--target proxy --proxy-hidden 9999999 9999999", "a network of these sizes needs about"),
        ("--time-steps 1000000000", "--time-steps must be at most 100,000, got 1,000,000,000"),
        ("--buffer-size 1e12 --total-timesteps 1e10", "a replay of 10,000,000,000 transitions needs about"),
        ("--total-timesteps 1e12", "--total-timesteps 1,000,000,000,000 would take 31 years"),
        (f"--total-timesteps {10**400}", "--total-timesteps 10^400 would take millions of years"),
        ("--eval-episodes 1000000000", "--eval-episodes 1,000,000,000 would take about 115 days"),
        ("--recalibration-batches 1000000000", "would take about 11 days; at most 1,000,000 are done"),
        ("--threads 1000000", "--threads must be at most 1,024, got 1,000,000"),
        (f"--seed {10**30}", "--seed must be at most 18,446,744,073,709,551,615, got 10^30"),
        ("--encoder-std 1e-46", "--encoder-std must be above zero and within float32"),
        ("--encoder-range 1e39", "--encoder-range must be above zero and within float32"),
        ("--exploration-noise 1e39", "nor beyond float32"),
    ],
)
def test_training_that_cannot_be_meant(refused, words: str, told: str) -> None:
    assert told in refused("train", "--env-id", "Pendulum-v1", *words.split())
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("evaluate RUN --episodes 1000000000", "--episodes 1,000,000,000 would take about 115 days"),
        ("export RUN --to c --out x.c --observations 1000000000", "--observations must be at most 1,000,000"),
        ("watch RUN --speed 1e308", "--speed must lie between 0.001 and 1000, got 1e+308"),
        ("watch RUN --seconds 1e30", "--seconds must be at most 86,400"),
        ("convert RUN --iterations 1000000000", "iterations 1,000,000,000 would take about 11 days"),
        ("convert RUN --time-steps 1000000000", "time_steps must be at most 100,000"),
        ("measure distributions RUN --snapshots 1000000", "--snapshots must be at most 100"),
        ("measure cost vanilla --steps 1000000000000", "--steps 1,000,000,000,000 would take 31 years"),
        ("study run main --seeds 1000000000", "--seeds must be at most 1,000, got 1,000,000,000"),
        ("study run main --scale 1e300", "would take millions of years"),
        ("study run main --runs RUN/config.json", "cannot make the directory"),
        ("study run main --workers 1000000", "GiB of memory, and there is"),
        (f"evaluate {'d/' * 2500}", "File name too long"),
    ],
)
def test_work_that_cannot_be_meant(refused, run: Path, words: str, told: str) -> None:
    said = refused(*words.replace("RUN", str(run)).split())
    assert told in said
    assert len(said) < 2500


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
@pytest.mark.parametrize("name", ["config.json", "policy.safetensors"])
def test_a_pipe_is_not_waited_for(refused, run: Path, name: str) -> None:
    (run / name).unlink()
    os.mkfifo(run / name)
    assert f"{name} cannot be read (it is a named pipe, not a file)" in refused("evaluate", str(run))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
def test_a_pipe_is_not_written_over(refused, run: Path) -> None:
    os.mkfifo("raster.png")
    assert "raster.png cannot be written (it is a named pipe, not a file)" in refused("spikes", str(run))
    assert Path("raster.png").is_fifo()
    with pytest.raises(OSError, match="named pipe"):
        write_atomically(Path("raster.png"), b"")
    assert os.listdir() == ["raster.png", "run"] or os.listdir() == ["run", "raster.png"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[1, 2]", "it holds a list where an object with names was expected"),
        ("[" * DEPTH, "it is not readable as JSON (nested too deeply)"),
        ('{"seed": ' + "9" * 5000 + "}", "it holds a number of 5,000 digits"),
        ('{"algo": "a3c"}', "unknown algorithm 'a3c': did you mean 'sac'?"),
    ],
)
def test_json_of_another_shape(refused, run: Path, text: str, told: str) -> None:
    (run / "config.json").write_text(text)
    said = refused("evaluate", str(run))
    assert "config.json cannot be read" in said
    assert told in said


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_output_that_nobody_takes(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["carebn", "methods"])
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        with pytest.raises(SystemExit) as stop:
            cli.main()
    assert stop.value.code == 1
    assert capfd.readouterr().err == "carebn: cannot write: No space left on device\n"


# --- the shared helpers -----------------------------------------------------------------------------------------------


def test_json_is_what_was_expected(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"state": 2**128, "x": [1.5, None]}))
    assert read_object(path) == {"state": 2**128, "x": [1.5, None]}
    assert parse_rows(b'{"a": 1}\n{"b": 2}\n{"c"') == [{"a": 1}, {"b": 2}]
    with pytest.raises(ValueError, match="line 2 cannot be read: it holds a number where"):
        parse_rows(b'{"a": 1}\n7\n')
    with pytest.raises(ValueError, match="no text in UTF-8"):
        parse_json(b'"\xe9"')
    with pytest.raises(OSError, match="it is a directory, not a file"):
        read_file(tmp_path)
    with pytest.raises(FileNotFoundError):
        read_file(tmp_path / "absent")


def test_what_is_told_and_what_is_not() -> None:
    assert "not enough memory" in (told(MemoryError("Unable to allocate 7 TiB")) or "")
    assert "not enough memory" in (told(RuntimeError("DefaultCPUAllocator: can't allocate memory: tried 9")) or "")
    assert told(OverflowError("int too large")) == (
        "a number is too large to compute with (int too large); choose a smaller one"
    )
    assert told(OSError(13, "Permission denied", "x")) == "x: Permission denied"
    assert told(ValueError("a\nb")) == "a b"
    assert told(RuntimeError("of our own")) is None
    assert told(ZeroDivisionError()) is None


def test_numbers_for_people() -> None:
    assert number(1_000_000) == "1,000,000"
    assert number(10**400) == "10^400"
    assert spelled(7200) == "about 2 hours"
    assert spelled(10**1000) == "millions of years"


def test_the_paper_fits_this_machine() -> None:
    """What is refused is far from what is in use."""
    from carebn.limits import EPISODES, STEPS

    check_work("--total-timesteps", 1_025_000_000, STEPS)
    check_work("--episodes", 1000, EPISODES)
    assert (memory() or 2**40) > 2**30


def test_a_state_or_a_row_that_is_none(tmp_path: Path) -> None:
    from carebn.training.checkpoint import Damaged, checked_state
    from carebn.training.record import read_rows
    from carebn.training.seeds import Streams

    with pytest.raises(Damaged, match="'streams' is missing or wrong"):
        checked_state({"name": "package"}, tmp_path, 1)
    with pytest.raises(ValueError, match="random streams"):
        Streams(0).restore({"warm_up": {"bit_generator": "PCG64"}})
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n{"step": "two"}\n')
    with pytest.raises(ValueError, match="line 2 does not say at which step"):
        read_rows(tmp_path / "metrics.jsonl")

"""carebn energy, watch and spikes: what they write is there and right, and mistakes are one sentence."""

import itertools
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import imageio_ffmpeg
import numpy as np
import pytest
from PIL import Image

from carebn.show.film import FORMATS
from carebn.study.evidence.measured import energy_of
from carebn.study.evidence.runs import read_run
from carebn.training.files import as_json

pytestmark = pytest.mark.slow


def films(path: Path) -> tuple[int, tuple[int, int]]:
    frames = imageio_ffmpeg.read_frames(str(path))
    size = next(frames)["size"]
    return sum(1 for _ in frames), size


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


# --- energy -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["idp", "hopper", "ann"])
def test_energy(carebn, trained, name: str) -> None:
    run = trained(name)
    said = carebn("energy", run, "--episodes", 2, "--out", "here")
    assert said.code == 0, said.err
    assert names(Path("here")) == ["energy.json", "energy.png"]
    data = json.loads(Path("here/energy.json").read_bytes())
    assert data["episodes"] == 2
    assert data["decisions"] > 5
    ordinary = data["network"] if name == "ann" else data["ann_counterpart"]
    sizes = {"idp": (11, 1), "hopper": (11, 3), "ann": (11, 3)}[name]
    macs = sizes[0] * 16 + 16 * 12 + 12 * sizes[1]
    assert ordinary["synapses_total"]["nanojoule"]["paper"] == pytest.approx(macs * 25 / 1000)
    assert f"{macs * 25 / 1000:,.2f}" in said.out
    if name != "ann":
        first = data["network"]["synapses"][0]
        assert first["synaptic"] == pytest.approx(first["sender_spikes"] * 16)
        assert first["sender_rate"] == pytest.approx(first["sender_spikes"] / (110 * 5))
        assert 0 < first["sender_rate"] < 1
    assert data["paper_nanojoule"]["snn_care_bn"] == {"idp": 12.94}.get(name, 16.59)
    with Image.open("here/energy.png") as picture:
        assert min(picture.size) > 500


def test_energy_repeats_itself_and_goes_to_the_run_by_default(carebn, trained, tmp_path: Path) -> None:
    run = shutil.copytree(trained("idp"), tmp_path / "copy")
    written = []
    for _ in range(2):
        assert carebn("energy", run, "--quiet").code == 0
        written.append([(run / name).read_bytes() for name in ("energy.json", "energy.png")])
    assert written[0] == written[1]
    data = json.loads(written[0][0])
    record = read_run(run)  # as the paper's table reads it
    assert energy_of(record) == data["network"]["synapses_total"]["nanojoule"]["paper"]
    (run / "policy.safetensors").write_bytes(b"trained on")
    with pytest.raises(ValueError, match=r"energy\.json is about another policy than the run's"):
        energy_of(record)


def test_energy_of_a_q_network(carebn, trained) -> None:
    said = carebn("energy", trained("cartpole"), "--out", ".")
    assert said.code == 0, said.err
    data = json.loads(Path("energy.json").read_bytes())
    first, second, last = data["network"]["synapses"]
    assert first["sender"] == "analogue"
    assert (first["multiplications"], first["synaptic"]) == (4 * 16, 0)
    assert (second["sender"], last["sender"]) == ("spikes", "spikes")
    assert last["synaptic"] == pytest.approx(last["sender_spikes"] * 2)
    assert "paper_nanojoule" not in data


# --- watch ------------------------------------------------------------------------------------------------------------


def test_watch_mujoco(carebn, trained, mujoco_draws: None) -> None:
    """One frame per decision and one for the end, because twenty decisions a second need no thinning."""
    said = carebn("watch", trained("idp"), "--out", "deep/film.mp4")
    assert said.code == 0, said.err
    decisions = int(said.err.split(" decisions")[0].split()[-1])
    assert films(Path("deep/film.mp4")) == (decisions + 1, (1920, 1080))
    assert f"({decisions + 1} frames, {(decisions + 1) / 20:.1f} s)" in said.out
    assert names(Path("deep")) == ["film.mp4"]


def test_watch_thins_out_fast_decisions(carebn, trained, mujoco_draws: None) -> None:
    said = carebn("watch", trained("ann"), "--out", "film.gif", "--quiet", "--episodes", 2)
    assert said.code == 0, said.err
    frames, size = films(Path("film.gif"))
    assert size == (1280, 720)
    assert f"({frames} frames" in said.out


@pytest.mark.parametrize("name", ["pong", "pong-ann"])
def test_watch_atari(carebn, trained, name: str) -> None:
    said = carebn("watch", trained(name), "--out", "film.mp4", "--seconds", "0.6")
    assert said.code == 0, said.err
    assert "cut after 0.6 s of film" in said.err
    assert films(Path("film.mp4")) == (9, (1920, 1080))


def test_a_gif_is_short_unless_more_is_asked_for(carebn, trained, monkeypatch) -> None:
    assert (FORMATS[".gif"].seconds, FORMATS[".mp4"].seconds) == (10, 60)
    monkeypatch.setitem(FORMATS, ".gif", FORMATS[".gif"]._replace(seconds=0.3))
    said = carebn("watch", trained("pong-ann"), "--out", "film.gif")
    assert said.code == 0, said.err
    assert "cut after 0.3 s of film; --seconds takes more" in said.err
    short, _ = films(Path("film.gif"))
    said = carebn("watch", trained("pong-ann"), "--out", "film.gif", "--seconds", 0.6)
    assert "cut after 0.6 s of film\n" in said.err
    assert films(Path("film.gif"))[0] == 2 * short


def test_slow_motion_gives_more_frames(carebn, trained, mujoco_draws: None) -> None:
    """At a quarter of its speed Hopper's every decision is a frame; at full speed every third. Then the end."""
    for speed, every in ((1, 3), (0.25, 1)):
        said = carebn("watch", trained("hopper"), "--out", "film.mp4", "--speed", speed)
        decisions = int(said.err.split(" decisions")[0].split()[-1])
        assert films(Path("film.mp4"))[0] == -(-decisions // every) + 1


# --- spikes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["idp", "ann", "cartpole", "pong"])
def test_spikes(carebn, trained, name: str) -> None:
    said = carebn("spikes", trained(name), "--out", "raster.png", "--decision", 3)
    assert said.code == 0, said.err
    assert "Arcade Learning Environment" not in said.err
    with Image.open("raster.png") as picture:
        assert picture.size[0] >= 1900
        assert np.asarray(picture.convert("L")).std() > 10
    kind = "active (not spikes)" if name == "ann" else "firing"
    assert ("layer 1: 16 ReLU units, " if name == "ann" else "layer 1: 16 neurons, 5 steps, ") in said.out
    if name in ("ann", "cartpole"):
        assert said.out.startswith(f"input: {11 if name == 'ann' else 4} values, ")
    assert kind in said.out.split("layer 1")[1].splitlines()[0]


# --- mistakes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("energy RUN --episodes 0", "--episodes must be at least 1, got 0"),
        ("energy RUN --seed -1", "--seed must not be negative"),
        ("energy nowhere", "nowhere is not a run directory"),
        ("energy RUN --out file/below", "cannot make the directory file/below"),
        ("watch RUN --episodes 0", "--episodes must be at least 1, got 0"),
        ("watch RUN --out film.avi", "unknown film format '.avi'; known: .gif, .mp4"),
        ("watch RUN --out film", "unknown film format"),
        ("watch RUN --out file/film.mp4", "cannot make the directory file"),
        ("watch RUN --out folder.mp4", "folder.mp4 cannot be written (it is a directory)"),
        ("watch RUN --speed 0", "--speed must be above zero and finite, got 0.0"),
        ("watch RUN --speed nan", "--speed must be above zero and finite, got nan"),
        ("watch RUN --seconds -1", "--seconds must be above zero and finite"),
        ("watch RUN --seed -1", "--seed must not be negative"),
        ("watch RUN --out /proc/film.mp4", "no file can be made in /proc"),
        ("spikes RUN --out /proc/raster.png", "no file can be made in /proc"),
        ("watch nowhere", "nowhere is not a run directory"),
        ("spikes RUN --decision 0", "--decision must be at least 1, got 0"),
        ("spikes RUN --decision 100000", "choose a --decision up to"),
        ("spikes RUN --out raster.jpg", "a raster is a .png picture"),
        ("spikes RUN --out file/raster.png", "cannot make the directory file"),
        ("spikes nowhere", "nowhere is not a run directory"),
    ],
)
def test_a_mistake_is_one_sentence_and_leaves_nothing(carebn, trained, words: str, told: str) -> None:
    Path("file").touch()
    Path("folder.mp4").mkdir()
    said = carebn(*(trained("idp") if word == "RUN" else word for word in words.split()))
    assert said.code == 1
    assert said.err.startswith("carebn: ")
    assert said.err.count("\n") == 1
    assert told in said.err
    assert said.out == ""
    assert names(Path()) == ["file", "folder.mp4"]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"total_timesteps": 90}, "is unfinished: step 40 of 90"),
        ({"learning_starts": 60}, "is untrained: at step 40 its random warm-up was not over"),
    ],
)
@pytest.mark.parametrize("command", ["energy", "watch", "spikes", "evaluate"])
def test_an_unfinished_run_is_allowed_with_a_warning(
    carebn, trained, tmp_path: Path, change: dict[str, int], told: str, command: str
) -> None:
    run = shutil.copytree(trained("pong" if command == "watch" else "idp"), tmp_path / "copy")
    config = json.loads((run / "config.json").read_bytes()) | change
    (run / "config.json").write_bytes(as_json(config))
    (run / "checksums.json").unlink()
    said = carebn(command, run, *(["--seconds", "0.2"] if command == "watch" else []))
    assert said.code == 0, said.err
    assert said.err.count("warning: ") == 1
    assert told in said.err
    assert "warning" not in carebn("spikes", trained("idp")).err


def test_what_cannot_be_drawn_is_told_before_a_film_is_begun(carebn, trained, capfd, monkeypatch) -> None:
    """Classic control needs pygame; here it cannot be imported."""
    monkeypatch.setitem(sys.modules, "pygame", None)
    said = carebn("watch", trained("cartpole"), "--out", "film.mp4")
    assert (said.code, said.out, said.err.count("\n")) == (1, "", 1)
    assert "CartPole-v1 cannot be drawn: pygame is not installed" in said.err
    assert names(Path()) == []


def test_nan_in_a_policy(carebn, trained, tmp_path: Path) -> None:
    import safetensors.torch

    run = shutil.copytree(trained("idp"), tmp_path / "copy")
    tensors = safetensors.torch.load_file(run / "policy.safetensors")
    tensors["decoder.weight"][0, 0] = float("nan")
    safetensors.torch.save_file(tensors, run / "policy.safetensors")
    for command in ("energy", "watch", "spikes"):
        said = carebn(command, run)
        assert (said.code, said.err.count("\n")) == (1, 1)
        assert "holds NaN or infinity" in said.err


# --- environments that do wrong ---------------------------------------------------------------------------------------


def change_steps(monkeypatch: pytest.MonkeyPatch, change: Callable[[int, tuple[Any, ...]], tuple[Any, ...]]) -> None:
    """``change(number, what step gave)`` is what a step of an Atari game gives from now on."""
    from ale_py.env import AtariEnv

    number, plain = itertools.count(1), AtariEnv.step
    monkeypatch.setattr(AtariEnv, "step", lambda self, action: change(next(number), plain(self, action)))


@pytest.mark.parametrize("words", ["watch --out film.gif --seconds 1", "spikes --out picture.png --decision 9"])
def test_steps_are_checked_as_everywhere(carebn, trained, monkeypatch: pytest.MonkeyPatch, words: str) -> None:
    run = trained("pong")
    change_steps(monkeypatch, lambda number, given: (given[0][:-1] if number == 3 else given[0], *given[1:]))
    said = carebn(*words.split()[:1], run, *words.split()[1:])
    assert (said.code, said.out) == (1, "")
    assert "ALE/Pong-v5 gave an observation of shape (127,), and its observation space has the shape (128,)" in said.err
    assert names(Path()) == []


@pytest.mark.parametrize("words", ["watch --out film.gif --seconds 1", "spikes --out picture.png --decision 9"])
def test_a_reward_that_is_no_number_is_told(carebn, trained, monkeypatch: pytest.MonkeyPatch, words: str) -> None:
    run = trained("pong")
    change_steps(monkeypatch, lambda number, given: (given[0], float("nan"), *given[2:]))
    said = carebn(*words.split()[:1], run, *words.split()[1:])
    assert said.code == 1
    assert "gave a reward that is NaN, infinite or too large for float32" in said.err


def test_a_return_may_be_larger_than_any_reward(carebn, trained, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rewards of 2e38 fit into float32, and their sum, which is no reward, need not."""
    run = trained("pong")
    change_steps(monkeypatch, lambda number, given: (given[0], 2e38, *given[2:]))
    said = carebn("watch", run, "--out", "film.gif", "--seconds", 1, "--quiet")
    assert said.code == 0, said.err
    assert names(Path()) == ["film.gif"]

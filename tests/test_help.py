"""What the command line says of itself: groups of options and true defaults; and how it ends when nobody listens."""

import os
import re
import shlex
import subprocess
import sys
from dataclasses import fields, replace
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import pytest

from carebn.cli import COMMANDS
from carebn.commands import train
from carebn.commands.study import RunStudy
from carebn.norm import NORMS
from carebn.options import parse
from carebn.training import TrainConfig
from carebn.training.progress import ProgressDisplay, spelled
from carebn.training.record import newest_return


def subcommands(command: Any) -> list[list[str]]:
    parts = get_args(command.Config) if not isinstance(command.Config, type) else ()
    names = [note.name for part in parts for note in part.__metadata__ if hasattr(note, "name")]
    return [[name] for name in names] or [[]]


def help_of(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str, *words: str) -> str:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as end:
        parse(import_module(f"carebn.commands.{name}"), f"carebn {name}", [*words, "--help"])
    assert end.value.code == 0
    return capsys.readouterr().out


def in_one_line(text: str) -> str:
    return " ".join(re.sub("[│╭╮╰╯─]", " ", text).split())


@pytest.mark.parametrize("name", COMMANDS)
def test_no_option_has_a_default_that_says_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    for words in subcommands(import_module(f"carebn.commands.{name}")):
        text = in_one_line(help_of(capsys, monkeypatch, name, *words))
        for wrong in ("{None}", "(default: None)", "(default: default)", "(default: )", "Default:"):
            assert wrong not in text, wrong


def test_the_options_of_train_are_in_groups(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = help_of(capsys, monkeypatch, "train")
    assert max(map(len, text.splitlines()[3:])) <= 80
    members: dict[str, set[str]] = {}
    for line in text.splitlines():  # drawn with lines, or where letters are few with dashes
        heading, option = re.match(r"\W{1,3}(\w[\w ]*) options\W*$", line), re.match(r"\W{1,2}(--[a-z][a-z-]+)", line)
        if heading:
            members[heading[1]] = group = set()
        elif option:
            group.add(option[1])
    assert members.keys() == train.GROUPS.keys()
    assert "--learning-starts" in members["budget"]
    assert "--encoder-std" in members["encoder"]
    assert "--eval-max-steps" in members["evaluation"]
    assert "--run-dir" in members["files and machine"]
    assert sum(map(len, members.values())) == len(fields(train.Config))
    assert max(map(len, members.values())) < 16


def test_the_defaults_that_are_told_are_true(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = in_one_line(help_of(capsys, monkeypatch, "train"))
    for told in (
        "td3, sac 3e-4", "dqn 1e-4", "td3, ddpg, sac 256", "dqn 128", "(default: 0.99)", "(default: dqn 20_000)",
        "(default: 1_025_000)", "care, ca 0.8",
    ):  # fmt: skip
        assert told in text, told
    rates = {algo: TrainConfig(algo=algo).checked().critic_learning_rate for algo in ("dqn", "ddpg", "td3", "sac")}
    assert rates == {"dqn": 1e-4, "ddpg": 1e-3, "td3": 3e-4, "sac": 3e-4}
    assert {m: TrainConfig(method=m).checked().norm_momentum for m in ("care-bn", "ca", "bn", "tab")} == {
        "care-bn": 0.8, "ca": 0.8, "bn": 0.1, "tab": 0.1,
    }  # fmt: skip
    assert set(re.findall(r"\w+", train.DEFAULTS["norm_momentum"])) >= NORMS.keys() - {"none"}
    proxy = TrainConfig(method="proxy-target", neuron="clif").checked()
    assert (proxy.proxy_hidden, proxy.proxy_learning_rate) == ((800, 600), 3e-3)
    proxy = TrainConfig(method="proxy-target", neuron="clif", env_id="InvertedDoublePendulum-v4").checked()
    assert (proxy.proxy_hidden, proxy.proxy_learning_rate) == ((512, 512), 3e-3)
    proxy = TrainConfig(method="proxy-target", neuron="lif").checked()
    assert (proxy.proxy_hidden, proxy.proxy_learning_rate) == ((512, 512), 1e-3)


def test_what_is_parsed_is_the_commands_own() -> None:
    words = "--algo dqn --import a b --learning-starts 1e3 --hidden 8 9 --target polyak --quiet --run-dir x"
    expected = train.Config(
        algo="dqn", import_modules=("a", "b"), learning_starts=1000, hidden=(8, 9), target="polyak", quiet=True,
        run_dir=Path("x"),
    )  # fmt: skip
    assert parse(train, "carebn train", shlex.split(words)) == expected
    assert parse(train, "carebn train", []) == train.Config()
    words = "run main --envs IDP --seeds 2"
    study = parse(import_module("carebn.commands.study"), "carebn study", shlex.split(words))
    assert study == replace(RunStudy(("main",)), envs=("IDP",), seeds=2)


# --- progress ---------------------------------------------------------------------------------------------------------


def test_the_bar_shows_the_newest_return_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # which makes a terminal of whatever this is

    def shown(display: ProgressDisplay) -> str:
        assert display._live is not None
        return str(display._live.tasks[0].fields["returns"])

    display = ProgressDisplay(100, 0, quiet=False)
    assert shown(display) == "not evaluated yet"
    display.evaluated(33, 5.0, 0.0)
    assert shown(display) == "return 5.0, best 5.0"
    display.evaluated(100, 3.0, 0.0)
    assert shown(display) == "return 3.0, best 5.0"
    resumed = ProgressDisplay(100, 50, False, newest=3.0, best=5.0)
    assert shown(resumed) == "return 3.0, best 5.0"
    rows = [{"step": 1, "eval/mean_return": 5.0}, {"step": 2, "eval/mean_return": 3.0}, {"step": 3, "other": 1.0}]
    assert newest_return(rows) == 3.0
    assert newest_return([]) is None


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time of the display: its only number."""
    now = [0.0]
    monkeypatch.setattr("carebn.training.progress.time.monotonic", lambda: now[0])
    return now


def test_the_time_left_is_that_of_learning_and_unknown_before(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    """A hundred steps a second of warm-up, and ten a second of learning, whose first step compiles for a minute."""
    display = ProgressDisplay(10_000, 0, quiet=False, learning_starts=1000)
    for step in range(1, 1101):
        clock[0] += 0.01 if step <= 1000 else 60 if step == 1001 else 0.1
        display.advance(step)
        assert (display.left == "…") == (step < 1040)
    assert display.speed == pytest.approx(10)
    assert display.left == "15 min"  # 8,900 steps
    said = capsys.readouterr().err.splitlines()
    assert [line.partition(",")[0] for line in said] == ["step 1"]  # with its thousands
    assert "… left" in said[0]


def test_a_run_that_goes_on_counts_from_there(clock: list[float]) -> None:
    display = ProgressDisplay(10_000, 5000, quiet=True, learning_starts=1000)
    for step in range(5001, 5101):
        clock[0] += 60 if step == 5001 else 0.1
        display.advance(step)
    assert display.speed == pytest.approx(10)
    assert display.left == "8 min"


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(4.4, "4 s"), (89, "89 s"), (91, "2 min"), (5000, "83 min"), (12_000, "3 h 20 min"), (200_000, "2 days 7 h")],
)
def test_time_for_people(seconds: float, told: str) -> None:
    assert spelled(seconds) == told


@pytest.mark.parametrize("width", [50, 60, 80, 100, 200])
def test_no_number_of_the_bar_is_cut(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    """In a run of the paper's length; where a terminal is narrow, there is less instead."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(width))
    display = ProgressDisplay(1_025_000, 0, False, newest=-1231.3, best=-1100.2)
    assert display._live is not None
    display._live.update(display._task, completed=1_000_350, speed="71", left="13 h 20 min")
    with display.console.capture() as captured:
        display.console.print(display._live.get_renderable())
    line = re.sub(r"\x1b\[[0-9;]*m", "", captured.get()).strip("\n")
    assert "\n" not in line
    assert "…" not in line
    assert "1,000,350/1,025,000" in line
    assert "13 h 20 min left" in line
    assert line.endswith("return -1231.3, best -1100.2") == (width >= 80)


def test_a_dumb_terminal_gets_plain_lines(
    monkeypatch: pytest.MonkeyPatch, clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    """It cannot draw a line again, so a bar would never be seen."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    with ProgressDisplay(100, 0, quiet=False) as display:
        clock[0] = 31
        display.advance(50)
    assert capsys.readouterr().err.startswith("step 50/100")


def test_a_run_says_what_it_begins(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """On standard error; not if it is to be quiet, and not in a notebook, whose cell says it."""
    begun = ("Pendulum-v1, td3, care-bn, clif, seed 0", Path("runs/a [b] c"))
    ProgressDisplay(20_000, 0, quiet=False).begun(*begun)
    told = "Pendulum-v1, td3, care-bn, clif, seed 0: 20,000 steps, in runs/a [b] c\n"
    assert capsys.readouterr() == ("", told)
    ProgressDisplay(20_000, 0, quiet=True).begun(*begun)
    shell = SimpleNamespace()  # IPython in a terminal
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    ProgressDisplay(20_000, 0, quiet=False).begun(*begun)
    assert capsys.readouterr() == ("", told)
    shell.kernel = object()
    ProgressDisplay(20_000, 0, quiet=False).begun(*begun)
    assert capsys.readouterr() == ("", "")


def test_make_tells_what_there_is() -> None:
    """Every target that is somebody's to call, in eighty columns."""
    root = Path(__file__).parents[1]
    told = subprocess.run(["make", "-s", "-C", root], capture_output=True, text=True, check=True).stdout
    phony = re.search(r"\.PHONY: ((?:.*\\\n)*.*)", (root / "Makefile").read_text())
    assert phony is not None
    targets = set(phony[1].replace("\\\n", " ").split()) - {"help"}
    assert set(re.findall(r"^ +make ([\w-]+) ", told, re.MULTILINE)) == targets
    assert max(map(len, told.splitlines())) <= 80


# --- nobody listens, or an environment fails --------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("words", ["train --help", "methods", "report nowhere"])
def test_a_reader_who_leaves_early_is_no_mistake(tmp_path: Path, words: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "carebn", *words.split()], stdout=writing, stderr=subprocess.PIPE, text=True,
        cwd=tmp_path, check=False,
    )  # fmt: skip
    os.close(writing)
    if words == "report nowhere":  # a mistake is still told
        assert done.returncode == 1
        assert done.stderr.startswith("carebn: nowhere is not a directory")
    else:
        assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["step", "__init__", "import"])
def test_an_environments_own_error_ends_with_the_users_line(tmp_path: Path, verb: str) -> None:
    fails = "np.linalg.inv(np.zeros((2, 2)))"
    (tmp_path / "my_world.py").write_text(
        "import gymnasium as gym, numpy as np\n"
        "from gymnasium.envs.classic_control import PendulumEnv\n"
        + (f"{fails}\n" if verb == "import" else "\n")
        + "class Mine(PendulumEnv):\n"
        f"    def {'step' if verb == 'import' else verb}(self, *words, **options):\n"
        f"        {fails}\n"
        "gym.register('Mine-v0', Mine)\n"
    )
    command = "train --env-id Mine-v0 --import my_world --method ann --total-timesteps 300 --run-dir run"
    done = subprocess.run(
        [sys.executable, "-m", "carebn", *command.split()], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    if verb == "step":
        assert lines.pop(0) == "Mine-v0, td3, ann, seed 0: 300 steps, in run"
    assert lines[0].startswith("carebn: ")
    assert "site-packages" not in done.stderr
    assert "Traceback" not in done.stderr
    line = 3 if verb == "import" else 6
    place = f"my_world.py, line {line}, in {'<module>' if verb == 'import' else verb}: {fails}"
    if verb == "step":
        assert len(lines) == 3
        assert f"Mine-v0 raised LinAlgError in {verb} at step" in lines[0]
        assert lines[1].strip() == place
        assert lines[2] == "numpy.linalg.LinAlgError: Singular matrix"
    else:
        assert len(lines) == 1
        assert lines[0].endswith(f"Singular matrix ({place})")

"""A downloaded run brings no code: nothing that its files name is imported without the user's word."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import carebn as package
from carebn.cli import main
from carebn.training import Run, TrainConfig
from carebn.training.environment import import_own
from carebn.training.policy import load

SMALL: dict[str, Any] = {
    "total_timesteps": 40, "learning_starts": 20, "hidden": (8,), "batch_size": 8, "eval_interval": 20,
    "eval_episodes": 2, "checkpoint_interval": 20, "log_interval": 20, "recalibration_batches": 2, "quiet": True,
}  # fmt: skip
WORLD = """
import gymnasium as gym
from gymnasium.envs.classic_control import PendulumEnv
class Same(gym.Wrapper): pass
gym.register('Theirs-v0', PendulumEnv, max_episode_steps=10)
"""
# Leaves a trace whenever and however it is run; the folder is known to the file itself.
EVIL = "import builtins, os\nbuiltins.open(os.path.join(os.path.dirname(__file__), 'EXECUTED'), 'a').write(__file__)\n"
# What Python, our libraries and we ourselves import, sooner or later.
SHADOWS = (
    "numpy", "pathlib", "typing", "tyro", "gymnasium", "torch", "matplotlib", "rich", "safetensors", "mujoco", "json",
    "imageio", "PIL", "multiprocessing", "sitecustomize", "usercustomize", "evil_locator", "nir",
)  # fmt: skip


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose environment and wrapper live in a module, and one of an ANN, both as their owner made them."""
    home = tmp_path_factory.mktemp("theirs")
    (home / "their_world.py").write_text(WORLD)
    sys.path.append(str(home))
    options = {**SMALL, "import_modules": ("their_world",), "wrappers": ("their_world:Same",)}
    for name in ("care-bn", "ann"):
        Run(TrainConfig("Theirs-v0", method=name, run_dir=home / name, **options)).train()
    sys.path.remove(str(home))
    del sys.modules["their_world"], gym.registry["Theirs-v0"]
    return home


@pytest.fixture
def downloaded(theirs: Path, tmp_path: Path) -> Path:
    """That run with code around it, in the directory where the user happens to be."""
    shutil.copytree(theirs / "care-bn", tmp_path, dirs_exist_ok=True)
    shutil.copytree(theirs / "ann", tmp_path / "ann")
    for name in (*SHADOWS, "their_world"):
        (tmp_path / f"{name}.py").write_text(EVIL)
    (tmp_path / "matplotlibrc").write_text("backend: module://evil_locator\n")
    (tmp_path / ".numba_config.yaml").write_text("cache_locator_classes: evil_locator.Klass\ncache_dir: .\n")
    return tmp_path


COMMANDS: tuple[tuple[str, ...], ...] = (
    ("evaluate", "."),
    ("energy", "."),
    ("watch", ".", "--out", "film.gif"),
    ("spikes", "."),
    ("convert", "ann"),
    ("convert", "ann", "--sweep", "5"),
    ("export", ".", "--to", "numpy", "--out", "p.npz"),
    ("export", ".", "--to", "c", "--weights", "int8", "--out", "p.c"),
    ("report", "."),
    ("study", "show", "main", "--runs", "."),
    ("measure", "distributions", ".", "--out", "d.png"),
    ("train", "--run-dir", "."),
    ("train", "--run-dir", ".", "--total-timesteps", "60"),
    ("card", "."),
    ("push", ".", "somebody/theirs", "--folder", "there"),
)
NEED_NO_ENVIRONMENT = {("convert", "ann"), COMMANDS[6], COMMANDS[8], COMMANDS[9], COMMANDS[10]}

CALL = """
import contextlib, io, json, sys
from carebn.cli import main
found = []
for words in json.loads(sys.argv[1]):
    sys.argv = ["carebn", *words]
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as end:
            found.append([words, end.code, out.getvalue(), err.getvalue()])
print(json.dumps(found))
"""


@pytest.mark.slow
def test_nothing_of_it_runs(downloaded: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """As the console script starts: its own folder comes first on the path, not the current one."""
    program = tmp_path_factory.mktemp("bin") / "carebn"
    program.write_text(CALL)
    done = subprocess.run(
        [sys.executable, str(program), json.dumps(COMMANDS)], cwd=downloaded, capture_output=True, text=True
    )
    assert not (downloaded / "EXECUTED").exists()
    assert done.returncode == 0, done.stderr
    for words, code, _, error in json.loads(done.stdout):
        assert "Traceback" not in error
        if tuple(words) in NEED_NO_ENVIRONMENT:
            assert code == 0, (words, error)
        else:
            assert code == 1
            assert "names module their_world" in error, (words, error)
            assert "add --import their_world, or --trust" in error
            assert error.strip().count("\n") == 0


@pytest.mark.slow
def test_nor_by_python_m(downloaded: Path) -> None:
    """``python -m`` puts the current directory first on the path, where nothing of ours is looked for."""
    (downloaded / "sitecustomize.py").unlink()  # the user's own PYTHONPATH may hold one
    done = subprocess.run(
        [sys.executable, "-m", "carebn", "evaluate", "."], cwd=downloaded, capture_output=True, text=True
    )
    assert not (downloaded / "EXECUTED").exists()
    assert "names module their_world" in done.stderr
    assert done.returncode == 1


# --- the word ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def carebn(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], theirs: Path, tmp_path: Path
) -> Callable[..., tuple[int, str]]:
    """The command line in a directory with the run and its module."""
    shutil.copytree(theirs, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def call(*words: str) -> tuple[int, str]:
        sys.modules.pop("their_world", None)
        gym.registry.pop("Theirs-v0", None)
        monkeypatch.setattr(sys, "argv", ["carebn", *words])
        with pytest.raises(SystemExit) as end:
            main()
        return int(end.value.code or 0), capsys.readouterr().err

    return call


def test_the_word_is_given_by_name_or_for_all(carebn: Any) -> None:
    assert "add --import their_world, or --trust" in carebn("evaluate", "care-bn")[1]
    assert carebn("evaluate", "care-bn", "--import", "json")[0] == 1  # another module is not the one
    assert carebn("evaluate", "care-bn", "--episodes", "1", "--import", "their_world") == (0, "")
    assert carebn("evaluate", "care-bn", "--episodes", "1", "--trust") == (0, "")
    assert carebn("evaluate", "care-bn", "--episodes", "1")[0] == 1  # it holds for one command


def test_a_run_of_ones_own_goes_on_with_it(carebn: Any) -> None:
    assert "add --import their_world" in carebn("train", "--run-dir", "ann", "--total-timesteps", "45")[1]
    more = ("train", "--run-dir", "ann", "--quiet", "--total-timesteps")
    assert carebn(*more, "45", "--import", "their_world")[0] == 0
    assert carebn(*more, "50", "--trust")[0] == 0


def test_a_file_cannot_give_the_word(carebn: Any) -> None:
    path = Path("care-bn/config.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"trust": True}))
    Path("care-bn/checksums.json").unlink()
    assert "does not know: 'trust'" in carebn("evaluate", "care-bn")[1]


@pytest.mark.parametrize("change", [{"env_id": "their_world:Theirs-v0"}, {"wrappers": ["their_world:Same"]}])
def test_every_way_to_name_a_module_asks(carebn: Any, change: dict[str, Any]) -> None:
    path = Path("care-bn/config.json")
    named = json.loads(path.read_text()) | {"import_modules": [], "wrappers": [], "env_id": "Pendulum-v1"}
    path.write_text(json.dumps(named | change))
    Path("care-bn/checksums.json").unlink()
    code, said = carebn("evaluate", "care-bn")
    assert code == 1
    assert "names module their_world" in said
    assert "their_world" not in sys.modules


def test_gymnasiums_own_wrappers_need_no_word(tmp_path: Path) -> None:
    wrappers = ("gymnasium.wrappers:FlattenObservation",)
    Run(TrainConfig("Pendulum-v1", method="ann", run_dir=tmp_path, wrappers=wrappers, **SMALL)).train()
    assert load(tmp_path).evaluate(1).lengths == [200]


def test_predicting_needs_no_environment(theirs: Path) -> None:
    policy = package.load(theirs / "care-bn")
    action, _ = policy.predict(np.zeros(3, np.float32))
    assert action.shape == (1,)
    with pytest.raises(ValueError, match="trust=True"):
        policy.evaluate(1)
    assert "Theirs-v0" not in gym.registry


def test_a_run_of_an_earlier_version_asks(theirs: Path, tmp_path: Path) -> None:
    shutil.copytree(theirs / "ann", tmp_path, dirs_exist_ok=True)
    (tmp_path / "spaces.json").unlink()
    with pytest.raises(ValueError, match="add --import their_world"):
        load(tmp_path)


def test_an_earlier_run_of_a_known_environment_opens_as_before(tmp_path: Path) -> None:
    Run(TrainConfig("Pendulum-v1", method="ann", run_dir=tmp_path, **SMALL)).train()
    (tmp_path / "spaces.json").unlink()
    assert load(tmp_path).evaluate(1).lengths == [200]


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"observation": 3, "action": 4}', '{"observation": {"kind": "Box"}, "action": {}}',
     '{"action": {"kind": "Discrete", "n": 2, "start": 0}, "observation": {"kind": "Box", "shape": [1000000000000], '
     '"dtype": "float32", "low": 0, "high": 1}}',
     '{"action": {"kind": "Discrete", "n": 2.5, "start": 0}, "observation": {"kind": "MultiBinary", "shape": [2]}}'],
)  # fmt: skip
def test_damaged_spaces_are_one_sentence(theirs: Path, tmp_path: Path, text: str) -> None:
    shutil.copytree(theirs / "ann", tmp_path, dirs_exist_ok=True)
    (tmp_path / "spaces.json").write_text(text)
    with pytest.raises(ValueError, match=r"spaces\.json") as error:
        load(tmp_path)
    assert "\n" not in str(error.value)


def test_spaces_that_were_changed_are_noticed(theirs: Path, tmp_path: Path) -> None:
    shutil.copytree(theirs / "ann", tmp_path, dirs_exist_ok=True)
    text = (tmp_path / "spaces.json").read_text()
    (tmp_path / "spaces.json").write_text(text.replace("float32", "float64"))
    with pytest.raises(ValueError, match="does not match its checksum"):
        load(tmp_path)


def test_a_module_that_ends_the_program_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "module_that_ends_here.py").write_text("raise SystemExit(3)\n")
    with pytest.raises(ValueError, match=r"cannot import module 'module_that_ends_here' \(--import\): SystemExit: 3"):
        import_own("module_that_ends_here", "--import")

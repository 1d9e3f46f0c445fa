"""A name of the zoo goes where the policy of a run is wanted; a directory here wins, and it is said which was taken."""

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from said import assert_one_sentence

import carebn as package
from carebn.zoo.names import TwoOfOneName, entries, find_run, zoo_directory

NAME = "pendulum-care"
OBSERVATION = np.array([0.01, -0.02, 0.0, 0.03])


@pytest.mark.parametrize(
    "words",
    [
        ("evaluate", NAME, "--episodes", 2),
        ("spikes", NAME),
        ("energy", NAME, "--episodes", 1, "--quiet", "--out", "."),
        ("export", NAME, "--to", "numpy", "--out", "policy.npz", "--observations", 20),
        ("card", NAME),
        ("push", NAME, "somebody/pendulum", "--folder", "pushed"),
    ],
    ids=lambda words: words[0],
)
def test_every_command_takes_it_and_says_so(carebn, zoo, words) -> None:
    said = carebn(*words)
    assert said.code == 0, said.err
    assert said.err == f"from the zoo: {zoo / NAME}\n"  # and no word of a training that might not be finished


@pytest.mark.slow
def test_it_is_filmed(carebn, zoo, monkeypatch) -> None:
    from carebn.show.drawn_environment import working_backend

    if working_backend() is None:
        pytest.skip("MuJoCo cannot draw on this machine: neither EGL nor OSMesa")
    said = carebn("watch", NAME, "--out", "film.gif", "--seconds", 0.2, "--quiet")
    assert said.code == 0, said.err
    assert Path("film.gif").stat().st_size > 1000


def test_python_takes_it_too(zoo, runs, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    seed = package.load(NAME).config.seed
    action, _ = package.load(NAME).predict(OBSERVATION)
    expected, _ = package.load(runs / f"seed{seed}").predict(OBSERVATION)
    np.testing.assert_array_equal(action, expected)


def test_a_directory_here_wins_and_it_is_said(carebn, zoo, runs, tmp_path, monkeypatch) -> None:
    shutil.copytree(runs / "ann", tmp_path / NAME)
    with pytest.warns(TwoOfOneName, match=f"{NAME} is taken to be the directory of that name here; the zoo's is /"):
        said = carebn("evaluate", NAME, "--episodes", 1)
    assert (said.code, said.err) == (0, "")
    with pytest.warns(TwoOfOneName, match="taken to be the directory of that name here"):
        assert package.load(NAME).config.method == "ann"


def test_a_path_is_a_path(zoo, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for path in (f"./{NAME}", f"x/{NAME}", "..", f"../{NAME}", str(zoo / NAME), "Nowhere", "a b", "x" * 100):
        assert find_run(path) == Path(path)


def test_what_is_nowhere_is_told_with_what_there_is(carebn, zoo, tmp_path, monkeypatch) -> None:
    said = carebn("evaluate", "pendulum-car")
    assert_one_sentence(said)
    assert "pendulum-car is not a run directory: there is nothing of that name here, nor in the zoo" in said.err
    assert "the zoo has pendulum-ann, pendulum-care" in said.err
    monkeypatch.setenv("CAREBN_ZOO", str(tmp_path / "none"))
    said = carebn("evaluate", NAME)
    assert_one_sentence(said)
    assert f"CAREBN_ZOO names {tmp_path / 'none'}, which is not a directory" in said.err
    (tmp_path / "none").mkdir()
    assert f"CAREBN_ZOO names {tmp_path / 'none'}, which has no policy in it" in carebn("evaluate", NAME).err


def test_the_zoo_of_this_clone_is_found_from_anywhere(tmp_path, monkeypatch) -> None:
    monkeypatch.delenv("CAREBN_ZOO", raising=False)
    monkeypatch.chdir(tmp_path)
    assert zoo_directory() == Path(__file__).parents[2] / "zoo"
    assert {"double-pendulum-care", "double-pendulum-bn", "double-pendulum-ann"} <= entries().keys()


@pytest.mark.slow
def test_outside_of_a_clone_it_is_said_where_the_zoo_is(tmp_path) -> None:
    """As installed: the package without what lies beside it in a clone."""
    source = Path(package.__file__).parent
    shutil.copytree(source, tmp_path / "lib" / "carebn", ignore=shutil.ignore_patterns("__pycache__"))
    code = "import carebn.zoo.names as n; print(n.__file__); print(n.zoo_directory()); n.find_run('hopper-care')"

    def asked(here: Path) -> subprocess.CompletedProcess[str]:
        environment = {"PYTHONPATH": str(tmp_path / "lib"), "PATH": "/usr/bin:/bin"}
        return subprocess.run([sys.executable, "-c", code], cwd=here, env=environment, capture_output=True, text=True)

    done = asked(tmp_path)
    assert done.stdout.splitlines() == [str(tmp_path / "lib/carebn/zoo/names.py"), "None"]
    assert "the zoo is the directory zoo of a clone of carebn" in done.stderr.splitlines()[-1]
    entry = tmp_path / "clone" / "zoo" / "hopper-care"
    entry.mkdir(parents=True)
    (entry / "config.json").write_text("{}")
    done = asked(tmp_path / "clone")
    assert done.stdout.splitlines()[1] == "zoo"
    assert done.returncode == 0

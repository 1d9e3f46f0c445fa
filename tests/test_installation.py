"""What pip installs: the source distribution, the wheel made from it, and the package without what it depends on."""

import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
from email.parser import Parser
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pytest
import torch

from carebn.deploy import load
from carebn.deploy.folding import fold
from carebn.network import SpikingActor

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
BESIDE = ("README.md", "LICENSE", "MANIFEST.in", "Makefile", "constraints.txt", "pyproject.toml")
ROOMS = ("src/carebn", "tests", "docs", "benchmarks", "zoo")


def built(what, source, to):
    """By the build backend itself, in a process of its own, as pip does it."""
    code = f"import setuptools.build_meta as backend; print(backend.build_{what}({str(to)!r}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=source, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return to / done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def sdist(tmp_path_factory):
    source, to = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    for name in BESIDE:
        shutil.copy(ROOT / name, source / name)
    for name in ROOMS:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    return built("sdist", source, to)


@pytest.fixture(scope="module")
def wheel(sdist, tmp_path_factory):
    """From what the source distribution holds, nothing else."""
    source = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(sdist) as archive:
        archive.extractall(source, filter="data")
    (unpacked,) = source.iterdir()
    return built("wheel", unpacked, sdist.parent)


@pytest.fixture(scope="module")
def lean(wheel, tmp_path_factory):
    """A fresh environment with the wheel and numpy: ``pip install --no-deps``."""
    home = tmp_path_factory.mktemp("lean")
    venv.create(home, with_pip=False)
    python = home / "bin" / "python"
    (packages,) = home.glob("lib/*/site-packages")
    for part in Path(np.__file__).parents[1].glob("numpy*"):
        (packages / part.name).symlink_to(part)
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps", "--no-index", wheel], check=True
    )
    return home / "bin"


def run(*command, **options):
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd="/", timeout=60, **options)


@pytest.mark.slow
def test_the_source_distribution_holds_what_the_source_does(sdist):
    with tarfile.open(sdist) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    files = {str(p.relative_to(ROOT)) for room in ROOMS for p in (ROOT / room).rglob("*") if p.is_file()}
    wanted = {name for name in files if "__pycache__" not in name and not name.endswith((".pyc", ".TXT"))}
    assert set(BESIDE) | wanted <= held
    assert not [name for name in held if name.endswith(".pyc")]


@pytest.mark.slow
def test_the_wheel_holds_the_package_and_its_data(wheel):
    with ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (metadata,) = (name for name in names if name.endswith("METADATA"))
        about = Parser().parsestr(archive.read(metadata).decode())
    assert {f"carebn/study/report/page.{end}" for end in ("css", "html", "js")} | {"carebn/py.typed"} <= names
    assert about["License-Expression"] == "MIT"
    classifiers = about.get_all("Classifier")
    assert "Intended Audience :: Science/Research" in classifiers
    assert "Operating System :: POSIX :: Linux" in classifiers
    assert "torch>=2.6" in about.get_all("Requires-Dist")


@pytest.mark.slow
def test_a_deployed_policy_without_torch(lean, tmp_path):
    torch.manual_seed(0)
    fold(SpikingActor(4, 2, hidden=(16,))).save(tmp_path / "policy.npz")
    obs = np.linspace(-1, 1, 4, dtype=np.float32)
    expected = load(tmp_path / "policy.npz").predict(obs)[0]
    code = """
import sys
import numpy as np
import carebn.deploy
action, _ = carebn.deploy.load(sys.argv[1]).predict(np.linspace(-1, 1, 4, dtype=np.float32))
print(*action)
"""
    done = run(lean / "python", "-c", code, tmp_path / "policy.npz")
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose([float(x) for x in done.stdout.split()], expected, rtol=1e-6)


NEEDS = r"needs packages that are not installed here: torch, .*tyro.*; .*pip install \. in the directory of its source"


@pytest.mark.slow
def test_commands_say_what_they_need(lean):
    assert "usage: carebn COMMAND" in run(lean / "carebn", "--help").stdout
    assert run(lean / "carebn", "--version").stdout.startswith("carebn ")
    for command in ("train", "evaluate", "report"):
        done = run(lean / "carebn", command, "--help")
        assert done.returncode == 1
        assert re.fullmatch(f"carebn: carebn {command} {NEEDS}\n", done.stderr)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["CaReBN", "SpikingActor", "make_neuron", "load"])
def test_names_of_the_package_say_what_they_need(lean, name):
    use = "carebn.load('run')" if name == "load" else f"carebn.{name}"
    done = run(lean / "python", "-c", f"import carebn; dir(carebn); {use}")
    assert re.fullmatch(f"ModuleNotFoundError: carebn.{name} {NEEDS}", done.stderr.splitlines()[-1])
    assert "During handling" not in done.stderr


def test_hints_name_packages_that_exist():
    """The package itself lies on no index; what it names are other people's packages, those of its own extras."""
    known = {re.split(r"[^\w.-]", line)[0] for extra in PROJECT["optional-dependencies"].values() for line in extra}
    hints = [
        (path.name, hint)
        for path in (ROOT / "src").rglob("*.py")
        for hint in re.findall(r"pip install ([\w .'\[\]-]+?)(?:[\"`)]| in the directory)", path.read_text())
    ]
    assert len(hints) >= 6
    for where, hint in hints:
        assert hint == "." or set(hint.split()) <= known, (where, hint)
        assert "carebn" not in hint, (where, hint)

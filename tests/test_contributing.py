"""CONTRIBUTING.md, followed word for word in a copy of the package: its files, its lines, its commands."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from forked import Forked, Warm
from said import assert_one_sentence

TOP = Path(__file__).parent.parent
PAGE = TOP / "CONTRIBUTING.md"
BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.M | re.S)
TOYS = {"normaliser": "centred", "neuron": "tired", "algorithm": "patient"}
# What is added to make a run of the page short enough to be killed, and to leave checkpoints to resume from
SMALL = "--hidden 8 --batch-size 8 --total-timesteps 150 --eval-interval 50 --eval-episodes 1 --checkpoint-interval 30"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PAGE.exists(), reason="the page is in the repository, not in an installed package"),
]


def section(what: str) -> list[tuple[str, str, str]]:
    """(language, title, text) of the blocks under "Add a ..."."""
    text = re.split(r"^## ", PAGE.read_text(), flags=re.M)
    [found] = [part for part in text if re.match(rf"Add an? {what}\n", part)]
    return BLOCK.findall(found)


def follow(blocks: list[tuple[str, str, str]], root: Path) -> None:
    """New files as they stand there; of a diff, each added line after the one before it, or in the place of that."""
    for language, title, text in blocks:
        if language == "python":
            assert not (root / title).exists()
            (root / title).write_text(text)
        elif language == "diff":
            path, before = root / title, ""
            for line in text.splitlines():
                if line.startswith("+"):
                    lines = path.read_text().splitlines()
                    place = lines.index(before[1:])
                    lines[place : place + 1] = [line[1:]] if before.startswith("-") else [before[1:], line[1:]]
                    path.write_text("\n".join(lines) + "\n")
                before = line


class Place:
    """A copy of the package with one thing added, and commands that run there."""

    def __init__(self, what: str, root: Path) -> None:
        self.root, self.blocks = root, section(what)
        # with what was compiled, and with the times by which that is known to be up to date
        shutil.copytree(TOP / "src" / "carebn", root / "src" / "carebn")
        follow(self.blocks, root)
        self.warm = Warm(root / "src", COLUMNS="200")

    def start(self, words: str) -> Forked:
        return self.warm.start(shlex.split(words.removeprefix("carebn ")), self.root)

    def said(self, words: str) -> str:
        said = self.start(words).said()
        assert said.code == 0, f"{words}\n{said.err}"
        return said.out

    def commands(self) -> list[str]:
        return [line for language, _, text in self.blocks if language == "sh" for line in text.splitlines()]

    def contents(self, run: str) -> dict[str, bytes]:
        directory = self.root / run
        return {
            str(path.relative_to(directory)): path.read_bytes()
            for path in sorted(directory.rglob("*"))
            if path.is_file() and path.name != "timing.jsonl"
        }


@pytest.fixture(scope="module", params=list(TOYS))
def place(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    made = Place(request.param, tmp_path_factory.mktemp(request.param))
    yield made
    made.warm.close()


def toy_of(place: Place) -> str:
    return next(name for name in TOYS.values() if any(f"/{name}.py" in title for _, title, _ in place.blocks))


def test_every_command_of_the_page(place: Place) -> None:
    commands = place.commands()
    assert any(line.startswith("carebn train") for line in commands)
    for line in commands:
        if "--to c " in line and shutil.which("cc") is None:
            continue
        place.said(line)
        out = re.search(r"--out (\S+)", line)
        assert out is None or (place.root / out[1]).stat().st_size > 0, line
    if toy_of(place) == "tired":  # what cannot have it refuses it by name
        refused = place.start("export runs/tired --to nir --out tired.nir").said()
        assert_one_sentence(refused)
        assert "Tired" in refused.err
        assert "NIR" in refused.err


def test_it_is_told_of(place: Place) -> None:
    name = toy_of(place)
    told = place.said("methods") if name == "centred" else place.said("train --help")
    assert re.search(rf"\b{name}\b", told)


def test_it_resumes_after_a_kill_to_the_same_bytes(place: Place) -> None:
    [train] = [line for line in place.commands() if line.startswith("carebn train")]
    train = re.sub(r"--(total-timesteps|run-dir) \S+ ?", "", train)
    place.said(f"{train} {SMALL} --run-dir runs/whole")
    again = f"{train} {SMALL} --run-dir runs/again"
    process = place.start(again)
    checkpoints = place.root / "runs" / "again" / "checkpoint"
    while not any(checkpoints.glob("0*")) and process.poll() is None:
        time.sleep(0.005)
    assert process.poll() is None, "it was over before it could be killed"
    process.kill()
    place.said(again)
    assert place.contents("runs/again") == place.contents("runs/whole")


def test_what_the_project_checks_accepts_all_three(tmp_path: Path) -> None:
    """Lint, the order of rooms, the drawings, and the tests that know what there is."""
    for name in ("src", "tests", "docs"):
        shutil.copytree(TOP / name, tmp_path / name)
    for name in ("pyproject.toml", "Makefile", "README.md"):
        shutil.copy(TOP / name, tmp_path)
    for what in TOYS:
        follow(section(what), tmp_path)
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "src"), "OMP_NUM_THREADS": "1"}
    tests = (
        "tests/norm/test_make_norm.py tests/neuron tests/training/test_methods.py tests/test_help.py "
        "tests/test_rooms.py tests/test_drawings.py"
    )
    for words in (
        "docs/draw_rooms.py",
        "-m ruff format --check .",
        "-m ruff check .",
        f'-m pytest -q -n0 -p no:cacheprovider -m "not slow" {tests}',
    ):
        command = [sys.executable, *shlex.split(words)]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, f"{words}\n{done.stdout[-3000:]}{done.stderr[-2000:]}"

"""Every code block in README and site is run, in the order of its page, in a directory of its own.

Budgets are cut by the rule in ``code_blocks.py``. Runs that a page reads but does not make (``RUN``, ``runs/first``)
are copies of a small one that was trained for this. What is not run is parsed, and stands in the tables here with the
reason. A block that none of this knows fails.
"""

import ast
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from code_blocks import (
    PYTHON,
    ROOT,
    SHELL,
    SHOWN,
    Block,
    blocks_in,
    blocks_of,
    commands_of,
    cut_command,
    cut_python,
    pages,
)

from carebn import cli
from carebn.options import parse

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (ROOT / "docs").exists(), reason="the pages are in the repository"),
]

# carebn commands that are parsed by the real command line and not run: page, pattern, reason.
PARSED = (
    ("docs/results.md", r"^train ", "full budgets; tests/study/test_results.py holds each against the plan"),
    ("", r"^study run (?!.*--dry-run)", "whole sweeps, on clusters too; tests/study runs small ones"),
    ("", r"^tune ", "dozens of runs; tests/tuning runs small ones"),
    ("", r"^push (?!.*--folder)", "uploads; tests/zoo/test_push.py uploads to a server of its own"),
    ("", r"^zoo add ", "writes into the zoo; tests/zoo adds entries"),
    ("", r"^measure cost", "trains with every normaliser for a minute; tests/measure measures a few steps"),
    ("", r"^report .*--format (pdf|png)", "draws every study; tests/study/test_report_command.py draws a few"),
    ("", r"--device cuda", "needs a graphics card"),
    ("", r"--vector async", "processes of their own; tests/training/test_vector.py runs them"),
    ("", r"--track\b", "needs an account at Weights & Biases"),
)
# Other programs: why they are not run here. What can be checked of them is checked below.
OTHERS = {
    "make": "its targets are the project's own tests, benchmarks and pictures; each must exist",
    "pip": "installs; its extras must exist",
    "python": "an example; the file must exist, tests/examples and tests/deploy run them",
    "pytest": "the tests themselves; the directory must exist",
    "source": "of the shell",
    "export": "of the shell",
    "cd": "of the shell",
    "git": "needs the network",
    "hf": "needs the network",
    "apt-get": "installs",
    "ray": "starts a cluster; make ray-test does",
    "pre-commit": "changes the repository's hooks",
    "tensorboard": "a server that waits for a browser",
}
# Sections that another test follows word for word, in a copy of the package.
FOLLOWED = {
    "CONTRIBUTING.md": ("Add a normaliser", "Add a neuron", "Add an algorithm"),
}
PLACEHOLDERS = {"SEED": "0", "OWNER/NAME": "owner/name"}
NO_SCREEN = "neither EGL nor OSMesa works"  # the one sentence of a machine that cannot draw


class World:
    """A directory as a reader's clone would be, with runs for whoever asks for them."""

    def __init__(self, directory: Path, prepared: Path, said: Callable[[list[str]], tuple[int, str]]) -> None:
        self.directory, self.prepared, self.said = directory, prepared, said
        for name in ("results", "examples"):  # copies: commands may write there
            shutil.copytree(ROOT / name, directory / name)
        (directory / "tuning/hopper").mkdir(parents=True)
        (directory / "tuning/hopper/best.json").write_text('{"actor_learning_rate": 0.001}')
        self.names: dict[str, Any] = {"__name__": "__main__"}

    def resolved(self, word: str, command: str) -> str:
        """``RUN`` as a directory, and whichever run is to be read is there."""
        if word in PLACEHOLDERS:
            return PLACEHOLDERS[word]
        kind = "ann" if command == "convert" or "converted" in word else "first"
        word = re.sub(r"^(RUN|NAME)\b", f"runs/{kind}", word)
        run = re.match(r"runs/[^/]+$|runs/[^/]+(?=/converted|/command\.txt|/versions\.json)|runs$", word)
        if run and command != "train":
            place = self.directory / (run[0] if run[0] != "runs" else "runs/first")
            if not place.exists() and not (run[0] == "runs" and (self.directory / "runs").exists()):
                shutil.copytree(self.prepared / kind, place)
        return word

    def run_shell(self, block: Block) -> None:
        for words in commands_of(block.text):
            while re.fullmatch(r"[A-Z_]+=.*", words[0]):
                words = words[1:]
            name = Path(words[0]).name
            if words[:3] == ["python", "-m", "carebn"]:
                name, words = "carebn", words[2:]
            if name == "carebn":
                self.run_carebn(block, words[1:])
            elif name in ("cat", "ls", "head"):
                subprocess.run([self.resolved(word, name) for word in words], check=True, capture_output=True)
            else:
                assert name in OTHERS, f"{block}: nobody runs {' '.join(words)!r}"
                check_other(name, words[1:])

    def run_carebn(self, block: Block, words: list[str]) -> None:
        words = [self.resolved(word, words[0]) for word in words]
        line = " ".join(words)
        if any(block.page.startswith(page) and re.search(pattern, line) for page, pattern, _ in PARSED):
            if words[0] in ("train", "tune") or "--help" not in words:
                parse(import_module(f"carebn.commands.{words[0]}"), f"carebn {words[0]}", words[1:])
            return
        cut = words if "--help" in words or len(words) == 1 else cut_command(words)
        code, told = self.said(cut)
        assert code == 0 or NO_SCREEN in told, f"{block}: carebn {line}\nrun as: carebn {' '.join(cut)}\n{told[-2000:]}"

    def run_python(self, block: Block) -> None:
        if block.title:
            (self.directory / block.title).write_text(block.text)
        text = block.text.replace('"RUN', '"runs/ann')
        for run in re.findall(r'load\("(runs/[^"]+)"', text):
            if text[: text.index(f'"{run}"')].endswith("load("):  # else it is made before that
                self.resolved(run, "load")
        exec(compile(cut_python(text, str(block)), str(block), "exec"), self.names)


def check_other(name: str, words: list[str]) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    if name == "make":
        targets = re.findall(r"^([a-z][\w -]*):", (ROOT / "Makefile").read_text(), re.M)
        assert {word for word in words if "=" not in word} <= set(" ".join(targets).split()), words
    elif name == "pip":
        named = [extra for word in words for extra in re.findall(r"^\.\[(.+)\]$", word)]
        assert {extra for several in named for extra in several.split(",")} <= set(extras), words
    elif name in ("python", "pytest"):
        files = [word for word in words if re.match(r"(examples|tests|benchmarks|docs)/", word)]
        assert files or words[0] == "-m", words
        assert all((ROOT / word).exists() for word in files), words


def missing_modules(block: Block) -> set[str]:
    """What the block imports and this machine does not have."""
    imported = {
        name.partition(".")[0]
        for node in ast.walk(ast.parse(block.text))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names])
    }
    return {name for name in imported if importlib.util.find_spec(name) is None and not Path(f"{name}.py").exists()}


def quoted(block: Block) -> bool:
    """Whether all of it stands in one file of the source, which the page explains; lines may be broken elsewhere."""
    wanted = {ast.dump(node) for node in ast.parse(block.text).body}
    for path in (ROOT / "src").rglob("*.py"):
        text = path.read_text()
        if block.text.split("\n")[0] in text and wanted <= {ast.dump(node) for node in ast.parse(text).body}:
            return True
    return False


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two small trained runs, one of them with what ``carebn convert`` makes of it."""
    directory = tmp_path_factory.mktemp("prepared")
    common = ["train", "--env-id", "InvertedDoublePendulum-v4", "--total-timesteps", "90", "--eval-interval", "30"]
    before = Path.cwd()
    os.chdir(directory)
    try:
        for run, method in (("first", "care-bn"), ("ann", "ann")):
            assert called(cut_command([*common, "--method", method, "--run-dir", run])) == 0
        for more in ([], ["--rule", "max", "--residual", "crpi", "--alpha", "0.3"]):
            assert called(cut_command(["convert", "ann", "--time-steps", "100", *more])) == 0
    finally:
        os.chdir(before)
    return directory


def called(words: list[str]) -> int:
    """The command itself, in this process."""
    argv, sys.argv = sys.argv, ["carebn", *words]
    environment = os.environ.copy()  # the command sets some variables for all that it starts
    try:
        with pytest.raises(SystemExit) as end:
            cli.main()
    finally:
        sys.argv = argv
        os.environ.clear()
        os.environ.update(environment)
    return end.value.code if isinstance(end.value.code, int) else 0


@pytest.fixture
def world(
    tmp_path: Path, prepared: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[World]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        sys, "path", list(sys.path)
    )  # a command looks for modules in the current directory, from then on
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.setenv("CAREBN_ZOO", str(ROOT / "zoo"))
    modules = set(sys.modules)

    def said(words: list[str]) -> tuple[int, str]:
        code = called(words)
        return code, "".join(capfd.readouterr())

    yield World(tmp_path, prepared, said)
    for name in set(sys.modules) - modules:
        if not (getattr(sys.modules[name], "__file__", None) or "/").startswith(str(tmp_path)):
            continue
        del sys.modules[name]  # a page's own module, which another page may name too


def run_block(world: World, block: Block) -> set[str]:
    """What it needs and is not installed here."""
    if block.heading in FOLLOWED.get(block.page, ()):
        assert f'"{block.heading.split()[-1]}"' in (ROOT / "tests/test_contributing.py").read_text()
    elif block.language in SHELL:
        world.run_shell(block)
    elif block.language in PYTHON:
        missing = missing_modules(block)
        if missing or quoted(block):
            return missing
        world.run_python(block)
    else:
        assert block.language in SHOWN, f"{block}: nobody knows what to do with {block.language!r}"
        assert not re.search(r"^(\$ |(\.venv/bin/)?carebn [a-z])", block.text, re.M), f"{block}: commands are not text"
        if block.language == "json":
            json.loads(block.text)
        elif block.language == "toml":
            tomllib.loads(block.text)
    return set()


@pytest.mark.parametrize("page", [page for page in pages() if blocks_of(page)])
def test_every_block_of_the_page(page: str, world: World) -> None:
    missing = set[str]()
    for block in blocks_of(page):
        missing |= run_block(world, block)
    if missing:
        pytest.skip(f"not installed: {', '.join(sorted(missing))}; all else on the page was run")


def test_a_block_that_nobody_runs_fails(world: World) -> None:
    for text, wrong in (
        ("```sh\nfrobnicate --now\n```\n", AssertionError),
        ("```sh\ncarebn evaluate runs/first --no-such-option 3\n```\n", AssertionError),
        ("```sh\ncarebn study run main --no-such-option\n```\n", SystemExit),
        ("```sh\nmake no-such-target\n```\n", AssertionError),
        ("```sh\npip install '.[no-such-extra]'\n```\n", AssertionError),
        ("```ruby\nputs 1\n```\n", AssertionError),
        ("```text\ncarebn evaluate runs/first\n```\n", AssertionError),
        ("```python\nimport carebn\ncarebn.no_such_name\n```\n", AttributeError),
    ):
        [block] = blocks_in(text, "page.md")
        with pytest.raises(wrong):
            run_block(world, block)


def test_the_tables_have_nothing_that_no_page_needs() -> None:
    lines = [
        (page, " ".join(words))
        for page in pages()
        for block in blocks_of(page)
        if block.language in SHELL
        for words in commands_of(block.text)
    ]
    for start, pattern, _ in PARSED[:4]:
        assert any(page.startswith(start) and re.search(pattern, line.partition("carebn ")[2]) for page, line in lines)

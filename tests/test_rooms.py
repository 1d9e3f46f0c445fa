"""The rooms of the package import in one direction only, in the order that pyproject.toml gives them."""

import shutil
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PYPROJECT = ROOT / "pyproject.toml"
cli = pytest.importorskip("importlinter.cli", reason="import-linter is not installed; pip install '.[dev]' brings it")


def broken(configuration: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What the linter says; empty: nothing is wrong."""
    before = list(sys.path)
    try:
        code = cli.lint_imports(config_filename=str(configuration), no_cache=True, no_logo=True)
    finally:
        sys.path[:] = before  # to which it adds the current directory
    said = capsys.readouterr().out
    return "" if code == 0 else said


def test_rooms_import_in_one_direction(capsys: pytest.CaptureFixture[str]) -> None:
    said = broken(PYPROJECT, capsys)
    assert not said, said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "line", "told"),
    [
        ("training/files.py", "from carebn.measure import wasserstein", "is not allowed to import carebn.measure"),
        (
            "study/cells.py",
            "def f():\n    from carebn.commands import train",
            "is not allowed to import carebn.commands",
        ),
        ("training/lock.py", "from carebn.training import loop", "No cycles are allowed in carebn.training"),
        ("attic.py", "", "carebn.attic"),
    ],
    ids=["upwards", "inside of a function", "a cycle in a room", "a room without a place"],
)
def test_what_goes_the_other_way_is_found(
    file: str, line: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a copy of the sources, under another name: the linter looks where Python finds the package."""
    rooms = tmp_path / "copied"
    shutil.copytree(ROOT / "src" / "carebn", rooms, ignore=shutil.ignore_patterns("__pycache__"))
    with open(rooms / file, "a") as source:
        source.write(f"\n{line}\n")
    for path in rooms.rglob("*.py"):
        path.write_text(path.read_text().replace("carebn", "copied"))
    (tmp_path / "pyproject.toml").write_text(PYPROJECT.read_text().replace("carebn", "copied"))
    monkeypatch.syspath_prepend(str(tmp_path))
    assert told.replace("carebn", "copied") in " ".join(broken(tmp_path / "pyproject.toml", capsys).split())

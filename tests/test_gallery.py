"""The stories of the gallery run, conclude what holds, and name no number that they do not show."""

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

GALLERY = Path(__file__).parent.parent / "docs" / "gallery"
nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed; '.[dev]' brings it")
pytest.importorskip("nbclient", reason="nbclient, which runs notebooks, is not installed; '.[dev]' brings it")
pytest.importorskip("ipykernel", reason="ipykernel, which runs notebooks, is not installed; '.[dev]' brings it")
pytestmark = pytest.mark.skipif(not GALLERY.exists(), reason="the gallery is in the repository only")

STORIES = ["from-training-to-a-chip", "inside-an-agent", "statistics-right-and-wrong"]
NUMBER = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?")


def shown(notebook: Any) -> str:
    """Code, and what it printed."""
    told = []
    for cell in notebook.cells:
        if cell.cell_type == "code":
            told.append(cell.source)
            for output in cell.outputs:
                told.append(output.get("text", "") or output.get("data", {}).get("text/plain", ""))
    return "\n".join(told)


def unfounded(notebook: Any) -> set[str]:
    """Numbers in the text that neither the code nor its outputs have."""
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    named, known = ({found.replace(",", "") for found in NUMBER.findall(x)} for x in (text, shown(notebook)))
    return named - known


def test_all_stories_are_tested_and_in_the_index() -> None:
    assert sorted(path.stem for path in GALLERY.glob("*.ipynb")) == STORIES
    index = (GALLERY / "index.md").read_text()
    assert all(f"({name}.ipynb)" in index for name in STORIES)


@pytest.mark.parametrize("name", STORIES)
def test_a_story_is_saved_with_its_outputs_and_small(name: str) -> None:
    path = GALLERY / f"{name}.ipynb"
    assert path.stat().st_size < 400_000
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert "/tmp/" not in shown(notebook)
    kinds = {kind for cell in notebook.cells for output in cell.get("outputs", []) for kind in output.get("data", {})}
    assert "image/png" in kinds
    assert not unfounded(notebook)
    assert "assert" in notebook.cells[-1].source  # what it concludes


def test_a_number_out_of_nowhere_is_found() -> None:
    cells = [nbformat.v4.new_markdown_cell("of 42 runs, 3.5 times"), nbformat.v4.new_code_cell("x = 42")]
    assert unfounded(nbformat.v4.new_notebook(cells=cells)) == {"3.5"}


@pytest.mark.slow
@pytest.mark.parametrize("name", STORIES)
def test_a_story_runs_and_what_it_says_holds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    spec = importlib.util.spec_from_file_location("run_gallery", GALLERY / "run.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert not unfounded(module.executed(GALLERY / f"{name}.ipynb"))  # its last cell asserts what the text concludes

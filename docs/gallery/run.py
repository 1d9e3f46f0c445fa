"""Runs the notebooks of this directory and saves them with their outputs: ``python docs/gallery/run.py [NAME ...]``."""

import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).parent


def executed(path: Path) -> Any:
    """The notebook with fresh outputs; what it writes into its working directory goes away."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(notebook, timeout=600, record_timing=False, resources={"metadata": {"path": folder}}).execute()
    return notebook


if __name__ == "__main__":
    for name in sys.argv[1:] or sorted(path.stem for path in HERE.glob("*.ipynb")):
        file = HERE / f"{name}.ipynb"
        notebook = executed(file)
        nbformat.write(notebook, file)
        print(f"{file.name}: {file.stat().st_size / 1000:.0f} kB")

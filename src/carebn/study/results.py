"""docs/results.md with its figures, the report page beside them, and the results' part of a README and of the
algorithms' pages, all in one go."""

import os
from collections.abc import Sequence
from pathlib import Path

from carebn.reading import read_file
from carebn.study.evidence.measured import read_measured
from carebn.study.evidence.runs import read_runs
from carebn.study.report.gallery import render_gallery
from carebn.study.report.page import render_page
from carebn.study.report.results import render_headline, render_results
from carebn.study.report.svg import curves_svg
from carebn.study.views.explorer import explore
from carebn.study.views.results import view_results
from carebn.study.views.studies import view_studies
from carebn.training.files import write_atomically

PAGE = "page.html"
BEGIN, END = "<!-- results: written by make results -->", "<!-- end of results -->"


def make_results(
    roots: Sequence[Path], out: Path, readme: Path | None = None, algorithms: Path | None = None
) -> tuple[dict[Path, bytes], list[str]]:
    """Every file by its path, nothing written yet, and what was found wrong, a sentence each. Figures and page lie in
    a directory beside ``out`` that has its name."""
    runs = read_runs(roots, episodes=True, measures=True)
    measured = read_measured(roots)
    if not runs.records:
        kind = "no readable run" if runs.problems else "no run"
        where = ", ".join(map(str, roots))
        raise ValueError(f"there is {kind} in {where}; make one with carebn train or carebn study run")
    results = view_results(runs, measured)
    place = out.with_suffix("")
    files = {place / f"{one.task.file}.svg": curves_svg(one.task.title, one.curves) for one in results.tasks}
    views, absent = view_studies(runs.records, measured)
    files[place / PAGE] = render_page(runs, explore(runs.records), views, absent)
    files[out] = render_results(results, place.name)
    if readme is not None:
        named = out.relative_to(readme.parent) if out.is_relative_to(readme.parent) else out
        text = render_headline(results, named.with_suffix("").as_posix(), named.as_posix())
        files[readme] = _between_marks(readme, text)
    for path in _pages(algorithms) if algorithms is not None else ():
        named = Path(os.path.relpath(out, path.parent))
        text = render_gallery(results, path.stem, named.with_suffix("").as_posix(), named.as_posix())
        files[path] = _between_marks(path, text)
    problems = [*runs.problems, *runs.gaps(), *measured.problems]
    return {path: text.encode() for path, text in files.items()}, problems


def _pages(algorithms: Path) -> list[Path]:
    """Those that have a place for results; an algorithm's page is called after it."""
    found = [page for page in sorted(algorithms.glob("*.md")) if BEGIN.encode() in read_file(page)]
    if not found:
        raise ValueError(
            f"{algorithms} has no page with a place for results; put the marks {BEGIN} and {END} into a page that is "
            f"called after an algorithm, such as td3.md"
        )
    return found


def _between_marks(path: Path, text: str) -> str:
    try:
        whole = read_file(path).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} cannot be read as text; name a file with the marks {BEGIN} and {END}") from error
    before, begin, rest = whole.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{path} has no place for the results; put the marks {BEGIN} and {END} where they shall stand")
    return f"{before}{BEGIN}\n{text}\n{END}{after}"


def write_results(files: dict[Path, bytes]) -> None:
    """Each whole or not at all."""
    for path, data in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, data)

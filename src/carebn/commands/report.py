"""``carebn report``."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from carebn.errors import unknown_name

# By format: where the report goes unless one says otherwise.
OUTPUTS = {"html": "report.html", "md": "report.md", "png": "report-figures", "pdf": "report-figures"}


@dataclass(frozen=True)
class Config:
    """Make a report of run directories: learning curves, the paper's tables and figures, how each run was made."""

    runs: tyro.conf.Positional[tuple[Path, ...]] = (Path("runs"),)
    """Run directories, or directories that hold them at any depth."""
    out: Path | None = None
    """The file to write; for png and pdf the directory, which gets a file for each figure. Default: report.html,
    report.md or report-figures."""
    format: Annotated[str, tyro.conf.arg(metavar="html|md|png|pdf")] = "html"
    """html: one page that needs no network. md: plain tables. png, pdf: figures for print."""
    scale: float | None = None
    """Beside the paper count only runs at this part of its budget. Default: all, if each cell has only one budget."""


def run(config: Config) -> int:
    if config.format not in OUTPUTS:
        raise ValueError(unknown_name("format", config.format, OUTPUTS))
    from carebn.study.cells import Budget
    from carebn.study.evidence.measured import read_measured
    from carebn.study.evidence.runs import read_runs
    from carebn.study.views.explorer import explore
    from carebn.study.views.studies import view_studies

    if config.scale is not None:
        Budget.scaled(config.scale)  # a mistake is told before anything is read
    runs = read_runs(config.runs, episodes=True, measures=True)
    measured = read_measured(config.runs)
    for problem in (*runs.problems, *runs.gaps(), *measured.problems):
        print(f"carebn: {problem}", file=sys.stderr)
    if not runs.records:
        where = ", ".join(map(str, config.runs))
        kind = "no readable run" if runs.problems else "no run"
        raise ValueError(f"there is {kind} in {where}; make one with carebn train or carebn study run")
    views, absent = view_studies(runs.records, measured, config.scale)
    environments = explore(runs.records)
    out = config.out if config.out is not None else Path(OUTPUTS[config.format])
    try:
        if config.format in ("png", "pdf"):
            from carebn.study.report.figures import write_figures

            out.mkdir(parents=True, exist_ok=True)
            figures = write_figures(environments, views, out, config.format)
            if not figures:
                raise ValueError("there is nothing to draw yet: no run has an evaluation")
            print(f"{len(figures)} figure{'s' * (len(figures) != 1)}: {out}")
            return 0
        from carebn.study.report.markdown import render_markdown
        from carebn.study.report.page import render_page
        from carebn.training.files import write_atomically

        render = render_page if config.format == "html" else render_markdown
        text = render(runs, environments, views, absent)
        out.parent.mkdir(parents=True, exist_ok=True)
        if out.is_dir():
            raise IsADirectoryError(None, "it is a directory")
        write_atomically(out, text.encode())
    except OSError as error:
        raise OSError(f"cannot write {out} ({error.strerror}); choose another --out") from error
    print(f"report: {out}")
    return 0

"""``carebn study``."""

import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro
from rich.table import Table

from carebn.errors import unknown_name
from carebn.limits import check_memory, check_most
from carebn.machine import cores
from carebn.paper import FIGURES, OWN, STUDIES, TABLES, find_study
from carebn.paper.facts import IDP
from carebn.paper.records import Study
from carebn.show.terminal import print_table, terminal

if TYPE_CHECKING:  # loads torch, which listing studies and --help do without
    from carebn.study.sweep.jobs import Sweep

EVERY = "all"
MOST_SEEDS = 1000  # per cell; the paper has five
RUN_MEMORY = 300 * 2**20  # bytes that a run takes at least
FIRST_RUNS = 5  # of a plan that are named, and the last
DRAWN = {  # by the kind of a study: what its figure shows, of which text has no more than numbers
    "curves": "learning curves",
    "normalised-curves": "normalised learning curves",
    "exploration": "returns of training episodes",
    "wasserstein": "Wasserstein distances",
    "distributions": "input distributions",
    "sparsity": "return against spikes per decision",
}


@dataclass(frozen=True)
class ListStudies:
    """Name every table and figure of the paper."""


@dataclass(frozen=True)
class RunStudy:
    """Make all runs of a table or figure that are not there yet. The same command again goes on where it stopped."""

    names: tyro.conf.Positional[tuple[str, ...]]
    """Studies by name, or by their place in the paper (table-1, figure-7); all for the whole paper."""
    scale: float = 1.0
    """Part of the paper's budget: 0.1 is a tenth of its steps. The budget is part of a run's name."""
    seeds: int | None = None
    """Seeds per cell, from 0. Default: the paper's number."""
    envs: tuple[str, ...] = ()
    """Only these environments."""
    on: Literal["local", "ray", "slurm"] = "local"
    """Processes on this machine, a Ray cluster, or Slurm (through submitit)."""
    workers: int | None = None
    """Runs at a time. Default: as many as cores; on a cluster as many as fit."""
    address: str | None = None
    """Of a Ray cluster (HOST:PORT or auto; default: one is started here). For Slurm, local tries it without Slurm."""
    slurm: tuple[str, ...] = ()
    """Options for Slurm jobs as NAME=VALUE: partition=long mem_gb=8 timeout_min=600."""
    runs: Path = Path("runs")
    """Where run directories are kept; studies that share a cell share its run."""
    dry_run: bool = False
    """Only say what would be run, what exists, and how long it would take."""
    every_run: bool = False
    """Name every run in the dry run, not only the first few and the last."""


@dataclass(frozen=True)
class ShowStudy:
    """Print a table beside the paper's numbers, from the runs that are there."""

    names: tyro.conf.Positional[tuple[str, ...]]
    """Studies by name or place in the paper; all for every one."""
    runs: Path = Path("runs")
    """Where run directories are kept."""
    scale: float | None = None
    """Count only runs at this part of the paper's budget. Default: all, if each cell has only one budget."""
    seeds: int | None = None
    """Count only this many seeds. Default: all."""
    envs: tuple[str, ...] = ()
    """Only these environments."""
    score: Literal["max", "last", "final", "area"] = "max"
    """A run's score: its best evaluation (as the paper), the mean of its last ten, the last one, or the area under its
    learning curve (its mean height)."""


@dataclass(frozen=True)
class WriteResults:
    """Write what the runs say about each claim of the paper: verdicts, curves, every seed, and what is missing."""

    runs: tyro.conf.Positional[tuple[Path, ...]] = (Path("results"),)
    """Run directories, or directories that hold them at any depth."""
    out: Path = Path("results.md")
    """The Markdown file. Its figures and the report page go into a directory beside it that has its name."""
    readme: Path | None = None
    """A file in which the part between the marks for results is written anew: a curve, a number, a sentence."""
    algorithms: Path | None = None
    """A directory of pages named after algorithms (td3.md, ...): there that part shows the curves of their runs."""


Config = (
    Annotated[ListStudies, tyro.conf.subcommand("list")]
    | Annotated[RunStudy, tyro.conf.subcommand("run")]
    | Annotated[ShowStudy, tyro.conf.subcommand("show")]
    | Annotated[WriteResults, tyro.conf.subcommand("results")]
)


def run(config: ListStudies | RunStudy | ShowStudy | WriteResults) -> int:
    if isinstance(config, ListStudies):
        return _list()
    if isinstance(config, RunStudy):
        return _run(config)
    if isinstance(config, WriteResults):
        return _results(config)
    return _show(config)


# --- list -------------------------------------------------------------------------------------------------------------


def _list() -> int:
    console = terminal()
    for heading, studies in (("Tables", TABLES), ("Figures", FIGURES), ("Our own, not in the paper", OWN)):
        table = Table(title=heading, title_justify="left", box=None, pad_edge=False)
        for column in ("name", "in the paper", "what it shows"):
            table.add_column(column, no_wrap=column != "what it shows")
        table.add_column("runs", justify="right")
        for study in studies:
            table.add_row(study.name, study.where, study.title, str(len(list(study.cells()))))
        print_table(console, table)
        console.print()
    total = len({cell for study in STUDIES.values() for cell in study.cells()})
    console.print(f"{len(TABLES)} tables and {len(FIGURES)} figures, {total} runs in all: shared ones are made once.")
    console.print("carebn study run NAME --scale 0.01 --dry-run tells what a hundredth of the paper's budget takes.")
    return 0


# --- run --------------------------------------------------------------------------------------------------------------


def _run(config: RunStudy) -> int:
    _check_counts(config.seeds, config.workers)
    studies = _studies("run", config.names)
    envs = _environments(studies, config.envs)
    from carebn.study.cells import Budget, config_of, lacks_method
    from carebn.study.sweep.executors import EXECUTORS
    from carebn.study.sweep.jobs import Sweep
    from carebn.study.sweep.place import Place

    budget = Budget.scaled(config.scale)
    configs, missing = [], {}
    for study in studies:
        for cell in study.cells(envs, config.seeds):
            why = lacks_method(cell.variant)
            if why:
                missing[cell.variant.method] = why
            else:
                configs.append(config_of(cell, budget))
    for why in missing.values():
        _tell(f"{why}: its runs are left out")
    for study in studies:
        if study.command:
            _tell(f"{study.name} is made of more than runs: {study.command}")
    if config.on == "local":
        at_once = min(config.workers or 1, len(configs))
        check_memory(f"training {at_once:,} runs at a time", at_once * RUN_MEMORY, "choose fewer --workers")
    if config.dry_run:
        _plan(Sweep(configs, config.runs), config)
        return 0
    from carebn.show.outputs import writable_directory
    from carebn.study.sweep.display import SweepDisplay, summary

    writable_directory(config.runs, "--runs")
    place = Place(config.on, config.workers, config.address, config.slurm, config.runs)
    with SweepDisplay() as display:
        sweep = Sweep(configs, config.runs, display)
        if sweep.open_jobs:
            executor = EXECUTORS[place.on](place)
            for number in (signal.SIGINT, signal.SIGTERM):  # even if a shell that put us in the background ignores it
                signal.signal(number, signal.default_int_handler)
            try:
                sweep.run(executor)
            finally:
                executor.close()
    for job in sweep.failed():
        _tell(f"{job.name} failed: {job.message}")
    print(f"{summary(sweep.jobs)}, at {budget} each, in {config.runs}")
    if sweep.stopping:
        print("stopped: the same command goes on from here")
        return 130
    names = " ".join(config.names)
    print(f"next: carebn study show {names} --scale {config.scale:g}" + _runs_option(config.runs))
    return 1 if missing or any(job.state != "done" for job in sweep.jobs) else 0


def _plan(sweep: "Sweep", config: RunStudy) -> None:
    from carebn.study.evidence.runs import read_runs
    from carebn.study.sweep.estimate import estimate
    from carebn.study.sweep.jobs import DONE, newest_checkpoint
    from carebn.training.progress import spelled

    console = terminal()
    table = Table(box=None, pad_edge=False)
    table.add_column("run", no_wrap=True)
    table.add_column("steps", justify="right")
    table.add_column("there", justify="right")
    jobs = sweep.jobs
    left_out = 0 if config.every_run else max(0, len(jobs) - FIRST_RUNS - 1)
    for job in [*jobs[:FIRST_RUNS], *jobs[FIRST_RUNS + left_out :]]:
        step = newest_checkpoint(job.directory)
        there = "complete" if job.state == DONE else f"{step / job.total:.0%}" if step else "–"
        table.add_row(job.name, f"{job.total:,}", there)
        if left_out and job is jobs[FIRST_RUNS - 1]:
            table.add_row(f"… {left_out} more (--every-run names them)")
    print_table(console, table)
    left = [job for job in sweep.jobs if job.state != DONE]
    console.print(f"{len(sweep.jobs)} runs, {len(sweep.jobs) - len(left)} complete, {len(left)} to do")
    if left:
        found = estimate(sweep.jobs, read_runs([config.runs] if config.runs.is_dir() else []).records)
        workers = min(config.workers or cores(), len(left))
        console.print(
            f"about {spelled(found.seconds)} of one core, {spelled(found.seconds / workers)} with {workers} at a time: "
            f"{found.rate:.0f} steps/s, from {' and '.join(found.sources)}"
        )


# --- show -------------------------------------------------------------------------------------------------------------


def _show(config: ShowStudy) -> int:
    _check_counts(config.seeds, None)
    studies = _studies("show", config.names)
    envs = _environments(studies, config.envs)
    from carebn.study.cells import Budget
    from carebn.study.evidence.gather import gather
    from carebn.study.evidence.measured import read_measured
    from carebn.study.evidence.runs import read_runs
    from carebn.study.report.terminal import tables_of
    from carebn.study.views.studies import view_of

    if config.scale is not None:
        Budget.scaled(config.scale)  # a mistake is told before anything is read
    found = read_runs([config.runs] if config.runs.is_dir() else [])
    measured = read_measured([config.runs])
    for problem in (*found.problems, *measured.problems):
        _tell(problem)
    if not found.records and len(studies) > 1:  # once, not for each of them
        names = " ".join(config.names)
        _tell(f"{config.runs} holds no runs; make them with: carebn study run {names}" + _runs_option(config.runs))
    console = terminal()
    for i, study in enumerate(studies):
        gathered = gather(study, found.records, config.scale, envs, config.seeds, measured)
        view = view_of(gathered, config.score)
        problems = list(view.problems)
        budgets = gathered.budgets()
        if len(budgets) > 1:
            which = " and ".join(map(str, budgets))
            problems.append(f"the runs of {study.name} were made at several budgets ({which}): choose with --scale")
        there = any(cell.complete or cell.unfinished or cell.mixed for cell in gathered.cells.values())
        if not there and any(study.cells()) and (found.records or len(studies) == 1):
            at = "" if config.scale is None else f" at --scale {config.scale:g}"
            problems.append(
                f"{config.runs} holds no run of {study.name}{at}; make them with: carebn study run {study.name}"
                + ("" if config.scale is None else f" --scale {config.scale:g}")
                + _runs_option(config.runs)
            )
        if (study.kind == "cost" or (study.kind == "distributions" and there)) and not view.labels:
            problems.append(f"{config.runs} holds no measurement of {study.name}; make it with: {study.command}")
        for problem in problems:
            _tell(problem)
        if i:
            console.print()
        for table in tables_of(view):
            print_table(console, table)
        if study.note:
            console.print(study.note)
        if study.kind in DRAWN:
            console.print(f"The figure itself ({DRAWN[study.kind]}) is drawn by: carebn report {config.runs}")
    return 0


# --- results ----------------------------------------------------------------------------------------------------------


def _results(config: WriteResults) -> int:
    from carebn.study.results import make_results, write_results

    if not config.out.suffix:
        raise ValueError(f"--out {config.out} has no ending; name the Markdown file, as in --out results.md")
    files, problems = make_results(config.runs, config.out, config.readme, config.algorithms)
    for problem in problems:
        _tell(problem)
    try:
        write_results(files)
    except OSError as error:
        raise OSError(
            f"cannot write {error.filename or config.out} ({error.strerror}); choose another --out"
        ) from error
    print(f"results: {config.out}, and {len(files) - 1} files beside it")
    return 0


# --- what they share --------------------------------------------------------------------------------------------------


def _studies(command: str, names: tuple[str, ...]) -> list[Study]:
    if not names:
        raise ValueError(f"name a study, as in: carebn study {command} main; carebn study list names them all")
    if EVERY in names:
        return list(STUDIES.values())
    return list(dict.fromkeys(find_study(name) for name in names))


def _environments(studies: list[Study], names: tuple[str, ...]) -> tuple[str, ...] | None:
    """Full ids; ``Hopper`` is enough for ``Hopper-v4``, and ``IDP`` is the double pendulum, as in the paper."""
    if not names:
        return None
    known = {env for study in studies for env in study.envs}
    by_name = {env: env for env in known} | {env.removeprefix("ALE/").split("-v")[0]: env for env in known}
    if IDP in known:
        by_name["IDP"] = IDP
    for name in names:
        if name not in by_name:
            raise ValueError(unknown_name("environment of this study", name, known))
    return tuple(by_name[name] for name in names)


def _check_counts(seeds: int | None, workers: int | None) -> None:
    for name, value in (("seeds", seeds), ("workers", workers)):
        if value is not None and value < 1:
            raise ValueError(f"--{name} must be at least 1, got {value}")
    if seeds is not None:
        check_most("--seeds", seeds, MOST_SEEDS)


def _runs_option(runs: Path) -> str:
    return "" if runs == Path("runs") else f" --runs {runs}"


def _tell(sentence: str) -> None:
    print(f"carebn: {sentence}", file=sys.stderr)

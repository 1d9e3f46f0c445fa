"""The records that a study is made of: plain data, no computation."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

# How a study is shown: by this the text tables, figures and report choose their renderer.
Kind = Literal[
    "returns",  # a table: max average return per environment, and APG
    "curves",  # learning curves, a panel per environment
    "normalised-curves",  # one curve per row over all environments, relative to the baseline
    "relative-variance",  # one number per row: the spread of final returns over seeds
    "normalised-maximum",  # one number per row: max average return relative to the baseline
    "exploration",  # returns of training episodes, a panel per environment
    "wasserstein",  # distance of estimated to true distribution, a panel per layer
    "distributions",  # histograms of layer inputs with the estimated Gaussians
    "cost",  # time and memory of training
    "energy",  # energy per decision, per environment
    "sparsity",  # return against spikes per decision, a panel per environment
]


@dataclass(frozen=True)
class Variant:
    """What learns: all of a cell but its environment, seed and budget."""

    method: str
    algo: str = "td3"
    neuron: str = "default"  # as the method or the algorithm has it
    time_steps: int | None = None  # None: as the configuration has it
    target_rate: float | None = None  # of the hidden neurons; None: no price for spikes


@dataclass(frozen=True)
class Published:
    """A number as the paper prints it."""

    mean: float
    std: float | None = None


@dataclass(frozen=True)
class Row:
    label: str
    variant: Variant
    published: tuple[Published, ...] = ()  # one per column of the study; empty where the paper only draws
    summary: float | None = None  # the last column of a table: APG in per cent, or the average; or a figure's number
    envs: tuple[str, ...] | None = None  # None: those of the study


@dataclass(frozen=True)
class Cell:
    """One training run, but for its budget."""

    variant: Variant
    env_id: str
    seed: int


@dataclass(frozen=True)
class Study:
    name: str
    where: str  # in the paper
    title: str
    kind: Kind
    envs: tuple[str, ...]
    rows: tuple[Row, ...]
    baseline: Row | None = None  # what APG and normalised scores are relative to; its runs belong to the study
    seeds: int = 5
    summary_name: str = ""  # heading of the last column
    columns: tuple[str, ...] = ()  # of the published numbers; empty: the environments
    decimals: int = 0  # of the published numbers
    measure: tuple[str, ...] = ()  # what its runs measure besides returns
    command: str = ""  # what makes its numbers once its runs are there; empty: the runs have them
    note: str = ""  # what a reader should know about the published numbers

    def row(self, label: str) -> Row:
        return next(row for row in self.rows if row.label == label)

    def envs_of(self, row: Row) -> tuple[str, ...]:
        return self.envs if row.envs is None else row.envs

    def published(self, row: Row) -> dict[str, Published]:
        """The paper's numbers by environment; none where it only draws."""
        return dict(zip(self.envs_of(row), row.published, strict=True)) if row.published else {}

    def all_rows(self) -> tuple[Row, ...]:
        """The rows, and first the baseline if it is not one of them."""
        extra = self.baseline is not None and all(row.variant != self.baseline.variant for row in self.rows)
        return (self.baseline, *self.rows) if extra and self.baseline is not None else self.rows

    @property
    def made_by(self) -> str:
        """The command or commands that it takes."""
        run = "" if self.kind == "cost" else f"carebn study run {self.name}"
        return ", then ".join(filter(None, (run, self.command)))

    def cells(self, envs: tuple[str, ...] | None = None, seeds: int | None = None) -> Iterator[Cell]:
        """Every run that the study needs, once; seed by seed, so that a sweep cut short has whole rows."""
        if self.kind == "cost":  # measured without runs
            return
        seen: set[Cell] = set()
        for seed in range(self.seeds if seeds is None else seeds):
            for row in self.all_rows():
                for env_id in self.envs_of(row):
                    cell = Cell(row.variant, env_id, seed)
                    if cell not in seen and (envs is None or env_id in envs):
                        seen.add(cell)
                        yield cell

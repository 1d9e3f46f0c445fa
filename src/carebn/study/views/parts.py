"""What a study comes to, free of how it is shown: numbers, tables, bars and panels of lines."""

import math
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from carebn.paper.facts import STEPS as PAPER_STEPS
from carebn.paper.records import Published, Row, Study
from carebn.study.evidence.measured import Distribution, Firing
from carebn.study.numbers import per_cent, spelled
from carebn.study.views.comparison import Comparison
from carebn.study.views.curves import Curve


@dataclass(frozen=True)
class Number:
    """One number of a table: ours, the paper's, and how they differ."""

    ours: tuple[float, float] | None  # mean and standard deviation over seeds
    seeds: int
    unfinished: int  # runs
    published: Published | None
    done: float = 0.0  # of the unfinished run that came furthest, the share of its steps
    mixed: bool = False  # runs at several budgets, none of which is counted
    outside: bool = False  # the paper has no such number

    @property
    def difference(self) -> float | None:
        """Ours minus the paper's, in per cent of the paper's."""
        if self.ours is None or self.published is None or self.published.mean == 0:
            return None
        return (self.ours[0] - self.published.mean) / abs(self.published.mean) * 100

    @property
    def difference_told(self) -> str:
        return "" if self.difference is None else per_cent(self.difference)

    @property
    def mark(self) -> str:
        """ "above" or "below" where the two differ by more than their standard deviations together: √(s² + s²). One
        seed has no standard deviation, and some numbers of the paper are without: there is no telling then."""
        if self.ours is None or self.published is None or self.published.std is None or self.seeds < 2:
            return ""
        if self.difference_told == per_cent(0):
            return ""
        gap = self.ours[0] - self.published.mean
        if abs(gap) <= math.hypot(self.ours[1], self.published.std):
            return ""
        return "above" if gap > 0 else "below"


@dataclass(frozen=True)
class TableRow:
    row: Row
    numbers: list[Number]
    summaries: list[tuple[float | None, float | None]]  # ours and the paper's, one pair per summary column
    conversion_steps: int | None = None  # of a final policy that was converted: it has no maximum over training
    beside_baseline: Comparison | None = None  # over the environments together; None: there is no baseline
    relative_variance: float | None = None  # in per cent, of the final returns

    @property
    def label(self) -> str:
        steps = self.conversion_steps
        return self.row.label if steps is None else f"{self.row.label} (ours: final policy, T = {steps})"


@dataclass(frozen=True)
class Table:
    columns: list[str]
    summary_columns: list[str]
    rows: list[TableRow]
    decimals: int

    def begun(self) -> tuple[list[int], list[int]]:
        """Places of the rows and of the columns in which there is a run of ours, be it unfinished."""
        there = [[number.ours is not None or number.unfinished > 0 for number in row.numbers] for row in self.rows]
        columns = [place for place in range(len(self.columns)) if any(row[place] for row in there)]
        return [place for place, row in enumerate(there) if any(row)], columns


@dataclass(frozen=True)
class Bar:
    row: Row
    value: float | None
    interval: tuple[float, float] | None
    published: float | None

    @property
    def label(self) -> str:
        return self.row.label


@dataclass(frozen=True)
class Panel:
    title: str
    x_label: str
    y_label: str
    lines: list[tuple[str, Curve]]
    missing: list[str]
    over_time: bool = True  # so that the end of a line is a result


@dataclass(frozen=True)
class FiringRow:
    """One run: what its last policy returned, and how often its neurons fired."""

    env: str
    label: str
    seed: int
    final: float
    firing: Firing

    def cells(self, populations: list[str]) -> list[str]:
        rates = [self.firing.rates.get(name) for name in populations]
        told = ["" if rate is None else f"{spelled(100 * rate, 1)} %" for rate in rates]
        return [f"{self.seed}", spelled(self.final), spelled(self.firing.spikes, 0), *told]


@dataclass(frozen=True)
class View:
    """All numbers of a study. What the paper prints (``shows``) is one of table, bars and panels; a figure of returns
    has a table of them as well."""

    study: Study
    envs: tuple[str, ...]  # those of the study that were asked for
    score: str  # of the table: a name in SCORES
    made_at: str  # at which budget, in words
    made: str  # at which budget and from how many seeds, or by which measurement
    budgets: list[int]  # environment steps of the runs that count
    problems: list[str]
    table: Table | None = None
    bars: list[Bar] = field(default_factory=list)
    bar_label: str = ""
    panels: list[Panel] = field(default_factory=list)
    distributions: dict[Row, Distribution] = field(default_factory=dict)
    firing: list[FiringRow] = field(default_factory=list)

    @property
    def shows(self) -> Literal["table", "bars", "panels"]:
        """How the paper has it."""
        if self.study.kind in ("returns", "cost", "energy"):
            return "table"
        return "bars" if self.study.kind in ("relative-variance", "normalised-maximum") else "panels"

    @property
    def populations(self) -> list[str]:
        """Of all rows of ``firing``, from the encoder on."""
        return list(dict.fromkeys(name for row in self.firing for name in row.firing.rates))

    @property
    def reduced(self) -> bool:
        """Whether runs were shorter than the paper's, so that numbers cannot be expected to agree."""
        return any(budget < PAPER_STEPS for budget in self.budgets)

    @property
    def labels(self) -> list[str]:
        """The rows with a number or a line of ours."""
        if self.shows == "table" and self.table is not None:
            return [row.label for row in self.table.rows if any(number.ours is not None for number in row.numbers)]
        if self.shows == "bars":
            return [bar.label for bar in self.bars if bar.value is not None]
        return list(dict.fromkeys(label for panel in self.panels for label, _ in panel.lines))


class Absent(NamedTuple):
    """A study of which there is nothing to show."""

    study: Study
    why: str  # where there are runs of it all the same

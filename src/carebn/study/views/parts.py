"""What a study comes to, free of how it is drawn: numbers, tables, bars and panels of lines."""

import math
from dataclasses import dataclass, field
from typing import NamedTuple

from carebn.paper.facts import STEPS as PAPER_STEPS
from carebn.paper.records import Published, Study
from carebn.study.numbers import per_cent
from carebn.study.views.curves import Curve


@dataclass(frozen=True)
class Number:
    """One number of a table: ours, the paper's, and how they differ."""

    ours: tuple[float, float] | None  # mean and standard deviation over seeds
    seeds: int
    unfinished: int
    published: Published | None

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
    label: str
    numbers: list[Number]
    summaries: list[tuple[float | None, float | None]]  # ours and the paper's, one pair per summary column


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
    label: str
    value: float | None
    interval: tuple[float, float] | None
    published: float | None


@dataclass(frozen=True)
class Panel:
    title: str
    x_label: str
    y_label: str
    lines: list[tuple[str, Curve]]
    missing: list[str]
    over_time: bool = True  # so that the end of a line is a result


@dataclass(frozen=True)
class View:
    study: Study
    made: str  # at which budget, and from how many seeds
    budgets: list[int]  # environment steps of the runs that count
    problems: list[str]
    table: Table | None = None
    bars: list[Bar] = field(default_factory=list)
    bar_label: str = ""
    panels: list[Panel] = field(default_factory=list)

    @property
    def reduced(self) -> bool:
        """Whether runs were shorter than the paper's, so that numbers cannot be expected to agree."""
        return any(budget < PAPER_STEPS for budget in self.budgets)

    @property
    def labels(self) -> list[str]:
        """The rows with a number or a line of ours."""
        if self.table is not None:
            return [row.label for row in self.table.rows if any(number.ours is not None for number in row.numbers)]
        if self.bars:
            return [bar.label for bar in self.bars if bar.value is not None]
        return list(dict.fromkeys(label for panel in self.panels for label, _ in panel.lines))


class Absent(NamedTuple):
    """A study of which there is nothing to show."""

    study: Study
    why: str  # where there are runs of it all the same

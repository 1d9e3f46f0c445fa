"""Tables for a terminal of any width, a file or a pipe: a name or a number is never cut."""

from collections.abc import Iterable
from copy import copy
from dataclasses import replace
from io import StringIO

from rich.console import Console
from rich.table import Table

FILE_WIDTH = 500  # a file or a pipe has no edge at which a line would have to break
MEASURE = Console(width=10_000, file=StringIO())  # tells how wide something is; nothing is printed on it


def terminal() -> Console:
    """Where a command prints its tables; names of runs are no markup."""
    console = Console(highlight=False, markup=False)
    return console if console.is_terminal else Console(highlight=False, markup=False, width=FILE_WIDTH)


def print_table(console: Console, table: Table) -> None:
    """The table, or where it is too wide several below each other. Each of them names its rows: by the first column,
    and all others that come before one with a heading.

    Columns that may wrap give way first. What is wider than the terminal even so is left to the terminal to break.
    """
    names = next((place for place, column in enumerate(table.columns) if column.header), 0)
    for i, part in enumerate(_parts(table, console.width, max(1, names))):
        if i:
            part.title = None
        width = max(console.width, _narrowest(part))
        with console.capture() as lines:
            console.print(part, width=width, crop=False)
        print("\n".join(line.rstrip() for line in lines.get().splitlines()))


def _parts(table: Table, width: int, names: int) -> list[Table]:
    parts: list[list[int]] = [[]]
    for column in range(names, len(table.columns)):
        if parts[-1] and _narrowest(_only(table, [*range(names), *parts[-1], column])) > width:
            parts.append([])
        parts[-1].append(column)
    return [_only(table, [*range(names), *part]) for part in parts]


def _only(table: Table, columns: Iterable[int]) -> Table:
    """Some of the columns; those that do not wrap keep room for all they hold."""
    part = copy(table)
    part.columns = []
    for place, column in enumerate(table.columns[i] for i in columns):
        cells = [column.header, *column.cells]
        room = max(MEASURE.measure(cell).maximum for cell in cells) if column.no_wrap else column.min_width
        part.columns.append(replace(column, _index=place, min_width=room))
    return part


def _narrowest(table: Table) -> int:
    """How wide it is when every column that may wrap has its words below each other."""
    return MEASURE.measure(table).minimum

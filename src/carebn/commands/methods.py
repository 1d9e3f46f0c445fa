"""``carebn methods``."""

from dataclasses import dataclass
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.table import Table

from carebn.paper.facts import MUJOCO
from carebn.show.terminal import print_table, terminal
from carebn.training.environment import import_own
from carebn.training.methods import all_methods, find_method


@dataclass(frozen=True)
class Config:
    """List the methods that can be trained: a line each, or all about one."""

    name: tyro.conf.Positional[str | None] = None
    """A method, to see everything about it."""
    import_modules: Annotated[tuple[str, ...], tyro.conf.arg(name="import")] = ()
    """Python modules to import first, which register normalisers of your own."""


def _words(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


FEW = 4  # differences that a line can name
NARROW = 120  # columns; in fewer, a line has room for what learns and its scores


def _table(width: int) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("method", no_wrap=True)
    for title in ("what learns", "gain in the paper"):
        table.add_column(title)
    if width >= NARROW:
        table.add_column("differs by")
    for name, method in all_methods().items():
        differences = method.differences()
        told = ", ".join(f"{key} {_words(value)}" for key, value in differences.items())
        if len(differences) > FEW:
            told = f"{len(differences)} options, see carebn methods {name}"
        scores = (", " if width >= NARROW else "\n").join(score.short() for score in method.scores)
        table.add_row(*(name, method.summary, scores or "–", told or "–")[: len(table.columns)])
    return table


def _show(name: str, console: Console) -> None:
    method = find_method(name)
    console.print(f"{name}: {method.summary} ({method.source})")
    for key, value in method.differences().items():
        console.print(f"  {key} = {_words(value)}")
    if method.algorithms:
        console.print(f"  with --algo {', '.join(method.algorithms)}")
    for score in method.scores:
        console.print(f"published: {score.short()} ({score.where})")
        for task, value in zip(MUJOCO, score.returns, strict=False):
            console.print(f"  {task} {value}")


def run(config: Config) -> int:
    console = terminal()
    for module in config.import_modules:
        import_own(module, "--import")
    if config.name is not None:
        _show(config.name, console)
        return 0
    print_table(console, _table(console.width))
    console.print("\ngain: average over five MuJoCo tasks with TD3, against the ANN.")
    console.print("carebn methods NAME tells all about one.")
    return 0

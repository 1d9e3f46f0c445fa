"""What people see of a sweep, of a few runs and of a thousand."""

import time
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from sweep_cases import tiny

from carebn.study.sweep.display import SweepDisplay
from carebn.study.sweep.jobs import DONE, FAILED, RUNNING, WAITING, Job


def jobs(*states: tuple[str, int]) -> list[Job]:
    made: list[Job] = []
    for state, count in states:
        for _ in range(count):
            name = f"InvertedDoublePendulum-v4__td3__care-bn__clif__s{len(made)}__0123abcd"
            made.append(Job(tiny(), Path("nowhere") / name, state, step=7))
    return made


def seen(many: list[Job], width: int, height: int, elapsed: float = 0.0) -> list[str]:
    display = SweepDisplay()
    display._began = time.monotonic() - elapsed
    console = Console(file=StringIO(), width=width, height=height)
    display.console = console
    console.print(display._table(many))
    console.print(display._summary(many))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    return str(text).splitlines()


@pytest.mark.parametrize(("width", "height"), [(80, 24), (100, 24), (160, 50), (80, 12)])
def test_a_thousand_runs_fit_and_show_those_at_work(width: int, height: int) -> None:
    lines = seen(jobs((DONE, 300), (FAILED, 1), (RUNNING, 2), (WAITING, 697)), width, height, elapsed=602.0)
    assert len(lines) <= height
    assert all(len(line) <= width for line in lines)
    text = " ".join(lines)
    assert text.count("running") == 3  # two runs, and the count
    assert "waiting" not in text.partition("1,000 runs:")[0]
    assert "1,000 runs: 300 done, 2 running, 1 failed, 697 waiting; about 23 min left" in " ".join(text.split())


def test_more_at_work_than_lines_are_counted() -> None:
    lines = seen(jobs((RUNNING, 64), (WAITING, 900)), 160, 30)
    assert sum("running" in line for line in lines) == 22 + 1
    assert any("and 42 more at work or failed" in line for line in lines)
    assert not any("left" in line for line in lines)  # nothing has ended yet


def test_a_few_runs_are_all_shown() -> None:
    lines = seen(jobs((DONE, 2), (RUNNING, 1), (WAITING, 3)), 160, 30)
    assert sum(f"s{number}__" in line for number in range(6) for line in lines) == 6


def test_runs_that_were_complete_before_tell_nothing_of_the_time() -> None:
    many = jobs((DONE, 50), (RUNNING, 1), (WAITING, 3))
    for job in many[:50]:
        job.found = True
    assert not any("left" in line for line in seen(many, 160, 30, elapsed=100.0))


@pytest.mark.slow
def test_where_there_is_no_terminal_the_end_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    display = SweepDisplay()
    for _ in range(3):
        display.show(jobs((DONE, 1000)))
    assert capsys.readouterr().err.count("1,000 runs: 1,000 done") == 1

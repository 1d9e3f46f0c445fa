"""Names and numbers of every table are whole in a terminal of any width, in a file and in a pipe."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios

import pytest
import torch
from rich.console import Console
from rich.table import Table

from carebn.measure.energy import Count, counterpart
from carebn.measure.energy_report import table as energy_table
from carebn.measure.spikes import Decision, record
from carebn.network import SpikingActor
from carebn.paper import STUDIES
from carebn.show.terminal import print_table
from carebn.study.evidence.gather import gather
from carebn.study.numbers import with_spread
from carebn.study.report.terminal import tables_of
from carebn.study.views.studies import view_of
from carebn.training.methods import METHODS

WIDTHS = (80, 100, 120, 200)


def printed(capfd: pytest.CaptureFixture[str], table: Table, width: int) -> str:
    capfd.readouterr()
    print_table(Console(width=width, force_terminal=True, no_color=True), table)
    text = re.sub(r"\x1b\[[0-9;]*m", "", capfd.readouterr().out)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    return text


@pytest.mark.parametrize("width", WIDTHS)
def test_every_table_of_the_paper(width: int, capfd: pytest.CaptureFixture[str]) -> None:
    for study in STUDIES.values():
        text = "".join(printed(capfd, table, width) for table in tables_of(view_of(gather(study, []))))
        for row in study.rows:
            assert row.label in text
            assert all(with_spread(number.mean, number.std, study.decimals) in text for number in row.published)


@pytest.mark.parametrize("width", WIDTHS)
def test_the_bill_of_a_decision(width: int, capfd: pytest.CaptureFixture[str]) -> None:
    network = SpikingActor(11, 3, time_steps=5, low=-1, high=1).eval()
    count = Count(network)
    output, populations = record(network, torch.randn(4, 11))
    count.add(Decision(output.numpy(), output.numpy(), populations))
    text = printed(capfd, energy_table("title", count.bill(), counterpart(network), "Hopper-v4"), width)
    for words in ("layer 2 → output population", "output population → decoder", "256 → 256", "1,728.00", "138,240"):
        assert words in text


def test_a_table_in_parts_names_its_rows_in_each(capfd: pytest.CaptureFixture[str]) -> None:
    table = Table("", "", *("thousand millions" for _ in range(6)), title="title")
    for column in table.columns:
        column.no_wrap = True
    table.add_row("name", "ours", *(f"{i}00,000,000,000" for i in range(6)))
    lines = printed(capfd, table, 80).splitlines()
    rows = [line.split("│")[1:-1] for line in lines if line.startswith("│")]
    assert len(rows) == 2
    assert all([cell.strip() for cell in row[:2]] == ["name", "ours"] for row in rows)
    assert [cell.strip()[0] for row in rows for cell in row[2:]] == list("012345")
    assert sum("title" in line for line in lines) == 1


def in_a_terminal(width: int, *words: str) -> str:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
    env = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")} | {"TERM": "xterm"}
    process = subprocess.Popen(
        [sys.executable, "-m", "carebn.cli", *words], stdin=theirs, stdout=theirs, stderr=theirs, env=env
    )
    os.close(theirs)
    said = b""
    while True:
        try:
            more = os.read(ours, 65536)
        except OSError:  # how Linux says that nobody writes any more
            break
        if not more:
            break
        said += more
    os.close(ours)
    assert process.wait() == 0
    return re.sub(r"\x1b\[[0-9;]*m", "", said.decode()).replace("\r\n", "\n")


@pytest.mark.slow
@pytest.mark.parametrize("width", [80, 150])
def test_methods_in_a_real_terminal(width: int) -> None:
    text = in_a_terminal(width, "methods")
    lines = text.splitlines()
    assert [line.split()[0] for line in lines if line[:1].strip()][1 : 1 + len(METHODS)] == list(METHODS)
    assert max(map(len, lines)) <= width
    assert "…" not in text
    assert "clif -6.66 %" in text
    assert len(lines) < 45  # a screen: most need a line, some two or three
    assert ("intralayer intra" in text) == (width == 150)  # in a narrow one there is no room for it

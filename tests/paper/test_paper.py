"""The paper as data: complete, consistent with itself, and every cell a configuration that trains."""

import subprocess
import sys
from pathlib import Path

import pytest

from carebn.paper import FIGURES, STUDIES, TABLES, find_study
from carebn.paper.facts import IDP, MUJOCO
from carebn.paper.records import Published, Row, Study
from carebn.paper.tables import MAIN, TIME_STEPS
from carebn.study.evidence.statistics import performance_gain

RETURN_TABLES = [study for study in TABLES if study.kind == "returns"]
ROWS = [pytest.param(study, row, id=f"{study.name}/{row.label}") for study in RETURN_TABLES for row in study.rows]


def test_every_table_and_figure_is_there_once() -> None:
    tables = [study.where for study in TABLES]
    assert tables == [f"Table {n}" for n in (1, *range(10, 22))]
    figures = {study.where.split()[1] for study in FIGURES}
    assert figures == {"1", "3", "4", "5", "6", "7", "9", "10", "11", "12"}
    assert len(STUDIES) == len(TABLES) + len(FIGURES) == 26


def test_every_row_has_a_number_for_every_column() -> None:
    for study in TABLES:
        columns = study.columns or study.envs
        for row in study.rows:
            assert len(row.published) == len(columns), (study.name, row.label)
        assert len({row.label for row in study.rows}) == len(study.rows)


def printed() -> dict[str, list[tuple[str, list[Published]]]]:
    """The rows of every table as they stand in the paper's source, whoever typed them here."""
    tables: dict[str, list[tuple[str, list[Published]]]] = {}
    for line in (Path(__file__).parent / "printed.txt").read_text().splitlines():
        label, bar, numbers = line.partition(" | ")
        if bar:
            row = [Published(*map(float, word.split("±"))) for word in numbers.split()]
            tables[list(tables)[-1]].append((label, row))
        elif label.startswith("Table"):
            tables[label] = []
    return tables


@pytest.mark.parametrize("study", TABLES, ids=lambda study: study.name)
def test_every_number_is_the_papers(study: Study) -> None:
    rows = printed()[study.where]
    ours = [[*row.published, *([] if row.summary is None else [Published(row.summary)])] for row in study.rows]
    if study.kind == "cost":  # printed across: a row for time, one for memory
        ours = [list(column) for column in zip(*ours, strict=True)]
    assert ours == [numbers for _, numbers in rows]
    if study in (MAIN, STUDIES["lif-normalisers"], STUDIES["energy"]):
        assert [row.label for row in study.rows] == [label.removesuffix(" (TD3)") for label, _ in rows]


def bounds(row: Row, baseline: Row) -> tuple[float, float]:
    """The least and largest gain (%) that agrees with returns rounded to whole numbers, as they are printed."""
    ends = []
    for sign in (-1, 1):
        ratios = [
            (p.mean + sign * 0.5) / (b.mean - sign * 0.5 * (row is not baseline))
            for p, b in zip(row.published, baseline.published, strict=True)
        ]
        ends.append((sum(ratios) / len(ratios) - 1) * 100)
    return ends[0], ends[1]


@pytest.mark.parametrize(("study", "row"), ROWS)
def test_the_gain_of_the_published_returns_is_the_published_gain(study: Study, row: Row) -> None:
    """To the last digit that rounding of the printed returns leaves open: 0.02 of a per cent at most."""
    assert study.baseline is not None
    assert row.summary is not None
    means = [
        {env: p.mean for env, p in zip(study.envs, r.published, strict=True)} for r in (row, study.baseline)
    ]  # fmt: skip
    gain = performance_gain(means[0], means[1], study.envs)
    low, high = bounds(row, study.baseline)
    assert high - low < 0.1
    assert low - 0.005 <= row.summary <= high + 0.005
    assert gain == pytest.approx(row.summary, abs=0.011)


def test_the_headline_and_what_is_left_of_it_without_the_pendulum() -> None:
    ours, ann = (
        {env: p.mean for env, p in zip(MUJOCO, MAIN.row(label).published, strict=True)} for label in ("CaRe-BN", "ANN")
    )
    assert performance_gain(ours, ann, MUJOCO) == pytest.approx(5.9, abs=0.01)
    assert performance_gain(ours, ann, MUJOCO, without=(IDP,)) == pytest.approx(1.2, abs=0.05)


def test_the_energy_of_the_ann_follows_from_its_layers() -> None:
    """12.5 pJ per operation, two per multiply-accumulate, 256 and 256 hidden units."""
    sizes = {IDP: (11, 1), "Ant-v4": (27, 8), "HalfCheetah-v4": (17, 6), "Hopper-v4": (11, 3), "Walker2d-v4": (17, 6)}
    energy = STUDIES["energy"]
    for env, number in zip(energy.envs, energy.row("ANN").published, strict=True):
        inputs, outputs = sizes[env]
        products = inputs * 256 + 256 * 256 + 256 * outputs
        assert number == Published(pytest.approx(products * 2 * 12.5e-3, abs=0.005))
    for row in energy.rows:
        average = sum(p.mean for p in row.published) / 5
        assert average == pytest.approx(row.summary, abs=0.005)


def test_shared_cells_are_the_same_cell() -> None:
    main = set(MAIN.cells())
    assert {c for c in TIME_STEPS.cells() if c.variant == TIME_STEPS.row("T = 5").variant} <= main
    assert set(STUDIES["clif-td3"].cells()) <= main
    assert set(STUDIES["ann-td3-curves"].cells()) == set(STUDIES["ann-td3"].cells())
    every = [cell for study in STUDIES.values() for cell in study.cells()]
    assert len(set(every)) < len(every) / 2


def test_cells_come_once_and_can_be_narrowed() -> None:
    cells = list(STUDIES["exploration"].cells(envs=(IDP, "Hopper-v4"), seeds=2))
    assert len(cells) == len(set(cells)) == 2 * 2 * 2
    assert {cell.env_id for cell in cells} == {IDP, "Hopper-v4"}
    ablation = set(STUDIES["ablation"].cells(seeds=1))
    assert len(ablation) == 5 * 5  # its four rows, and the baseline that they are relative to
    assert not any(
        cell.variant.algo == "ddpg" and cell.env_id == "Ant-v4" for s in STUDIES.values() for cell in s.cells()
    )


@pytest.mark.parametrize("name", ["main", "Table 1", "table-1", "TABLE_1"])
def test_a_study_is_found_by_name_or_place(name: str) -> None:
    assert find_study(name) is MAIN


def test_an_unknown_study_is_told_with_the_nearest_one() -> None:
    with pytest.raises(ValueError, match="unknown study 'wassertein': did you mean 'wasserstein'"):
        find_study("wassertein")


def test_the_data_needs_no_torch() -> None:
    code = "import sys, carebn.paper, carebn.study.evidence.statistics; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0

"""Our own study: its runs are told from others', and its figure has returns over spikes."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from carebn.paper import OWN, STUDIES, find_study
from carebn.paper.own import SPARSITY
from carebn.paper.records import Cell
from carebn.study.cells import Budget, belongs, config_of
from carebn.study.evidence.gather import CellRuns, Gathered
from carebn.study.evidence.measured import Firing, firing_of
from carebn.study.report.figures import study_figure
from carebn.study.report.terminal import tables_of
from carebn.study.views.studies import view_of
from carebn.training.files import sha256


def test_it_is_ours_and_not_the_papers() -> None:
    assert find_study("sparsity") is SPARSITY
    assert SPARSITY in OWN
    assert "sparsity" not in STUDIES
    assert SPARSITY.where == "not in the paper"
    assert len(list(SPARSITY.cells())) == 5 * (2 * 4 + 1)


def test_its_runs_are_told_apart() -> None:
    free, *targets = SPARSITY.rows
    budget = Budget.scaled(0.1)
    configs = {row: config_of(Cell(row.variant, "Hopper-v4", 0), budget).as_json() for row in SPARSITY.rows}
    for row, config in configs.items():
        assert [other for other in SPARSITY.rows if belongs(config, other.variant, "Hopper-v4")] == [row]
    assert "target_rate" not in configs[free]
    assert [configs[row]["target_rate"] for row in targets] == [[0.2], [0.1], [0.05], [0.08]]


def test_spikes_are_read_from_what_was_counted(tmp_path: Path) -> None:
    run: Any = SimpleNamespace(directory=tmp_path)
    assert firing_of(run) is None
    (tmp_path / "policy.safetensors").write_bytes(b"policy")
    network = {
        "synapses": [{"name": "encoder → layer 1", "sender_spikes": 10.5, "sender_rate": 0.2},
                     {"name": "layer 1 → output population", "sender_spikes": 4.0, "sender_rate": 0.08},
                     {"name": "output population → itself", "sender_spikes": 2.0, "sender_rate": 0.4}],
        "overhead": [{"name": "membranes"},
                     {"name": "output population → decoder", "sender_spikes": 3.0, "sender_rate": 0.5}],
    }  # fmt: skip
    (tmp_path / "energy.json").write_text(json.dumps({"policy": sha256(b"policy"), "network": network}))
    assert firing_of(run) == Firing(17.5, {"encoder": 0.2, "layer 1": 0.08, "output population": 0.5})
    (tmp_path / "energy.json").write_text(json.dumps({"policy": sha256(b"policy"), "network": {}}))
    with pytest.raises(ValueError, match="make it anew"):
        firing_of(run)


def _counted(seed: int, spikes: float, final: float) -> tuple[Any, Firing]:
    run = SimpleNamespace(seed=seed, returns=[0.0, final])
    return run, Firing(spikes, {"encoder": 0.176, "layer 1": spikes / 10_000})


def _gathered() -> Gathered:
    free, _, b, c, _ = SPARSITY.rows
    firing = {
        (free, "Hopper-v4"): [_counted(1, 1000.0, 3200.0), _counted(0, 900.0, 3000.0)],
        (b, "Hopper-v4"): [_counted(0, 300.0, 2500.0)],
        (c, "Hopper-v4"): [_counted(0, 200.0, 900.0)],
    }
    cells = {(row, env): CellRuns() for row in SPARSITY.rows for env in SPARSITY.envs}
    return Gathered(SPARSITY, SPARSITY.envs, cells, [], firing=firing)


def test_its_figure() -> None:
    free, a, b, c, _ = SPARSITY.rows
    view = view_of(_gathered())
    (panel,) = view.panels
    assert (panel.title, panel.x_label, panel.y_label) == ("Hopper-v4", "spikes per decision", "final return")
    assert panel.missing == [a.label]
    joined, *dots = panel.lines
    assert joined[1].x == [200.0, 300.0, 950.0]
    assert joined[1].mean == [900.0, 2500.0, 3100.0]
    assert [(label, curve.x) for label, curve in dots] == [
        (free.label, [950.0]),
        (b.label, [300.0]),
        (c.label, [200.0]),
    ]
    assert len(study_figure(view).axes[0].lines) == 4


def test_every_run_is_in_its_table() -> None:
    view = view_of(_gathered())
    assert view.populations == ["encoder", "layer 1"]
    assert [row.cells(view.populations) for row in view.firing][:3] == [
        ["0", "3000", "900", "17.6 %", "9.0 %"],
        ["1", "3200", "1000", "17.6 %", "10.0 %"],
        ["0", "2500", "300", "17.6 %", "3.0 %"],
    ]
    _, table = tables_of(view)
    assert table.row_count == 4
    assert [column.header for column in table.columns] == [
        "",
        "",
        "seed",
        "final return",
        "spikes",
        "encoder",
        "layer 1",
    ]

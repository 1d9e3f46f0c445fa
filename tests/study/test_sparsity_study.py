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
from carebn.study.evidence.measured import spikes_of
from carebn.study.report.figures import study_figure
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
    assert spikes_of(run) is None
    (tmp_path / "policy.safetensors").write_bytes(b"policy")
    network = {
        "synapses": [{"name": "encoder → layer 1", "sender_spikes": 10.5}, {"name": "layer 1 → output population",
                     "sender_spikes": 4.0}, {"name": "output population → itself", "sender_spikes": 2.0}],
        "overhead": [{"name": "membranes"}, {"name": "output population → decoder", "sender_spikes": 3.0}],
    }  # fmt: skip
    (tmp_path / "energy.json").write_text(json.dumps({"policy": sha256(b"policy"), "network": network}))
    assert spikes_of(run) == 17.5
    (tmp_path / "energy.json").write_text(json.dumps({"policy": sha256(b"policy"), "network": {}}))
    with pytest.raises(ValueError, match="make it anew"):
        spikes_of(run)


def test_its_figure() -> None:
    free, a, b, c, _ = SPARSITY.rows
    spikes = {(free, "Hopper-v4"): [(900.0, 3000.0), (1000.0, 3200.0)], (b, "Hopper-v4"): [(300.0, 2500.0)],
              (c, "Hopper-v4"): [(200.0, 900.0)]}  # fmt: skip
    cells = {(row, env): CellRuns() for row in SPARSITY.rows for env in SPARSITY.envs}
    view = view_of(Gathered(SPARSITY, SPARSITY.envs, cells, [], spikes=spikes))
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

"""Tests of sparse weights in reports: zeros by layer, bytes and loss, taken from a run's log."""

from pathlib import Path
from typing import Any

import pytest
from planted_results import Planted, change, write, write_log
from report_tables import tables

from hpcbench.collect.submission import from_log
from hpcbench.contract.events import parse_event
from hpcbench.features.prune import events
from hpcbench.features.prune.report import SPARSE_WEIGHTS, read_sparsity
from hpcbench.report.build import build
from hpcbench.report.measures import Measures, measure
from hpcbench.report.sections import read

PARTS: list[dict[str, Any]] = [
    {"part": "blocks.0.mlp.up.weight", "weights": 1000, "zeros": 500},
    {"part": "blocks.0.mlp.down.weight", "weights": 1000, "zeros": 0},
    {"part": "blocks.1.mlp.up.weight", "weights": 2000, "zeros": 1500},
]


def measure_run(path: Path, parts: Any) -> Measures:
    event = {"pattern": "2:4", "updates": 9, "parts": parts}
    return measure(from_log(write_log(path, Planted("mzhybrid", 1, 0.4, 2.7), sparsity=event)))


def test_zeros_and_bytes_of_a_run_are_quantities(tmp_path: Path) -> None:
    run = measure_run(tmp_path / "log.txt", PARTS)
    zeros, messages, wires = (quantity.compute(run) for quantity in SPARSE_WEIGHTS)
    assert zeros == pytest.approx(2000 / 4000)
    assert messages == run.message_bytes / run.steps and wires == run.wire_bytes / run.steps  # type: ignore[operator]
    weights = run.extract(read_sparsity)
    assert weights is not None
    assert weights.by_layer() == {"blocks.0": 0.25, "blocks.1": 0.75}


@pytest.mark.parametrize(
    "parts", [None, [], [{**PARTS[0], "zeros": None}], [{**PARTS[0], "zeros": 1001}], [{**PARTS[0], "weights": 0}]]
)
def test_an_invalid_event_has_no_quantities(tmp_path: Path, parts: Any) -> None:
    run = measure_run(tmp_path / "log.txt", parts)
    assert run.extract(read_sparsity) is None and run.samples_per_s
    assert [quantity.compute(run) for quantity in SPARSE_WEIGHTS] == [None] * 3


def test_the_event_round_trips() -> None:
    parts = tuple(events.SparsePart(**row) for row in PARTS)
    event = events.Sparsity(pattern="rows", updates=12, parts=parts)
    assert parse_event(event.to_line(), 4) == event


def test_the_table_reports_the_zeros(tmp_path: Path) -> None:
    root = tmp_path / "001"
    runs = [Planted(scheme, 1, 0.4, 2.7) for scheme in ("baseline", "mzhybrid")]
    write(root, runs)
    for run in runs:
        event = {"pattern": "2:4", "updates": 9, "parts": PARTS}
        change(root / "runs" / run.id / "log.txt", "sparsity", event)
    (table,) = tables(build(read([root]).sections, ["sparsity"]), "sparsity")
    heads = [column.head for column in table.columns]
    assert heads[:2] == ["scheme", "zeros"] and [head.split(" (")[0] for head in heads[2:4]] == ["sent", "on the wire"]
    assert [row[1].value for row in table.rows] == [pytest.approx(0.5)] * 2
    assert "baseline, pattern 2:4, % of zeros: blocks.0 25.0; blocks.1 75.0." in table.notes

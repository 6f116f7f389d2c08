"""Tests of row-sparse gradients in reports, from the log of a run."""

import json
from pathlib import Path
from typing import Any

import pytest
from planted_results import Planted, log_lines, write

from hpcbench.collect.submission import from_log
from hpcbench.contract import events
from hpcbench.present.document import Table
from hpcbench.report.build import build
from hpcbench.report.measures import Measures, measure
from hpcbench.report.quantities.sparse_rows import SPARSE_ROWS, read_sparse_gradients
from hpcbench.report.sections import read

SAID: dict[str, Any] = {
    "switch_density": 0.48,
    "density": 0.03,
    "reductions": 40,
    "by_rows": 30,
    "saved_bytes": 9000,
}


def lines(run: Planted, row_counts: dict[str, Any]) -> str:
    """Return the log of a run with a `sparse_gradients` event."""
    collected = []
    for line in log_lines(run):
        collected.append(line)
        if '"traffic"' in line:
            event = json.loads(line)
            span = {key: event[key] for key in ("from_step", "to_step")}
            collected.append(json.dumps({"event": "sparse_gradients", **span, **row_counts}))
    return "".join(f"{line}\n" for line in collected)


def measured(path: Path, event: dict[str, Any]) -> Measures:
    path.write_text(lines(Planted("mzhybrid", 1, 0.4, 2.7), event))
    return measure(from_log(path))


def test_a_run_has_the_quantities_of_its_event(tmp_path: Path) -> None:
    run = measured(tmp_path / "log.txt", SAID)
    values = {quantity.key: quantity.compute(run) for quantity in SPARSE_ROWS}
    assert run.run.log is not None
    row_counts = run.run.log.read_event(events.RowTraffic)
    assert row_counts.from_step is not None and row_counts.to_step is not None
    steps = row_counts.to_step - row_counts.from_step + 1
    assert values == {
        "row_density": 0.03,
        "switch_density": 0.48,
        "by_rows_part": 0.75,
        "saved_bytes": pytest.approx(9000 / steps),
    }


@pytest.mark.parametrize(
    "wrong",
    [
        {"density": None},
        {"density": 1.5},
        {"by_rows": 41},
        {"by_rows": -1},
        {"reductions": 0, "by_rows": 0},
        {"switch_density": -1.0},
        {"saved_bytes": float("nan")},
    ],
)
def test_nonsense_is_no_quantity(tmp_path: Path, wrong: dict[str, Any]) -> None:
    run = measured(tmp_path / "log.txt", {**SAID, **wrong})
    assert run.extract(read_sparse_gradients) is None and run.samples_per_s


def test_a_table_says_when_rows_travelled(tmp_path: Path) -> None:
    root = tmp_path / "001"
    runs = [Planted(scheme, 1, 0.4, 2.7) for scheme in ("baseline", "mzhybrid")]
    write(root, runs)
    for run in runs:
        (root / "runs" / run.id / "log.txt").write_text(lines(run, SAID))
    blocks = [block for chapter in build(read([root]).sections, ["sparse"]).chapters for block in chapter.blocks]
    (table,) = (block for block in blocks if isinstance(block, Table) and block.name == "sparse")
    assert [column.head for column in table.columns][:4] == ["scheme", "touched", "switch at", "by rows"]
    for row in table.rows:
        assert [entry.value for entry in row][1:4] == [pytest.approx(0.03), pytest.approx(0.48), pytest.approx(0.75)]

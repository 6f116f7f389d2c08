"""Tests of row-sparse gradients in reports, from the log of a run."""

from pathlib import Path
from typing import Any

import pytest
from planted_results import Planted, change, write, write_log
from report_tables import tables

from hpcbench.collect.submission import from_log
from hpcbench.report.build import build
from hpcbench.report.measures import Measures, measure
from hpcbench.report.quantities.sparse_rows import SPARSE_ROWS, read_sparse_gradients
from hpcbench.report.sections import read

SAID: dict[str, Any] = {
    "from_step": 3,
    "to_step": 12,
    "switch_density": 0.48,
    "density": 0.03,
    "reductions": 40,
    "by_rows": 30,
    "saved_bytes": 9000,
}


def measured(path: Path, event: dict[str, Any]) -> Measures:
    return measure(from_log(write_log(path, Planted("mzhybrid", 1, 0.4, 2.7), sparse_gradients=event)))


def test_a_run_has_the_quantities_of_its_event(tmp_path: Path) -> None:
    run = measured(tmp_path / "log.txt", SAID)
    values = {quantity.key: quantity.compute(run) for quantity in SPARSE_ROWS}
    assert values == {
        "row_density": 0.03,
        "switch_density": 0.48,
        "by_rows_part": 0.75,
        "saved_bytes": pytest.approx(9000 / 10),
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
        change(root / "runs" / run.id / "log.txt", "sparse_gradients", SAID)
    (table,) = tables(build(read([root]).sections, ["sparse"]), "sparse")
    assert [column.head for column in table.columns][:4] == ["scheme", "touched", "switch at", "by rows"]
    for row in table.rows:
        assert [entry.value for entry in row][1:4] == [pytest.approx(0.03), pytest.approx(0.48), pytest.approx(0.75)]

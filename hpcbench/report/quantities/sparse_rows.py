"""Report quantities for row-sparse embedding gradients: touched rows, row-wise reductions and saved bytes."""

from dataclasses import dataclass, replace
from math import isfinite

from hpcbench.collect.run_log import RunLog
from hpcbench.collect.submission import Submission
from hpcbench.contract import events
from hpcbench.present.document import Field, Table, tabulate
from hpcbench.report.columns import SCHEME_NAME, make_columns
from hpcbench.report.compare import Cell, SchemeRow
from hpcbench.report.quantities import BYTES, PERCENT, Quantity

ROW_DENSITY = Quantity(
    key="row_density",
    head="touched",
    label="touched rows",
    unit="1",
    meaning="Rows of the embedding that a replica touched between two reductions of its gradient, as a fraction of all",
    scale=PERCENT,
    run=lambda run: rows.density if (rows := run.extract(read_sparse_gradients)) else None,
    over_steps="mean of the steps",
    table="sparse",
)
SWITCH_DENSITY = replace(
    ROW_DENSITY,
    key="switch_density",
    head="switch at",
    label="",
    meaning="Fraction of touched rows below which rows with their indices take fewer bytes than the complete gradient",
    run=lambda run: rows.switch_density if (rows := run.extract(read_sparse_gradients)) else None,
    over_steps="",
)
BY_ROWS_PART = replace(
    ROW_DENSITY,
    key="by_rows_part",
    head="by rows",
    label="",
    meaning="Reductions of the embedding's gradient that were sent as rows, as a fraction of all",
    run=lambda run: rows.part if (rows := run.extract(read_sparse_gradients)) else None,
)
SAVED_BYTES = replace(
    ROW_DENSITY,
    key="saved_bytes",
    head="saved ({unit})",
    label="",
    unit="B",
    meaning="Wire bytes that all ranks save in a step by sending rows and indices instead of the complete gradient",
    scale=BYTES,
    run=lambda run: rows.saved_bytes if (rows := run.extract(read_sparse_gradients)) else None,
    better="higher",
)
SPARSE_ROWS = (ROW_DENSITY, SWITCH_DENSITY, BY_ROWS_PART, SAVED_BYTES)


@dataclass(frozen=True)
class SparseGradients:
    """Row-sparse gradient counts of a run, over all ranks and counted steps."""

    switch_density: float
    density: float
    part: float
    """Fraction of the reductions that were sent as rows."""
    saved_bytes: float
    """Wire bytes per step, saved by all ranks compared with sending complete gradients."""


def read_sparse_gradients(log: RunLog) -> SparseGradients | None:
    """Read the row counts of the ``sparse_gradients`` event, or return None if they are missing or invalid."""
    event = log.read_event(events.RowTraffic)
    counts = event.switch_density, event.density, event.reductions, event.by_rows, event.saved_bytes
    first, last = event.from_step, event.to_step
    if None in counts or first is None or last is None:
        return None
    switch, density, reductions, by_rows, saved = (float(count) for count in counts if count is not None)
    sensible = 0 <= by_rows <= reductions and reductions > 0 and 0 <= density <= 1 and switch >= 0 and last >= first
    if not sensible or not all(map(isfinite, (switch, density, saved))):
        return None
    return SparseGradients(switch, density, by_rows / reductions, saved / (last - first + 1))


def tabulate_sparse_rows(submission: Submission, cell: Cell) -> Table | None:
    """Make the table of density, switch point and saved bytes, or return None if no run can send rows."""
    if not any(run.extract(read_sparse_gradients) for run in cell.runs):
        return None
    fields: list[Field[SchemeRow]] = [SCHEME_NAME, *make_columns(SPARSE_ROWS, cell.rows)]
    return tabulate("sparse", "The embedding's gradient by rows: bytes saved per step, all ranks", cell.rows, fields)

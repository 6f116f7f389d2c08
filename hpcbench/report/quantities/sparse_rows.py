"""An embedding's gradient that may travel by rows: how many are touched, when they are sent, and what that saves."""

from dataclasses import dataclass, replace
from math import isfinite

from hpcbench.collect.run_log import RunLog
from hpcbench.collect.submission import Submission
from hpcbench.contract import events
from hpcbench.present.document import Field, Table, tabulate
from hpcbench.report.columns import columns, scheme
from hpcbench.report.compare import Cell, Row
from hpcbench.report.quantities import BYTES, PERCENT, Quantity

ROW_DENSITY = Quantity(
    key="row_density",
    head="touched",
    label="touched rows",
    unit="1",
    meaning="Rows of the embedding that a replica touched between two reductions of its gradient, as a part of all",
    scale=PERCENT,
    run=lambda run: found.density if (found := run.said(sparse_gradients)) else None,
    over_steps="mean of the steps",
    table="sparse",
)
SWITCH_DENSITY = replace(
    ROW_DENSITY,
    key="switch_density",
    head="switch at",
    label="",
    meaning="The part of touched rows below which rows with their indices are fewer bytes than the whole gradient",
    run=lambda run: found.switch_density if (found := run.said(sparse_gradients)) else None,
    over_steps="",
)
BY_ROWS_PART = replace(
    ROW_DENSITY,
    key="by_rows_part",
    head="by rows",
    label="",
    meaning="Reductions of the embedding's gradient that travelled by rows, as a part of all",
    run=lambda run: found.part if (found := run.said(sparse_gradients)) else None,
)
SAVED_BYTES = replace(
    ROW_DENSITY,
    key="saved_bytes",
    head="saved ({unit})",
    label="",
    unit="B",
    meaning="Wire bytes of all ranks in a step that the whole gradient would have taken beyond rows and indices",
    scale=BYTES,
    run=lambda run: found.saved_bytes if (found := run.said(sparse_gradients)) else None,
    better="higher",
)
SPARSE_ROWS = (ROW_DENSITY, SWITCH_DENSITY, BY_ROWS_PART, SAVED_BYTES)


@dataclass(frozen=True)
class SparseGradients:
    """Counts of a run whose embedding's gradient might travel by rows, over all ranks and counted steps."""

    switch_density: float
    density: float
    part: float
    """Reductions that travelled by rows, as a part of all."""
    saved_bytes: float
    """Wire bytes of a step that the whole gradient would have taken beyond what was sent."""


def sparse_gradients(log: RunLog) -> SparseGradients | None:
    """Return the row counts of the ``sparse_gradients`` event; None if the log has none, or only invalid ones."""
    said = log.said(events.RowTraffic)
    fields = said.switch_density, said.density, said.reductions, said.by_rows, said.saved_bytes
    first, last = said.from_step, said.to_step
    if None in fields or first is None or last is None:
        return None
    switch, density, reductions, by_rows, saved = (float(each) for each in fields if each is not None)
    sensible = 0 <= by_rows <= reductions and reductions > 0 and 0 <= density <= 1 and switch >= 0 and last >= first
    if not sensible or not all(map(isfinite, (switch, density, saved))):
        return None
    return SparseGradients(switch, density, by_rows / reductions, saved / (last - first + 1))


def table(submission: Submission, cell: Cell) -> Table | None:
    """Density, switch point and saved bytes of each scheme; None where no run may send rows."""
    if not any(run.said(sparse_gradients) for run in cell.runs):
        return None
    made: list[Field[Row]] = [scheme(), *columns(SPARSE_ROWS, cell.rows)]
    return tabulate("sparse", "The embedding's gradient by rows: bytes saved a step, all ranks", cell.rows, made)

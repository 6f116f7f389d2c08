"""The embedding's gradient by rows: how many a replica touches, when they are sent, and what that saves."""

from hpcbench.collect.submission import Submission
from hpcbench.report.columns import columns, scheme
from hpcbench.report.compare import Cell, Row
from hpcbench.report.document import Field, Table, tabulate
from hpcbench.report.quantities.catalogue import of_table


def sparse(submission: Submission, cell: Cell) -> Table | None:
    """Density, switch point and saved bytes of each scheme; None where no run may send rows."""
    if not any(run.sparse for run in cell.runs):
        return None
    made: list[Field[Row]] = [scheme(), *columns(of_table("sparse"), cell.rows)]
    return tabulate("sparse", "The embedding's gradient by rows: bytes saved a step, all ranks", cell.rows, made)

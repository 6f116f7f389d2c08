"""The tables of a report, by name: each builder says what one table holds, or None where there is nothing to say."""

from collections.abc import Callable

from hpcbench.collect.submission import Submission
from hpcbench.report.compare import Cell
from hpcbench.report.document import Table
from hpcbench.report.tables.comparison import comparison

OF_CELL: dict[str, Callable[[Submission, Cell], Table | None]] = {
    "comparison": comparison,
}
"""Tables of the schemes of one cell."""

OF_SUBMISSION: dict[str, Callable[[Submission, list[Cell]], Table | None]] = {}
"""Tables over all cells."""

"""All quantities of a report. Each is declared once; tables, plots, pages, CSV, JSON and the export use it.

A new quantity goes to the end of its kind. It then appears in the table that it names, on the page, in CSV and JSON,
and in the export.
"""

from hpcbench.features.energy.report.table import ENERGY
from hpcbench.features.prune.report import SPARSE_WEIGHTS
from hpcbench.report.quantities import Quantity
from hpcbench.report.quantities.experts import EXPERTS
from hpcbench.report.quantities.resources import MEMORY, TIMES
from hpcbench.report.quantities.sparse_rows import SPARSE_ROWS
from hpcbench.report.quantities.speed import LOSSES, SPEED
from hpcbench.report.quantities.staleness import STALENESS
from hpcbench.report.quantities.traffic import TRAFFIC

CATALOGUE: list[Quantity] = [
    *(*SPEED, *LOSSES, *MEMORY, *TRAFFIC, *TIMES, *ENERGY, *EXPERTS, *SPARSE_ROWS, *SPARSE_WEIGHTS, *STALENESS),
]


def of_table(name: str, first: tuple[Quantity, ...] = ()) -> list[Quantity]:
    """Return the quantities that a table shows: first those of `first`, then all others that are declared for it."""
    keys = {one.key for one in first}
    return [*first, *(one for one in CATALOGUE if one.table == name and one.key not in keys)]


def exported(table: str) -> list[Quantity]:
    """Return the quantities that have a column in a table of the export, in the order of the columns."""
    return [one for one in CATALOGUE if one.exported and one.exported.table == table]

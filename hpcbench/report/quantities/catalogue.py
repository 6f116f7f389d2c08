"""All quantities of a report. Tables, plots, pages, CSV, JSON and the export use these declarations.

Append a new quantity to the end of its kind. It then appears in its table, on the page, in CSV and JSON, and in the
export.
"""

from hpcbench.features.energy.report.table import ENERGY
from hpcbench.features.network.report.table import QUANTITIES as NETWORK
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
    *NETWORK,
]


def list_of_table(name: str, first: tuple[Quantity, ...] = ()) -> list[Quantity]:
    """Return the quantities of a table: those of `first`, then all others that are declared for it."""
    keys = {quantity.key for quantity in first}
    return [*first, *(quantity for quantity in CATALOGUE if quantity.table == name and quantity.key not in keys)]


def list_exported(table: str) -> list[Quantity]:
    """Return the quantities that have a column in a table of the export, in the order of the columns."""
    return [quantity for quantity in CATALOGUE if quantity.exported and quantity.exported.table == table]

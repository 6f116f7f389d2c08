"""Catalog of all report quantities, used by tables, plots, pages, CSV, JSON and exports.

Add a new quantity at the end of the list of its kind. The quantity then appears in its table, on the page, in CSV and
JSON, and in exports.
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
    """Return the quantities of a table: first those in `first`, then all others declared for the table."""
    keys = {quantity.key for quantity in first}
    return [*first, *(quantity for quantity in CATALOGUE if quantity.table == name and quantity.key not in keys)]


def list_exported(table: str) -> list[Quantity]:
    """Return the quantities of an export table, in column order."""
    return [quantity for quantity in CATALOGUE if quantity.exported and quantity.exported.table == table]

"""Report tables, by name. Each builder returns a table, or None if there is nothing to show."""

from collections.abc import Callable

from hpcbench.collect.submission import Submission
from hpcbench.features.energy.report import table as energy
from hpcbench.features.network.report import table as network
from hpcbench.features.prune import report as prune
from hpcbench.present.document import Figure, Table
from hpcbench.report import synchrony
from hpcbench.report.compare import Cell
from hpcbench.report.quantities import experts, sparse_rows
from hpcbench.report.tables.by_scheme import (
    tabulate_axes,
    tabulate_loss,
    tabulate_memory,
    tabulate_phases,
    tabulate_speed,
    tabulate_traffic,
)
from hpcbench.report.tables.comparison import tabulate_schemes
from hpcbench.report.tables.predicted import tabulate_predicted, tabulate_prediction_error
from hpcbench.report.tables.published import tabulate_published
from hpcbench.report.tables.runs import tabulate_runs
from hpcbench.report.tables.scaling import tabulate_strong_scaling, tabulate_weak_scaling

OF_CELL: dict[str, Callable[[Submission, Cell], Table | None]] = {
    "speed": tabulate_speed,
    "phases": tabulate_phases,
    "loss": tabulate_loss,
    "traffic": tabulate_traffic,
    "axes": tabulate_axes,
    "experts": experts.tabulate_experts,
    "sparse": sparse_rows.tabulate_sparse_rows,
    "sparsity": prune.tabulate_zeros,
    "memory": tabulate_memory,
    "energy": energy.tabulate_energy,
    "network": network.table,
    "schemes": tabulate_schemes,
    "predicted": tabulate_predicted,
}
"""Builders of tables about a cell's schemes, in addition to the comparison."""

OF_SUBMISSION: dict[str, Callable[[Submission, list[Cell]], Table | None]] = {
    "strong-scaling": tabulate_strong_scaling,
    "weak-scaling": tabulate_weak_scaling,
    "synchrony": synchrony.tabulate_synchrony,
    "runs": tabulate_runs,
    "published": tabulate_published,
    "prediction-error": tabulate_prediction_error,
}
"""Builders of tables about all cells."""

PROBLEMS: dict[str, Callable[[Cell], list[str]]] = {"energy": energy.list_problems, "network": network.list_problems}
"""Functions that return the reasons why a table has no values, by table."""

METHOD = "method"
"""Table name that selects the description of the method and the notes that the top of a chapter omits."""
GROUPS: dict[str, tuple[str, ...]] = {
    "Speed": (
        "speed",
        "phases",
        "schemes",
        "predicted",
        "prediction-error",
        "gain-over-bandwidth",
        "throughput",
        "step-trace",
    ),
    "Scaling": ("strong-scaling", "weak-scaling", "scaling"),
    "Loss": ("loss", "loss-over-steps", "loss-over-time", "synchrony", "time-to-loss", "staleness"),
    "Traffic": ("traffic", "axes", "experts", "sparse", "sparsity", "network", "error-over-wire"),
    "Memory and energy": ("memory", "energy"),
    "Runs": ("runs", "published"),
    "Method": (METHOD,),
}
"""Titles of the details groups, with their tables and figures."""


def choose_group(block: Table | Figure) -> str:
    """Return the details group of a table or figure, or an empty string if it is always visible."""
    return next((title for title, names in GROUPS.items() if block.name in names), "")

"""Tables of a report, by name. Each builder makes one table, or None if there is nothing to show."""

from collections.abc import Callable

from hpcbench.collect.submission import Submission
from hpcbench.features.energy.report import table as energy
from hpcbench.features.prune import report as prune
from hpcbench.present.document import Table
from hpcbench.report import synchrony
from hpcbench.report.compare import Cell
from hpcbench.report.quantities import experts, sparse_rows
from hpcbench.report.tables.by_scheme import axes, loss, memory, phases, speed, traffic
from hpcbench.report.tables.comparison import schemes
from hpcbench.report.tables.predicted import predicted, prediction_error
from hpcbench.report.tables.published import published
from hpcbench.report.tables.runs import runs
from hpcbench.report.tables.scaling import strong_scaling, weak_scaling

OF_CELL: dict[str, Callable[[Submission, Cell], Table | None]] = {
    "speed": speed,
    "phases": phases,
    "loss": loss,
    "traffic": traffic,
    "axes": axes,
    "experts": experts.table,
    "sparse": sparse_rows.table,
    "sparsity": prune.table,
    "memory": memory,
    "energy": energy.table,
    "schemes": schemes,
    "predicted": predicted,
}
"""Tables about the schemes of one cell, in addition to the comparison."""

OF_SUBMISSION: dict[str, Callable[[Submission, list[Cell]], Table | None]] = {
    "strong-scaling": strong_scaling,
    "weak-scaling": weak_scaling,
    "synchrony": synchrony.table,
    "runs": runs,
    "published": published,
    "prediction-error": prediction_error,
}
"""Tables about all cells."""

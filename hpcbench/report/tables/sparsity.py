"""Sparse weights: how many are zero, in each layer, beside bytes and loss."""

from collections.abc import Iterator

from hpcbench.collect.submission import Submission
from hpcbench.report.columns import columns, scheme
from hpcbench.report.compare import Cell, Row
from hpcbench.report.document import Field, Table, tabulate
from hpcbench.report.notation import name
from hpcbench.report.quantities.catalogue import of_table
from hpcbench.report.quantities.speed import LOSS_TRAIN, LOSS_VALID

_MOST = 32
"""Layers that are told one by one."""


def sparsity(submission: Submission, cell: Cell) -> Table | None:
    """Zeros, bytes a step and losses of each scheme; None where no run has sparse weights."""
    if not any(run.sparsity for run in cell.runs):
        return None
    made: list[Field[Row]] = [scheme()]
    made += columns([*of_table("sparsity"), LOSS_TRAIN, LOSS_VALID], cell.rows)
    title = "Sparse weights: zeros, bytes of a step, and loss"
    return tabulate("sparsity", title, cell.rows, made, notes=list(_layers(cell)))


def _layers(cell: Cell) -> Iterator[str]:
    """Zeros by layer in the first run of each scheme."""
    for row in cell.rows:
        found = next((run.sparsity for run in row.counted if run.sparsity), None)
        if found is not None:
            layers = [f"{layer} {100 * part:.1f}" for layer, part in list(found.by_layer().items())[:_MOST]]
            yield f"{name(row.scheme).shown}, pattern {found.pattern}, % of zeros: {'; '.join(layers)}."

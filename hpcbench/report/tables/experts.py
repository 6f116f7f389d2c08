"""Experts: how evenly tokens are spread over them, what is dropped, and what moving them takes."""

from collections.abc import Iterator

from hpcbench.collect.submission import Submission
from hpcbench.report.columns import columns, scheme
from hpcbench.report.compare import Cell, Row
from hpcbench.report.document import Field, Table, tabulate
from hpcbench.report.notation import name
from hpcbench.report.quantities.catalogue import of_table
from hpcbench.report.quantities.expert_quantities import ALL_TO_ALL_EXPOSED, ALL_TO_ALL_HIDDEN

_MOST = 16
"""Layers and experts whose counts are told one by one."""


def experts(submission: Submission, cell: Cell) -> Table | None:
    """Balance, drops and all-to-all of each scheme; None where no run has experts."""
    if not any(run.experts for run in cell.runs):
        return None
    times = (ALL_TO_ALL_EXPOSED, ALL_TO_ALL_HIDDEN)
    unit = ALL_TO_ALL_EXPOSED.unit_of(one.over(row.runs) for one in times for row in cell.rows)
    made: list[Field[Row]] = [scheme()]
    for one in of_table("experts"):
        made += columns([one], cell.rows, unit=unit if one in times else None)
    title = "Experts: balance, drops, and all-to-all a step and rank"
    return tabulate("experts", title, cell.rows, made, notes=list(_counts(cell)))


def _counts(cell: Cell) -> Iterator[str]:
    """Tokens of each expert in the first run of each scheme, as parts of the layer's."""
    for row in cell.rows:
        found = next((run.experts for run in row.counted if run.experts), None)
        if found is None or len(found.layers) * len(found.layers[0].tokens) > _MOST * _MOST:
            continue
        layers = [
            f"layer {layer.number}: " + " ".join(f"{100 * count / sum(layer.tokens):.0f}" for count in layer.tokens)
            for layer in found.layers[:_MOST]
        ]
        yield f"{name(row.scheme).shown}, % of the choices by expert: {'; '.join(layers)}."

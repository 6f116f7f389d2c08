"""Quantities of an embedding's gradient that may travel by rows: how many are touched, and what that saves."""

from dataclasses import replace

from hpcbench.report.quantities import BYTES, PERCENT, Quantity

ROW_DENSITY = Quantity(
    key="row_density",
    head="touched",
    label="touched rows",
    unit="1",
    meaning="Rows of the embedding that a replica touched between two reductions of its gradient, as a part of all",
    scale=PERCENT,
    run=lambda run: run.sparse.density if run.sparse else None,
    over_steps="mean of the steps",
    table="sparse",
)
SWITCH_DENSITY = replace(
    ROW_DENSITY,
    key="switch_density",
    head="switch at",
    label="",
    meaning="The part of touched rows below which rows with their indices are fewer bytes than the whole gradient",
    run=lambda run: run.sparse.switch_density if run.sparse else None,
    over_steps="",
)
BY_ROWS_PART = replace(
    ROW_DENSITY,
    key="by_rows_part",
    head="by rows",
    label="",
    meaning="Reductions of the embedding's gradient that travelled by rows, as a part of all",
    run=lambda run: run.sparse.part if run.sparse else None,
)
SAVED_BYTES = replace(
    ROW_DENSITY,
    key="saved_bytes",
    head="saved ({unit})",
    label="",
    unit="B",
    meaning="Wire bytes of all ranks in a step that the whole gradient would have taken beyond rows and indices",
    scale=BYTES,
    run=lambda run: run.sparse.saved_bytes if run.sparse else None,
    better="higher",
)
SPARSE = (ROW_DENSITY, SWITCH_DENSITY, BY_ROWS_PART, SAVED_BYTES)

"""Overview of a sweep: one row per scheme and cell, with gain and verdict."""

from collections.abc import Iterator, Sequence

from hpcbench.present.document import Column, Field, Table, tabulate
from hpcbench.present.notation import name
from hpcbench.report.columns import LOSS, SCHEME, SPEED
from hpcbench.report.compare import Cell, SchemeRow
from hpcbench.report.tables.comparison import VERDICT, make_verdict_entry
from hpcbench.report.titles import describe_cell
from hpcbench.report.weaknesses import Weakened

_CELL = Column("cell", "cell", text=True, help="Values of the study's matrix.")
_Line = tuple[Cell, SchemeRow, Weakened]


def tabulate_overview(cells: Sequence[Cell], weak: Sequence[Weakened]) -> Table | None:
    """Make the table of gains, losses and verdicts of all schemes in all cells."""
    fields: list[Field[_Line]] = [
        (_CELL, lambda line: name(describe_cell(line[0].values))),
        (SCHEME, lambda line: name(line[1].scheme)),
        (VERDICT, lambda line: make_verdict_entry(line[1], line[2])),
        (SPEED.field()[0], lambda line: SPEED.entry(line[1])),
        (LOSS.field(group=1)[0], lambda line: LOSS.entry(line[1])),
    ]
    notes = [weak[0].legend] if weak[0].reasons else []
    return tabulate("overview", "", list(_list_lines(cells, weak)), fields, notes=notes, always=len(fields))


def _list_lines(cells: Sequence[Cell], weak: Sequence[Weakened]) -> Iterator[_Line]:
    """Yield the compared schemes, and baselines with a verdict such as a failure."""
    for cell, letters in zip(cells, weak, strict=True):
        for row in cell.rows:
            if row.scheme != cell.baseline or row.verdict:
                yield cell, row, letters

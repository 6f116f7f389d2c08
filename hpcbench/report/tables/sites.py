"""Side-by-side gains of the same schemes on several sites."""

from collections import Counter
from collections.abc import Sequence
from functools import partial

from hpcbench.collect.submission import Submission
from hpcbench.contract.text import make_printable
from hpcbench.present.document import Column, Entry, Field, Table, tabulate
from hpcbench.present.notation import estimate, name, speed_interval
from hpcbench.report.columns import SCHEME
from hpcbench.report.compare import Cell, SchemeRow
from hpcbench.report.titles import describe_cell

_Key = tuple[str, str]
"""Description of a cell, and name of a scheme."""
_NOTE = (
    "Each gain is relative to the baseline of the same site. If software or settings differ, sites differ in "
    "more than their machines. Column titles name the submissions."
)


def tabulate_sites(sections: Sequence[tuple[Submission, list[Cell]]]) -> Table | None:
    """Make the table of gains, with a column per submission, or return None if no scheme was compared on two sites."""
    common = list_common(sections)
    if not common:
        return None
    rows = [index_compared(cells) for _, cells in sections]
    fields: list[Field[_Key]] = [
        (SCHEME, lambda key: name(key[1])),
        (Column("cell", "cell", text=True, help="Values of the study's matrix."), lambda key: name(key[0])),
    ]
    for number, ((submission, _), of_site) in enumerate(zip(sections, rows, strict=True), 1):
        head = make_printable(f"{submission.plan.site} ({submission.plan.study})", 40)
        help = f"Samples/s divided by the baseline's on {head}, with the 95 % interval over the pairs."
        fields.append((Column(f"speed_ratio_{number}", head, help=help), partial(_show_gain, of_site)))
    if not any(cell for cell, _ in common):
        del fields[1]
    return tabulate("sites", "Gain by site", common, fields, notes=[_NOTE], always=1)


def list_common(sections: Sequence[tuple[Submission, list[Cell]]]) -> list[tuple[str, str]]:
    """Return the cell and name of schemes compared in several submissions. The list is empty for a single site."""
    if len({submission.plan.site for submission, _ in sections}) == 1:
        return []
    counts = Counter(key for _, cells in sections for key in index_compared(cells))
    return [key for key, count in counts.items() if count > 1]


def index_compared(cells: Sequence[Cell]) -> dict[_Key, SchemeRow]:
    """Return the compared schemes of a submission, keyed by cell and name."""
    return {(describe_cell(cell.values), row.scheme): row for cell in cells for row in cell.rows if row.compared}


def _show_gain(rows: dict[_Key, SchemeRow], key: _Key) -> Entry:
    row = rows.get(key)
    return estimate(row.speed if row else None, speed_interval)

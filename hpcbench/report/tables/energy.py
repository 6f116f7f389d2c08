"""Energy beside speed: joules a sample and a step of each scheme, and what was counted."""

from hpcbench.collect.submission import Submission
from hpcbench.contract import events
from hpcbench.contract.text import printable
from hpcbench.report.columns import ENERGY, SPEED, columns, samples, scheme
from hpcbench.report.compare import Cell, Row
from hpcbench.report.document import Column, Entry, Field, Table, tabulate
from hpcbench.report.energy import beside_the_scheduler
from hpcbench.report.quantities.catalogue import of_table
from hpcbench.report.quantities.energy_quantities import JOULES_SAMPLE

_SCOPE = Column("energy_scope", "of", words=True, help="What the joules are of: where nothing is missing, the widest.")
_MOST = 6
"""Sentences about counters that are missing."""


def energy(submission: Submission, cell: Cell) -> Table | None:
    """Energy of each scheme beside its speed; None where no log speaks of energy.

    Where nothing could be counted, the table says why.
    """
    said = [event for run in cell.runs if run.run.log and (event := run.run.log.event(events.Energy))]
    if not said:
        return None
    fields: list[Field[Row]] = [
        scheme(),
        samples(cell.rows),
        SPEED.field(),
        *columns([JOULES_SAMPLE], cell.rows),
        ENERGY.field(),
        (_SCOPE, _scope),
    ]
    shown = len(fields)
    if any(run.energy for run in cell.runs):
        fields += columns(of_table("energy", (JOULES_SAMPLE,))[1:], cell.rows)
    problems = list(dict.fromkeys(printable(words) for event in said for words in event.problems or ()))
    more = len(problems) - _MOST
    notes = [*beside_the_scheduler(submission, cell), *(f"{words}." for words in problems[:_MOST])]
    notes += [f"{more} more of that sort."] if more > 0 else []
    return tabulate("energy", "Energy", cell.rows, fields, notes=notes, always=shown)


def _scope(row: Row) -> Entry:
    scopes = sorted({run.energy.scope for run in row.counted if run.energy})
    words = ", ".join(printable(one, 40) for one in scopes)
    return Entry(words or "-", words or None)

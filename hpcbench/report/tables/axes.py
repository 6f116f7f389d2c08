"""The table of tensor parallelism on a grid: the traffic along each axis, and how long ranks wait for it."""

from dataclasses import dataclass

from hpcbench.collect.submission import Submission
from hpcbench.contract.values import integer
from hpcbench.report.compare import Cell, Row
from hpcbench.report.document import Column, Field, Table, tabulate
from hpcbench.report.measures import Measures
from hpcbench.report.notation import bytes_unit, name, quantity, seconds_unit, thousandths
from hpcbench.report.statistics import mean_of_known
from hpcbench.report.tables.by_scheme import scheme
from hpcbench.report.traffic import Traffic, by_axis, window

_NOTE = (
    "Means over the runs, a step and rank. Weights and gradients of them travel over i and e, activations over j and k."
)


@dataclass(frozen=True)
class _Line:
    """One scheme on one axis: means over its runs."""

    row: Row
    axis: str
    message_bytes: float | None
    wire_over_message: float | None
    exposed_s: float | None
    hidden_s: float | None


def axes(submission: Submission, cell: Cell) -> Table | None:
    """A row for each scheme and axis; None if no run has a tensor grid."""
    lines = [line for row in cell.rows for line in _lines(row)]
    if not lines:
        return None
    size = bytes_unit(line.message_bytes for line in lines)
    unit = seconds_unit(one for line in lines for one in (line.exposed_s, line.hidden_s))
    of_row, shown = scheme()
    made: list[Field[_Line]] = [
        (of_row, lambda line: shown(line.row)),
        (Column("axis", "axis", words=True, help="Axis of the tensor grid."), lambda line: name(line.axis)),
        (
            Column("message_bytes", f"sent ({size.name})", help="Bytes before the codec, a step and rank."),
            lambda line: quantity(line.message_bytes, size.show),
        ),
        (
            Column("wire_over_message", "wire/message", help="Bytes after the codec per byte before it."),
            lambda line: quantity(line.wire_over_message, thousandths),
        ),
        (
            Column("exposed_s", f"exposed ({unit.name})", help="Time in which a rank waited for this axis."),
            lambda line: quantity(line.exposed_s, unit.show),
        ),
        (
            Column("hidden_s", f"hidden ({unit.name})", help="Time in which its messages moved while a rank computed."),
            lambda line: quantity(line.hidden_s, unit.show),
        ),
    ]
    return tabulate("axes", "Tensor grid: traffic by axis", lines, made, notes=[_NOTE])


def _lines(row: Row) -> list[_Line]:
    found: dict[str, list[tuple[Traffic, int]]] = {}
    for run in row.counted:
        for one in by_axis(run.channels):
            found.setdefault(one.axis or "", []).append((one, shares(run)))
    return [
        _Line(
            row,
            axis,
            mean_of_known([one.message_bytes / share if share else None for one, share in parts]),
            mean_of_known([None if (over := one.wire_over_message) == "unknown" else over for one, _ in parts]),
            mean_of_known([one.exposed_s for one, _ in parts]),
            mean_of_known([one.hidden_s for one, _ in parts]),
        )
        for axis, parts in sorted(found.items())
    ]


def shares(run: Measures) -> int:
    """The number of steps times ranks that the traffic of a run is summed over."""
    return len(window(run.run.log)) * (integer(run.run.settings, "ranks") or 0) if run.run.log else 0

"""What the traffic of each scheme cost: time exposed and hidden, time in the codec, bytes by parallel dimension."""

from collections.abc import Callable
from dataclasses import replace
from math import isfinite

from hpcbench.collect.submission import Submission
from hpcbench.report.compare import Cell, Row, paired
from hpcbench.report.document import Column, Entry, Field, Table, tabulate
from hpcbench.report.notation import Unit, between, bytes_unit, estimate, name, percent, quantity, ratio, seconds_unit
from hpcbench.report.statistics import Interval, paired_difference
from hpcbench.report.tables.comparison import CHANGE, CODED, SCHEME, part
from hpcbench.report.tables.over_runs import coded_part, mean, wire_over_message
from hpcbench.report.traffic import TimeSplit

DIMENSIONS = ("TP", "SP", "CP", "EP", "PP", "DP", "ZERO", "EXACT")
"""In the order of their columns. EXACT is what no codec may touch."""


def traffic(submission: Submission, cell: Cell) -> Table | None:
    """Means a step and rank of the completed runs."""
    unit = seconds_unit(_mean(row, part) for row in cell.rows for part in ("exposed", "hidden", "encode", "decode"))
    base = cell.row(cell.baseline)

    def time(part: str, what: str) -> Field[Row]:
        column = Column(f"{part}_s", f"{part} ({unit.name})", help=what)
        return column, lambda row: quantity(_mean(row, part), unit.show)

    def wire(dimension: str) -> Field[Row]:
        what = "Bytes after the codec per byte before it, of the traffic of this dimension."
        column = Column(f"wire_over_message_{dimension.lower()}", f"wire/message {dimension}", group=1, help=what)

        def entry(row: Row) -> Entry:
            found = wire_over_message(row, dimension)
            return Entry(ratio(found), found)

        return column, entry

    def coded(dimension: str) -> Field[Row]:
        what = "Bytes that went through a codec, as a part of what this dimension's channels with a codec carried."
        column = Column(f"coded_part_{dimension.lower()}", f"coded {dimension}", group=2, help=what)
        return column, lambda row: part(coded_part(row, dimension))

    crossed = [(run.host_link.down, run.host_link.up) for run in cell.runs if run.host_link]
    size = bytes_unit(most for both in crossed for most in both)

    def link(way: str, head: str, what: str) -> Field[Row]:
        column = Column(f"host_{way}_bytes", f"{head} ({size.name})", group=3, help=what)
        return column, lambda row: quantity(mean(row, lambda run: getattr(run.host_link, way, None)), size.show)

    fields = [
        (SCHEME, lambda row: name(row.scheme)),
        time("exposed", "Time a step in which a rank waited for messages."),
        (
            Column("exposed_part", "of step", help="That time as a part of the step."),
            lambda row: quantity(_mean(row, "exposed_part"), percent),
        ),
        (
            Column("exposed_difference", CHANGE, help="Exposed time minus the baseline's in the same pairing."),
            lambda row: estimate(_change(row, base), lambda found: between(found, _signed(unit))),
        ),
        time("hidden", "Time a step in which messages moved while the rank computed."),
        time("encode", "Time a step in the codec, before sending."),
        time("decode", "Time a step in the codec, after receiving."),
        *(wire(dimension) for dimension in DIMENSIONS),
        (replace(CODED, group=2), lambda row: part(row.coded_part)),
        *(coded(dimension) for dimension in DIMENSIONS),
        link("down", "to host", "Copied a step from a rank's device to its host: gradients of offloaded states."),
        link("up", "from host", "Copied a step from the host to the device: updated weights."),
    ]
    return tabulate("traffic", "Traffic: time a step and rank, and bytes by parallel dimension", cell.rows, fields)


def _mean(row: Row, part: str) -> float | None:
    return mean(row, lambda run: time_part(run.time, part))


def time_part(time: TimeSplit | None, part: str) -> float | None:
    """A part of the time of a step, by its name in `TimeSplit`."""
    found: float | None = getattr(time, part, None)
    return found


def _change(row: Row, base: Row | None) -> Interval | None:
    """Exposed time minus the baseline's, over the pairs that have both."""
    if base is None or row is base:
        return None
    pairs = [(mine.time, other.time) for mine, other in paired(row.runs, base.runs)]
    known = [(mine.exposed, other.exposed) for mine, other in pairs if mine and other]
    known = [pair for pair in known if all(map(isfinite, pair))]
    return paired_difference([mine for mine, _ in known], [other for _, other in known]) if known else None


def _signed(unit: Unit) -> Callable[[float], str]:
    return lambda seconds: f"{'+' if seconds >= 0 else ''}{unit.show(seconds)}"

"""Table of network bytes per scheme: node counters compared with hpcbench's own accounting."""

from collections.abc import Sequence

from hpcbench.collect.submission import Submission
from hpcbench.contract.text import make_printable
from hpcbench.features.network import events
from hpcbench.features.network.report.sent import read_bytes
from hpcbench.present.document import Field, Table, tabulate
from hpcbench.report.columns import SCHEME_NAME, SPEED, make_columns, make_rate_column
from hpcbench.report.compare import Cell, SchemeRow
from hpcbench.report.measures import Measures
from hpcbench.report.quantities import BYTES, PERCENT, RATIO, Exported, Quantity

NETWORK = Quantity(
    key="network_bytes_per_step",
    head="network ({unit})",
    label="bytes on the network",
    unit="B",
    meaning="Bytes that a node sends in a step, according to its network counters; includes protocol headers",
    scale=BYTES,
    run=lambda run: counted.per_step_and_node if (counted := run.extract(read_bytes)) else None,
    over_steps="mean of the steps",
    better="lower",
    table="network",
)


_FRAME = 1518
"""Size of an Ethernet frame in bytes.

A node that sends fewer bytes per step must be using devices that are not counted.
"""


def _compare(run: Measures) -> float | None:
    """Divide the counted bytes by the bytes of hpcbench's own accounting.

    Return None if hpcbench's own bytes are unknown.

    For a program, the accounting covers the whole run. The result is None if a node has several ranks, because some of
    the accounted bytes then stay within the node.
    """
    counted, settings = run.extract(read_bytes), run.run.settings
    if counted is None or not run.channels:
        return None
    one_rank_per_node = settings.shape.nodes == settings.ranks
    if settings.program.log is not None and not one_rank_per_node:
        return None
    accounted = [channel.wire_bytes if one_rank_per_node else channel.network_bytes for channel in run.channels]
    numbers: list[int] = [number for number in accounted if number != "unknown"]
    total = sum(numbers)
    sent = counted.sent if counted.whole_run is None else counted.whole_run
    return sent / total if len(numbers) == len(accounted) and total > 0 else None


AGREEMENT = Quantity(
    key="network_over_accounted",
    head="network/accounted",
    unit="1",
    meaning="Bytes in the network counters divided by the bytes that hpcbench counted; above 1 because of protocol "
    "headers",
    scale=RATIO,
    run=_compare,
    over_steps="mean of the steps",
    table="network",
)
UNCERTAIN = Quantity(
    key="network_uncertain",
    head="uncertain",
    unit="1",
    meaning="Fraction of the counted bytes that may belong to steps before the first or after the last counted step",
    scale=PERCENT,
    run=lambda run: counted.uncertain / counted.sent if (counted := run.extract(read_bytes)) and counted.sent else None,
    over_steps="mean of the steps",
    table="network",
)
NVLINK = Quantity(
    key="nvlink_bytes_per_step",
    head="NVLink ({unit})",
    label="bytes on NVLink",
    unit="B",
    meaning="Bytes that the GPUs of a node send over NVLink in a step, according to their counters; excludes headers",
    scale=BYTES,
    run=lambda run: counted.nvlink_per_step_and_node if (counted := run.extract(read_bytes)) else None,
    over_steps="mean of the steps",
    better="lower",
    table="network",
)
SENT = Quantity(
    key="sent_bytes",
    head="sent_bytes",
    unit="B",
    meaning="Bytes that all nodes have sent, according to their network counters",
    exported=Exported("runs", "integer", events.NetworkBytes, remark="; in the counted steps; absent if unknown"),
    of_schemes=False,
)
QUANTITIES = (NETWORK, AGREEMENT, UNCERTAIN, NVLINK, SENT)


def list_columns(rows: Sequence[SchemeRow]) -> list[Field[SchemeRow]]:
    """Return the comparison column if the messages of a run were counted on several nodes."""
    counts = [counted for row in rows for run in row.runs if (counted := run.extract(read_bytes))]
    has_traffic = any(counted.nodes > 1 and counted.per_step_and_node > _FRAME for counted in counts)
    return make_columns([NETWORK], rows, group=0) if has_traffic else []


def table(submission: Submission, cell: Cell) -> Table | None:
    """Tabulate the network bytes. Return None if no run counted bytes."""
    fields: list[Field[SchemeRow]] = [SCHEME_NAME, make_rate_column(cell.rows), SPEED.field()]
    shown = len(fields)
    fields += make_columns([NETWORK, AGREEMENT, UNCERTAIN, NVLINK], cell.rows)
    return tabulate("network", "Bytes on the network", cell.rows, fields, notes=_list_notes(cell), always=shown)


_MOST_NOTES = 6


def list_problems(cell: Cell) -> list[str]:
    """Return the problems of the network counters of all runs, without final periods."""
    return list(dict.fromkeys(make_printable(text) for event in _list_events(cell) for text in event.problems or ()))


def _list_events(cell: Cell) -> list[events.NetworkBytes]:
    logs = [run.run.log for run in cell.runs if run.run.log]
    return [event for log in logs if (event := log.event(events.NetworkBytes))]


def _list_notes(cell: Cell) -> list[str]:
    problems = list_problems(cell)
    notes = [f"{problem}." for problem in problems[:_MOST_NOTES]]
    more = len(problems) - _MOST_NOTES
    if more > 0:
        notes.append(f"{more} more counters have problems.")
    shared = sorted({host for event in _list_events(cell) for host in event.shared or ()})
    if shared:
        notes.append(f"Counters of {', '.join(map(make_printable, shared[:4]))} may include the traffic of other jobs.")
    return notes

"""Report quantities for traffic: time per step and rank, and bytes by parallel dimension."""

from collections.abc import Sequence
from dataclasses import replace

from hpcbench.contract.events import TrafficTotals
from hpcbench.report import traffic
from hpcbench.report.measures import Measures, select_counted
from hpcbench.report.quantities import BYTES, PERCENT, RATIO, SECONDS, Average, Exported, Quantity, Value
from hpcbench.report.traffic import DIMENSIONS


def _declare_raw(key: str, unit: str, meaning: str, remark: str = "") -> Quantity:
    """Declare a channel quantity that is only exported and never averaged."""
    column = Exported("channels", "integer" if unit == "B" or "calls" in key else "real", remark=remark)
    return Quantity(key=key, head=key, unit=unit, meaning=meaning, exported=column, of_schemes=False)


def _declare_time(part: str, meaning: str) -> Quantity:
    """Declare a quantity in seconds per step and rank. `part` is the attribute name in `TimeSplit`."""
    return Quantity(
        key=f"{part}_s",
        head=f"{part} ({{unit}})",
        unit="s",
        meaning=meaning,
        scale=SECONDS,
        run=lambda run: getattr(run.time, part, None),
        over_steps="mean of the steps",
        better="lower",
        table="traffic",
        exported=Exported("channels", "real"),
    )


EXPOSED = replace(_declare_time("exposed", "Time in which a rank waited for messages"), label="waiting")
EXPOSED_PART = replace(
    EXPOSED,
    key="exposed_part",
    head="of step",
    label="",
    unit="1",
    meaning="Time in which a rank waited for messages, as a fraction of the step",
    scale=PERCENT,
    run=lambda run: run.time.exposed_part if run.time else None,
    exported=None,
)
HIDDEN = replace(
    _declare_time("hidden", "Time in which messages moved while the rank computed"),
    label="hidden communication",
    better="",
)
ENCODE = replace(_declare_time("encode", "Time spent encoding, before sending"), label="encoding")
DECODE = replace(_declare_time("decode", "Time spent decoding, after receiving"), label="decoding")
TRANSFER = replace(_declare_time("transfer", "Remaining time from the start to the end of the calls"), table="")
COMPUTE = replace(
    _declare_time("compute", "Time of the step, excluding the time in which the rank waited for messages"),
    label="computation",
    table="",
    exported=None,
)
WIRE = Quantity(
    key="wire_over_message",
    head="wire/message",
    label="wire bytes / message bytes",
    unit="1",
    meaning="Bytes after the codec per byte before the codec",
    scale=RATIO,
    run=lambda run: run.wire_over_message,
    better="lower",
)
CODED = Quantity(
    key="coded_part",
    head="coded",
    unit="1",
    meaning="Bytes that were encoded, as a fraction of the bytes of channels that have a codec",
    scale=PERCENT,
    run=lambda run: run.coded_part,
    over_runs=Average(
        "all runs together",
        lambda runs, _: traffic.compute_coded_part(
            [channel for run in select_counted(runs) for channel in run.channels]
        ),
    ),
    table="traffic",
    group=2,
    alarm=0,
)


def find_dimension(run: Measures, name: str) -> traffic.TrafficSum | None:
    """Return the traffic of a parallel dimension, or None if the run has none."""
    return next((totals for totals in run.dimensions if totals.dimension == name), None)


def _declare_wire(dimension: str) -> Quantity:
    return replace(
        WIRE,
        key=f"wire_over_message_{dimension.lower()}",
        head=f"wire/message {dimension}",
        label="",
        meaning="Bytes after the codec per byte before the codec, of the traffic of this dimension",
        run=lambda run: totals.wire_over_message if (totals := find_dimension(run, dimension)) else None,
        table="traffic",
        group=1,
    )


def _declare_coded(dimension: str) -> Quantity:
    def together(runs: Sequence[Measures], _: object = None) -> Value:
        return traffic.compute_coded_part(
            [totals for run in select_counted(runs) if (totals := find_dimension(run, dimension))]
        )

    return replace(
        CODED,
        key=f"coded_part_{dimension.lower()}",
        head=f"coded {dimension}",
        meaning="Bytes that were encoded, as a fraction of the bytes of this dimension's channels that have a codec",
        run=lambda run: together([run]),
        over_runs=Average("all runs together", together),
    )


TO_HOST = Quantity(
    key="host_down_bytes",
    head="to host ({unit})",
    unit="B",
    meaning="Bytes copied from devices to hosts: gradients of offloaded states",
    scale=BYTES,
    run=lambda run: run.host_link.down if run.host_link else None,
    over_steps="mean of the steps",
    better="lower",
    table="traffic",
    group=3,
    exported=Exported("runs", "integer", TrafficTotals, remark="; in the counted steps, all ranks together"),
)
FROM_HOST = replace(
    TO_HOST,
    key="host_up_bytes",
    head="from host ({unit})",
    meaning="Bytes copied from hosts to devices: updated weights",
    run=lambda run: run.host_link.up if run.host_link else None,
)
ERROR = replace(
    _declare_raw("sampled_error", "1", "Relative error of sampled messages", "; absent if nothing was sampled"),
    label="relative error",
)
WIRES = tuple(map(_declare_wire, DIMENSIONS))
CODEDS = tuple(map(_declare_coded, DIMENSIONS))
TRAFFIC = (
    _declare_raw("calls", "1", "Collectives and messages"),
    _declare_raw("plain_calls", "1", "Calls that were not worth encoding"),
    _declare_raw("message_bytes", "B", "Bytes before the codec"),
    _declare_raw("coded_bytes", "B", "Bytes that went through the codec", "; absent in logs without them"),
    _declare_raw("wire_bytes", "B", "Bytes after the codec", "; absent if unknown"),
    _declare_raw(
        "network_bytes",
        "B",
        "Wire bytes that left a node",
        "; the collectives of the MPI library do not report them, and count as 0",
    ),
    *(ENCODE, DECODE, TRANSFER, EXPOSED, EXPOSED_PART, HIDDEN, COMPUTE),
    ERROR,
    *(WIRE, *WIRES, CODED, *CODEDS, TO_HOST, FROM_HOST),
)

"""Traffic of a program's ranks, as log events."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hpcbench.contract.events import CallGroup, ChannelTraffic, Event, ProgramCalls, TrafficTotals, UnknownGroup
from hpcbench.contract.scheme import Scheme
from hpcbench.files import read_json
from hpcbench.programs.dimensions import remedy
from hpcbench.programs.table import summed


def reported(directory: Path) -> list[dict[str, Any]]:
    """Return the counts written by each rank, in rank order."""
    reports = [data for path in directory.glob("rank-*.json") if (data := read_json(path)) is not None]
    return sorted(reports, key=lambda data: int(data["rank"]))


_SHARES = {
    "all-reduce": 2,
    "allreduce": 2,
    "reduce-scatter": 1,
    "all-gather": 1,
    "functional gather": 1,
    "all-to-all": 1,
}
"""For each call, the number of times that a rank sends all parts of the vector except its own, using the algorithm
that sends the fewest bytes.
"""


def sent_bytes(row: dict[str, Any]) -> int:
    """Return the number of bytes that a rank sends in a row's uncompressed calls.

    PyTorch does not count bytes, so the number is computed from the calls.
    """
    ranks, call, nbytes = int(row["ranks"]), str(row["call"]), int(row["call_bytes"])
    if call == "point to point":
        return nbytes // 2  # both sender and receiver count the call
    return _SHARES.get(call, 1) * nbytes * (ranks - 1) // ranks


def unknown(ranks: Sequence[dict[str, Any]]) -> list[UnknownGroup]:
    """Return the groups whose dimension is unknown, one per description."""
    unknown_bytes: dict[str, int] = {}
    for row in summed(ranks):
        if row["why"] == "unknown group":
            unknown_bytes[row["group"]] = unknown_bytes.get(row["group"], 0) + int(row["call_bytes"])
    return [UnknownGroup(group=name, bytes=nbytes, remedy=remedy(name)) for name, nbytes in unknown_bytes.items()]


def events(ranks: Sequence[dict[str, Any]], scheme: Scheme, steps: tuple[int | None, int | None]) -> Iterator[Event]:
    """Yield events about the ranks' traffic.

    Parameters
    ----------
    ranks
        Counts of each rank.
    scheme
        The run's scheme, whose algorithm is recorded in each channel.
    steps
        The first and last step, or None if the program's steps are unknown.
    """
    yield traffic(ranks, scheme, steps)
    yield ProgramCalls(rows=tuple(CallGroup.declared(row) for row in summed(ranks)))
    yield from unknown(ranks)


def traffic(ranks: Sequence[dict[str, Any]], scheme: Scheme, steps: tuple[int | None, int | None]) -> TrafficTotals:
    """Return the total traffic of all ranks and steps. Parameters are as in `events`."""
    channels: dict[tuple[str, str, str, str], dict[str, Any]] = {}
    for row in summed(ranks):
        coded = bool(row["codec"])
        dimension = row["dimension"] if coded else "EXACT"
        key = (dimension, row["call"], row["codec"] or "none", row["dtype"])
        total = channels.setdefault(key, dict.fromkeys((*ChannelTraffic.COUNTS, "encode_s", "decode_s"), 0))
        message = row["message_bytes"] if coded else sent_bytes(row)
        total["calls"] += row["calls"]
        total["plain_calls"] += 0 if coded else row["calls"]
        total["message_bytes"] += message
        total["wire_bytes"] += row["wire_bytes"] if coded else message
        total["coded_bytes"] += row["coded_bytes"] if coded else 0
        total["network_bytes"] += row["network_bytes"] if coded else 0
        total["encode_s"] += row["encode_s"]
        total["decode_s"] += row["decode_s"]
    traffic_channels = tuple(
        ChannelTraffic(
            dimension=dimension,
            phase=None,
            kind=call,
            codec=codec,
            dtype=dtype or None,
            algorithm=scheme.algorithm if dimension != "EXACT" else "native",
            algorithms={},
            transfer_s=None,
            exposed_s=None,
            hidden_s=None,
            sampled_error=None,
            **total,
        )
        for (dimension, call, codec, dtype), total in channels.items()
    )
    return TrafficTotals(from_step=steps[0], to_step=steps[1], channels=traffic_channels)

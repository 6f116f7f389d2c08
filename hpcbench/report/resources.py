"""What a run took of its machine, as its log says: memory, and how long each host computed."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from hpcbench.collect.run_log import RunLog
from hpcbench.contract import events
from hpcbench.contract.text import printable


@dataclass(frozen=True)
class Memory:
    """Peak memory in bytes, and what lasts from step to step; None where the log does not say."""

    device: int | None = None
    """Allocated on a GPU by the rank that needed the most."""
    device_reserved: int | None = None
    """Held on a GPU by PyTorch's allocator, by the rank that held the most."""
    host_rank: int | None = None
    """Resident in the rank that needed the most."""
    host: int | None = None
    """Resident in all ranks together; what ranks share counts for each of them."""
    states: Mapping[str, int] = field(default_factory=dict)
    """Name in the event -> bytes that last from step to step in the rank that holds the most."""


@dataclass(frozen=True)
class HostTime:
    """How long the ranks of a host computed: what a slow node shows in, and waiting for one does not."""

    host: str
    ranks: int
    compute_s: float
    """Seconds a step and rank, without the time in which they waited for messages."""
    over_peers: float | None = None
    """That over the median of all ranks at the same stage of the pipeline, since stages differ in their work; None
    where no other host has ranks at its stages."""


def memory(log: RunLog) -> Memory:
    """Peak memory, as the ``memory`` event says, or a foreign log's lines."""
    event = log.event(events.Memory)
    if event is None:
        printed = log.steps.column("memory_bytes")
        return Memory(device=int(max(printed)) if printed else None)
    states = {name: getattr(event, name) for name in events.Memory.LASTING}
    return Memory(
        device=event.device_bytes or None,
        device_reserved=event.device_reserved_bytes,
        host_rank=event.host_rank_bytes,
        host=event.host_bytes,
        states={name: held for name, held in states.items() if held is not None and held >= 0},
    )


def hosts(log: RunLog) -> tuple[HostTime, ...]:
    """How long each host computed, as the ``hosts`` event says."""
    found = []
    for row in log.said(events.Hosts).hosts or ():
        if row.host is not None and row.compute_s is not None:
            found.append(HostTime(printable(row.host, 80), row.ranks or 0, row.compute_s, row.over_peers))
    return tuple(found)

"""What a run took of its machine, as its log says: memory, and how long each host computed."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from hpcbench.collect.lines import integer, number, objects, printable, text
from hpcbench.collect.run_log import RunLog


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
    """Name in the event, of those in `STATES` -> bytes that last from step to step in the rank that holds the most."""


STATES = (
    "device_parameters_bytes",
    "device_gradients_bytes",
    "device_optimizer_bytes",
    "host_gradients_bytes",
    "host_optimizer_bytes",
    "host_residuals_bytes",
)
"""What lasts from step to step, on the device and with the host: the optimizer's are master weights and moments,
residuals are those of error feedback."""


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
    event = log.data("memory")
    printed = log.steps.column("memory_bytes") if not event else []
    return Memory(
        device=integer(event, "device_bytes") or (int(max(printed)) if printed else None),
        device_reserved=integer(event, "device_reserved_bytes"),
        host_rank=integer(event, "host_rank_bytes"),
        host=integer(event, "host_bytes"),
        states={name: held for name in STATES if (held := integer(event, name)) is not None and held >= 0},
    )


def hosts(log: RunLog) -> tuple[HostTime, ...]:
    """How long each host computed, as the ``hosts`` event says."""
    found = []
    for row in objects(log.data("hosts"), "hosts"):
        host, seconds = text(row, "host"), number(row, "compute_s")
        if host is not None and seconds is not None:
            found.append(HostTime(printable(host, 80), integer(row, "ranks") or 0, seconds, number(row, "over_peers")))
    return tuple(found)

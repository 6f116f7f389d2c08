"""Log event with the bytes sent over the network."""

from dataclasses import dataclass
from typing import ClassVar

from hpcbench.contract.event.measured import Counted
from hpcbench.contract.event.part import LogObject


@dataclass(frozen=True, kw_only=True)
class DeviceBytes(LogObject):
    """Bytes sent by one network device during the counted steps."""

    host: str | None
    name: str | None
    kind: str | None
    """Kind of the counter (see `counters.Kind`)."""
    sent_bytes: int | None
    received_bytes: int | None
    uncertain_bytes: int | None = None
    """Bytes sent in the sampling intervals that contain the start and the end of the counted steps.

    Some of these bytes belong to other steps.
    """
    problem: str | None = None
    """Reason why the bytes are unknown."""


@dataclass(frozen=True, kw_only=True)
class NetworkBytes(Counted):
    """Bytes sent over the network during the counted steps, including protocol headers."""

    NAME: ClassVar[str] = "network"
    seconds: float | None
    """Time in seconds between the first and the last reading."""
    nodes: int | None
    sent_bytes: int | None
    """Bytes sent by all nodes, or None if a counter with traffic is missing or unusable."""
    received_bytes: int | None
    uncertain_bytes: int | None
    """Uncertain bytes of all devices, or 0 if the counters were read exactly at step boundaries."""
    whole_sent_bytes: int | None = None
    """Bytes sent by all nodes during the whole run of a program, including startup and shutdown."""
    nvlink_bytes: int | None = None
    """Bytes sent by all GPUs over NVLink (not included in any other sum), or None on systems without NVLink."""
    devices: tuple[DeviceBytes, ...] | None
    problems: tuple[str, ...] | None
    """Missing or unusable counters, with the reasons."""
    shared: tuple[str, ...] | None
    """Nodes whose counters may include the traffic of other jobs."""

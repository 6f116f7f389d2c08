"""The event about the bytes on the network."""

from dataclasses import dataclass
from typing import ClassVar

from hpcbench.contract.event.measured import Counted
from hpcbench.contract.event.part import LogObject


@dataclass(frozen=True, kw_only=True)
class DeviceBytes(LogObject):
    """Bytes of one network device during the counted steps."""

    host: str | None
    name: str | None
    kind: str | None
    """``interface``, ``infiniband``, ``roce-apart``, ``roce``, ``slingshot`` or ``nvlink``, as in `counters.Kind`."""
    sent_bytes: int | None
    received_bytes: int | None
    uncertain_bytes: int | None = None
    """Bytes sent between the samples around the first and the last counted step; some belong to other steps."""
    problem: str | None = None
    """Reason why the bytes are not known."""


@dataclass(frozen=True, kw_only=True)
class NetworkBytes(Counted):
    """Bytes on the network during the counted steps, protocol headers included."""

    NAME: ClassVar[str] = "network"
    seconds: float | None
    """Time between the first and the last reading."""
    nodes: int | None
    sent_bytes: int | None
    """Sum over all nodes; None if a counter that had traffic is missing or has a problem."""
    received_bytes: int | None
    uncertain_bytes: int | None
    """Sum of the uncertain bytes of all devices; 0 if the counters were read exactly at the steps."""
    whole_sent_bytes: int | None = None
    """Bytes that all nodes have sent during the whole run of a program, with its start and end."""
    nvlink_bytes: int | None = None
    """Bytes that the GPUs of all nodes have sent over NVLink, which no other sum includes; None without NVLink."""
    devices: tuple[DeviceBytes, ...] | None
    problems: tuple[str, ...] | None
    """Counters that are missing or unusable, with the reason."""
    shared: tuple[str, ...] | None
    """Nodes whose counters may include the traffic of other jobs."""

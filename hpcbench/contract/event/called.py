"""Event that lists a program's calls of PyTorch collectives."""

from dataclasses import dataclass
from typing import ClassVar

from hpcbench.contract.event.base import Event
from hpcbench.contract.event.part import LogObject


@dataclass(frozen=True, kw_only=True)
class CallGroup(LogObject):
    """Identical calls of one group, summed over all ranks of the group and over the whole run of the program."""

    group: str | None
    """Description of the group in the program."""
    ranks: int | None
    """Number of ranks of the group."""
    dimension: str | None
    """Parallel dimension of the group, or ``unknown`` if it cannot be resolved."""
    call: str | None
    dtype: str | None
    """PyTorch name of the values' dtype."""
    codec: str | None
    """Codec, or an empty text for calls that were not encoded."""
    why: str | None
    """Reason why the calls were not encoded. The text is empty if the calls were encoded."""
    calls: int | None
    call_bytes: int | None
    """Bytes of the tensors in the calls."""
    message_bytes: int | None
    """Bytes that encoded calls sent, counted before the codec."""
    wire_bytes: int | None
    """Bytes that encoded calls sent, counted after the codec."""
    coded_bytes: int | None
    """Message bytes that were encoded. Small parts of a call may be sent unencoded."""
    network_bytes: int | None
    """Wire bytes that left a node."""
    encode_s: float | None
    decode_s: float | None
    lost_overflows: int | None
    """Number of messages with a NaN or infinity that the codec lost."""


@dataclass(frozen=True, kw_only=True)
class ProgramCalls(Event):
    """Calls of PyTorch's collectives by the ranks of a program, sorted by bytes, largest first."""

    NAME: ClassVar[str] = "calls"
    rows: tuple[CallGroup, ...] | None

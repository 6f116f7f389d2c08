"""The event with a program's calls of PyTorch's collectives."""

from dataclasses import dataclass
from typing import ClassVar

from hpcbench.contract.event.base import Event
from hpcbench.contract.event.part import LogObject


@dataclass(frozen=True, kw_only=True)
class CallGroup(LogObject):
    """Identical calls of one group: sums over all ranks of the group and over the whole program."""

    group: str | None
    """Description of the group, as the program gives it."""
    ranks: int | None
    """Number of ranks of the group."""
    dimension: str | None
    """Parallel dimension of the group; ``unknown`` if it cannot be resolved."""
    call: str | None
    dtype: str | None
    """Type of the values, as PyTorch names it."""
    codec: str | None
    """Codec; empty for calls that were not encoded."""
    why: str | None
    """Why they were not; empty for calls that were."""
    calls: int | None
    call_bytes: int | None
    """Bytes of the tensors that were given to the calls."""
    message_bytes: int | None
    """Bytes that encoded calls sent, before the codec."""
    wire_bytes: int | None
    """The same after the codec."""
    coded_bytes: int | None
    """Message bytes that went through the codec: small parts of a call may not."""
    network_bytes: int | None
    """Wire bytes that left a node."""
    encode_s: float | None
    decode_s: float | None
    lost_overflows: int | None
    """Messages whose NaN or infinity the receiver does not see."""


@dataclass(frozen=True, kw_only=True)
class Calls(Event):
    """What the ranks of a program gave to PyTorch's collectives, the most bytes first."""

    NAME: ClassVar[str] = "calls"
    rows: tuple[CallGroup, ...] | None

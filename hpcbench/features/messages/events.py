"""The event of written message samples."""

from dataclasses import dataclass
from typing import ClassVar

from hpcbench.contract.event.base import Event


@dataclass(frozen=True, kw_only=True)
class MessagesKept(Event):
    """Messages of a step have been written, one file per sampling rank."""

    NAME: ClassVar[str] = "messages"
    step: int | None
    messages: int | None
    """Number of messages in all files."""
    bytes: int | None
    """Bytes of their values in all files."""
    left_out: int | None
    """Number of chosen messages that exceeded the limit of a step and were dropped."""
    seconds: float | None
    """Seconds that writing the files took."""

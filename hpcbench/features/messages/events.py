"""Log event for written message samples."""

from dataclasses import dataclass
from typing import ClassVar

from hpcbench.contract.event.base import Event


@dataclass(frozen=True, kw_only=True)
class MessagesKept(Event):
    """The messages of a step have been written, one file per sampling rank."""

    NAME: ClassVar[str] = "messages"
    step: int | None
    messages: int | None
    """Number of messages in all files."""
    bytes: int | None
    """Bytes of the message values in all files."""
    left_out: int | None
    """Number of selected messages that were dropped because a step reached its limit."""
    seconds: float | None
    """Seconds taken to write the files."""

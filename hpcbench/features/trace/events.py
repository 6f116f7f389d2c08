"""Log event for a written trace."""

from dataclasses import dataclass
from typing import ClassVar

from hpcbench.contract.event.measured import Counted


@dataclass(frozen=True, kw_only=True)
class TraceWritten(Counted):
    """The trace of the selected steps has been written, one file per rank."""

    NAME: ClassVar[str] = "trace"
    spans: int | None
    """Number of spans in all files."""
    left_out: int | None
    """Number of spans that were dropped because a file reached its limit."""
    seconds: float | None
    """Seconds taken to write the files."""

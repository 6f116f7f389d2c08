"""The event of a written trace."""

from dataclasses import dataclass
from typing import ClassVar

from hpcbench.contract.event.measured import Counted


@dataclass(frozen=True, kw_only=True)
class TraceWritten(Counted):
    """The trace of some steps has been written, one file per rank."""

    NAME: ClassVar[str] = "trace"
    spans: int | None
    """Number of spans in all files."""
    left_out: int | None
    """Number of spans beyond the limit of a file, which were dropped."""
    seconds: float | None
    """Seconds that writing the files took."""

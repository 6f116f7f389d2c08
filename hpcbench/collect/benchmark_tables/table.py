"""A micro-benchmark table and its rows."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Tool = Literal["OSU micro-benchmarks", "nccl-tests"]


@dataclass(frozen=True)
class TableRow:
    """One row of a table."""

    line: int
    bytes: int | None
    """Message size in bytes, or None for operations without messages, such as a barrier."""
    values: dict[str, float]
    """Value of each quantity in its base unit (s, B/s, 1/s, or a fraction)."""
    wrong: int | None = None
    """Number of wrong elements, or None if the results were not checked."""
    datatype: str = ""
    """Data type of the elements as printed by the tool. The text is empty if the tool does not print a data type."""
    operation: str = ""
    """Reduction operation, such as ``sum``. The text is empty if the tool does not print an operation."""
    root: str = ""
    """Root rank of the collective. The text is empty for collectives without a root."""

    @property
    def key(self) -> tuple[int | None, str, str, str]:
        """Identity of the measurement. Only rows with the same key are compared."""
        return self.bytes, self.datatype, self.operation, self.root


def sum_wrong(counts: Sequence[int | None]) -> int | None:
    """Return the total number of wrong elements, or None if a result was not checked."""
    checked = [count for count in counts if count is not None]
    return sum(checked) if counts and len(checked) == len(counts) else None


@dataclass
class Microbenchmark:
    """A table printed by a micro-benchmark tool."""

    path: Path
    tool: Tool
    name: str
    """Benchmark name that the tool prints. The text is empty if the tool prints no name."""
    version: str
    line: int
    """Line number of the heading."""
    quantities: tuple[str, ...]
    """Quantities in the order of the columns: the keys that `TableRow.values` may have."""
    sizes: list[TableRow] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    """Remarks about columns and rows that were not read, and about truncated tables."""
    failed: bool = False
    """Whether the tool reports a failed check."""

    @property
    def is_bad(self) -> bool:
        """Whether a result is wrong."""
        return self.failed or any(size.wrong for size in self.sizes)

"""A table of a micro-benchmark, with its rows."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Tool = Literal["OSU micro-benchmarks", "nccl-tests"]


@dataclass(frozen=True)
class TableRow:
    """One row of a table."""

    line: int
    bytes: int | None
    """Message size in bytes; None for an operation without one, such as a barrier."""
    values: dict[str, float]
    """Value of each quantity in its base unit (s, B/s, 1/s, or a fraction)."""
    wrong: int | None = None
    """Number of wrong elements; None if nothing was checked."""
    datatype: str = ""
    """Data type of the elements, as the tool names it; empty if it names none."""
    operation: str = ""
    """Reduction, such as ``sum``; empty if the tool names none."""
    root: str = ""
    """Root of the collective; empty if it has none."""

    @property
    def key(self) -> tuple[int | None, str, str, str]:
        """What was measured. Only rows of the same key are compared."""
        return self.bytes, self.datatype, self.operation, self.root


@dataclass
class Microbenchmark:
    """One table of one tool."""

    path: Path
    tool: Tool
    name: str
    """Name that the tool prints; empty if it prints none."""
    version: str
    line: int
    """Number of the heading's line."""
    quantities: tuple[str, ...]
    """Quantities in the order of the columns: the keys that `TableRow.values` may have."""
    sizes: list[TableRow] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    """Sentences about columns and rows that were not read, and about a table that ends early."""
    failed: bool = False
    """Whether the tool reports a failed check, of any row."""

    @property
    def is_bad(self) -> bool:
        """Whether a result is wrong."""
        return self.failed or any(size.wrong for size in self.sizes)

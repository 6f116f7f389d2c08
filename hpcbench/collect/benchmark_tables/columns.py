"""Columns of a table heading, and the parser for its rows."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from hpcbench.collect.benchmark_tables.table import TableRow, sum_wrong
from hpcbench.contract.text import make_printable

SIZE, SKIPPED, TYPE, OPERATION, ROOT = "size", "skipped", "type", "operation", "root"
WRONG, VALIDATION = "wrong", "validation"
"""Columns that do not contain a quantity. The numbers in `SKIPPED` columns are not used."""
UNKNOWN = ""
"""Name of unrecognized columns."""
_LABELS = {TYPE: "datatype", OPERATION: "operation", ROOT: "root"}
NO_LABEL = ("none", "-1")

UNITS = {
    "ns": 1e-9, "us": 1e-6, "usec": 1e-6, "ms": 1e-3, "s": 1.0, "%": 1e-2,
    "B/s": 1.0, "KB/s": 1e3, "MB/s": 1e6, "GB/s": 1e9, "TB/s": 1e12,
}  # fmt: skip
"""Factor that converts a printed number to s, B/s, or a fraction."""
NUMBER = re.compile(r"[0-9]{1,30}(?:\.[0-9]{0,30})?(?:[eE][-+]?[0-9]{1,2})?")
_COUNT = re.compile(r"[0-9]{1,18}")


@dataclass(frozen=True)
class BenchmarkColumn:
    """One column of a heading."""

    name: str
    """Quantity, one of the names above, or `UNKNOWN`."""
    head: str
    """Text of the heading."""
    scale: float = 1.0
    """Factor that converts a printed number to the base unit."""


@dataclass(frozen=True)
class Heading:
    """All columns of a table, in order."""

    columns: tuple[BenchmarkColumn, ...]
    datatype: str = ""
    """Data type of all rows, used if no column contains it."""

    @property
    def quantities(self) -> tuple[str, ...]:
        """Quantities in the order of their columns."""
        others = (SIZE, SKIPPED, WRONG, VALIDATION, UNKNOWN, *_LABELS)
        return tuple(column.name for column in self.columns if column.name not in others)

    @property
    def unknown(self) -> list[str]:
        """Headers of the columns that are not read."""
        return [make_printable(column.head, 40) for column in self.columns if column.name == UNKNOWN]

    @property
    def least(self) -> int:
        """Minimum number of words in a row. If the last columns are unknown, they may contain any number of words."""
        return 1 + max(i for i, column in enumerate(self.columns) if column.name != UNKNOWN)

    def fits(self, cells: Sequence[str]) -> bool:
        """Return whether the number of words in a row matches the columns."""
        return len(cells) >= self.least if self.columns[-1].name == UNKNOWN else len(cells) == len(self.columns)

    def begins(self, cells: Sequence[str]) -> bool:
        """Return whether the words could be the beginning of a longer row."""
        return self.columns[0].name == SIZE and 1 < len(cells) < self.least and self.read(cells, 0) is not None

    def read(self, cells: Sequence[str], line: int) -> TableRow | None:
        """Parse the words of a row. Return None if a word does not have the format of its column."""
        size: int | None = None
        labels = {"datatype": self.datatype}
        values: dict[str, float] = {}
        wrong: list[int | None] = []
        for column, cell in zip(self.columns, cells, strict=False):
            if column.name in _LABELS:
                labels[_LABELS[column.name]] = "" if cell in NO_LABEL else make_printable(cell, 40)
            elif column.name in (SIZE, SKIPPED):
                if not _COUNT.fullmatch(cell):
                    return None
                size = int(cell) if column.name == SIZE else size
            elif column.name in (WRONG, VALIDATION):
                verdict = _VERDICTS.get(cell, -1) if column.name == VALIDATION else _wrong(cell)
                if verdict is not None and verdict < 0:
                    return None
                wrong.append(verdict)
            elif column.name != UNKNOWN:
                if not _is_number(cell):
                    return None
                values[column.name] = float(cell) * column.scale
        return TableRow(line, size, values, sum_wrong(wrong), **labels)


_VERDICTS = {"Pass": 0, "Fail": 1}


def _is_number(cell: str) -> bool:
    return NUMBER.fullmatch(cell) is not None


def _wrong(cell: str) -> int | None:
    """Return the number of wrong elements, None if nothing was checked, or -1 if the cell is not a number."""
    if cell == "N/A":
        return None
    return math.ceil(float(cell)) if _is_number(cell) else -1

"""A table as CSV (RFC 4180, UTF-8): an empty field is absent, ``nan`` and ``inf`` are values."""

import csv
from collections.abc import Iterable
from pathlib import Path

from hpcbench.report.export.schema import Row, Table, Value

_FORMULA = tuple("=+-@'")


def write(path: Path, table: Table, rows: Iterable[Row]) -> None:
    """Write a table with its head."""
    texts = [one.type == "text" for one in table.columns]
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(table.names)
        for row in rows:
            writer.writerow([_tame(value) if text else value for value, text in zip(row, texts, strict=True)])


def _tame(value: Value) -> Value:
    """A log may hold words that a spreadsheet takes for a formula: they, and the apostrophe itself, get one before."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value

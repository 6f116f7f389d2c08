"""A table as JSON Lines: an object a row; what is absent has no key, ``"NaN"`` and ``"Infinity"`` are values."""

import json
import math
from collections.abc import Iterable
from pathlib import Path

from hpcbench.report.export.schema import Row, Table, Value


def write(path: Path, table: Table, rows: Iterable[Row]) -> None:
    """Write a table. Columns of JSON are nested in it."""
    keys = [(f"{json.dumps(one.name)}: ", one.type == "json") for one in table.columns]
    with path.open("w", encoding="utf-8") as stream:
        for row in rows:
            parts = [
                key + (str(value) if nested else _said(value))
                for (key, nested), value in zip(keys, row, strict=True)
                if value is not None
            ]
            stream.write(f"{{{', '.join(parts)}}}\n")


def _said(value: Value) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return '"NaN"' if math.isnan(value) else '"Infinity"' if value > 0 else '"-Infinity"'
    return json.dumps(value, ensure_ascii=False)

"""A table as JSON Lines: an object a row; what is absent has no key, ``"NaN"`` and ``"Infinity"`` are values."""

import json
import math
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from hpcbench.report.export.schema import Row, Table, Type


def write(path: Path, table: Table, rows: Iterable[Row]) -> None:
    """Write a table. Columns of JSON are nested in it."""
    # most texts of a row are those of the row before
    say: Mapping[Type, Callable[[Any], str]] = {
        "text": lru_cache(256)(json.dumps),
        "json": str,
        "integer": str,
        "real": _real,
    }
    keys = [(f"{json.dumps(one.name)}: ", say[one.type]) for one in table.columns]
    with path.open("w", encoding="utf-8") as stream:
        for row in rows:
            parts = [key + said(value) for (key, said), value in zip(keys, row, strict=True) if value is not None]
            stream.write(f"{{{', '.join(parts)}}}\n")


def _real(value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    return '"NaN"' if math.isnan(value) else '"Infinity"' if value > 0 else '"-Infinity"'

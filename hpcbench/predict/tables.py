"""Tables of published measurements and data sheets in `machines/`. Each row names its source."""

import csv
from functools import cache
from pathlib import Path

TABLES = Path(__file__).with_name("machines")


@cache
def read_table(name: str) -> tuple[dict[str, str], ...]:
    """Return the rows of a table."""
    with (TABLES / name).open(encoding="utf-8", newline="") as stream:
        return tuple(csv.DictReader(stream))

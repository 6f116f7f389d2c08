"""Headings of nccl-tests and rccl-tests: a line of words, followed by a line of units."""

import re

from hpcbench.collect.benchmark_tables.columns import (
    OPERATION,
    ROOT,
    SIZE,
    SKIPPED,
    TYPE,
    UNITS,
    UNKNOWN,
    WRONG,
    BenchmarkColumn,
    Heading,
)

NAME = re.compile(r"#\s*Collective test (?P<place>starting|concluded): (?P<name>[a-z_]{1,60})")
END = re.compile(r"#\s*(?:Out of bounds values|Avg bus bandwidth)\s*:.{0,60}?(?P<failed>FAILED)?\s*")
_HEADING = re.compile(r"#\s*size\s.*\b(?:algbw|busbw)\b.*")
_UNITS_LINE = re.compile(r"#\s*\(B\)\s.*")
_LEAD = {"size": SIZE, "count": SKIPPED, "type": TYPE, "redop": OPERATION, "root": ROOT}
_MEASURED = {
    "time": ("seconds", "us"),
    "cputime": ("cpu_seconds", "us"),
    "algbw": ("algorithm_bytes_per_s", "GB/s"),
    "busbw": ("bus_bytes_per_s", "GB/s"),
    "i_min": ("seconds_min", "us"),
    "i_max": ("seconds_max", "us"),
    "i_p50": ("seconds_p50", "us"),
    "i_p95": ("seconds_p95", "us"),
    "i_p99": ("seconds_p99", "us"),
    "i_cv%": ("variation", "%"),
}
"""Quantity of each column, and its unit if no line of units follows."""
_WRONG = ("#wrong", "error")
IN_PLACE = "_in_place"


def heading(text: str) -> Heading | None:
    """Return the columns of a heading, or None if the text is not a heading.

    If a column occurs twice, the second column contains the in-place result.
    """
    if not _HEADING.fullmatch(text.rstrip()):
        return None
    columns: list[BenchmarkColumn] = []
    for word in text.lstrip("# ").split():
        name, scale = _LEAD.get(word, WRONG if word in _WRONG else UNKNOWN), 1.0
        if word in _MEASURED:
            name, unit = _MEASURED[word]
            scale = UNITS[unit]
            name += IN_PLACE if any(column.name == name for column in columns) else ""
        if name not in (UNKNOWN, WRONG) and any(column.name == name for column in columns):
            return None
        columns.append(BenchmarkColumn(name, word, scale))
    return Heading(tuple(columns))


def with_units(head: Heading, text: str) -> Heading | None:
    """Return the heading with the units of the line below it, or None if the line does not contain units.

    A line of units contains one unit for the size, the count, and each measured quantity.
    """
    if not _UNITS_LINE.fullmatch(text.rstrip()):
        return None
    units = re.findall(r"\(([^()\s]{1,12})\)", text)
    places = [i for i, column in enumerate(head.columns) if column.head in ("size", "count", *_MEASURED)]
    if len(units) != len(places):
        return head
    columns = list(head.columns)
    for i, unit in zip(places, units, strict=True):
        if columns[i].head not in _MEASURED:
            continue
        usual = _MEASURED[columns[i].head][1]
        same_kind = unit in UNITS and ("B/s" in unit, unit == "%") == ("B/s" in usual, usual == "%")
        name = columns[i].name if same_kind else UNKNOWN
        columns[i] = BenchmarkColumn(name, columns[i].head, UNITS[unit] if same_kind else 1.0)
    return Heading(tuple(columns), head.datatype)

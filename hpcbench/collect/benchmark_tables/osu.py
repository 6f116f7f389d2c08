"""Headings of the OSU micro-benchmarks. Units are in parentheses after the column names."""

import re

from hpcbench.collect.benchmark_tables.columns import SIZE, UNITS, UNKNOWN, VALIDATION, BenchmarkColumn, Heading
from hpcbench.collect.benchmark_tables.table import TableRow

TITLE = re.compile(r"(?:# ?)?OSU (?P<name>\S.{0,120}?)(?: Test| Benchmark)?(?: v(?P<version>[0-9][0-9A-Za-z.]{0,20}))?")
DATATYPE = re.compile(r"#? ?Datatype: (?P<datatype>\w{1,40})\.?")
FAILED = re.compile(r"DATA VALIDATION ERROR\b.{0,400}")
_SIZED = re.compile(r"#?\s*Size\s+")
_UNIT = r" ?\((?P<unit>[^()]{1,10})\)"
_COLUMNS = tuple(
    (re.compile(pattern), name)
    for pattern, name in (
        (rf"(?:Avg )?Lat(?:ency)?{_UNIT}", "seconds"),
        (rf"Min Lat(?:ency)?{_UNIT}", "seconds_min"),
        (rf"Max Lat(?:ency)?{_UNIT}", "seconds_max"),
        (rf"P(?P<percentile>[0-9]{{1,2}}) Tail Lat(?:ency)?{_UNIT}", "seconds"),
        (rf"P(?P<percentile>[0-9]{{1,2}}) Tail BW{_UNIT}", "bytes_per_s"),
        (rf"Overall{_UNIT}", "seconds_overall"),
        (rf"Compute{_UNIT}", "seconds_compute"),
        (rf"Coll\. Init{_UNIT}", "seconds_init"),
        (rf"MPI_Test{_UNIT}", "seconds_test"),
        (rf"MPI_Wait{_UNIT}", "seconds_wait"),
        (rf"Pure Comm\.{_UNIT}", "seconds_pure"),
        (rf"Min Comm\.{_UNIT}", "seconds_pure_min"),
        (rf"Max Comm\.{_UNIT}", "seconds_pure_max"),
        (rf"Overlap{_UNIT}", "overlap"),
        (rf"Bandwidth{_UNIT}", "bytes_per_s"),
        (r"(?P<unit>[KMGT]?B/s)", "bytes_per_s"),
        (r"Messages/s", "messages_per_s"),
        (r"Iterations", "iterations"),
        (r"Validation", VALIDATION),
    )
)
"""Pairs of a column header and its quantity."""
_ANY = re.compile(r"\S(?:.{0,60}?\S)??(?:\([^()]{0,20}\)|(?=\s{2}|\s?$))")
"""Pattern of any column header. A header ends with a unit in parentheses, or before two spaces."""
_FULL = ("seconds_min", "seconds_max", "iterations", "seconds_p50", "seconds_p90", "seconds_p99")
"""Columns that -f and -z print after the latency, in this order.

Some versions leave these columns out of the heading.
"""


def heading(text: str, datatype: str) -> tuple[Heading, str] | None:
    """Return the columns of a heading, and the row that follows on the same line, or an empty string if there is none.

    Return None if the text is not a heading. A heading with ``Size`` must contain at least one known column. Without
    ``Size``, all columns must be known.
    """
    sized = _SIZED.match(text)
    remaining = (text[sized.end() :] if sized else text.lstrip("# ")).rstrip()
    columns = [BenchmarkColumn(SIZE, "Size")] if sized else []
    names: set[str] = set()
    while remaining and not re.match(r"[0-9.]", remaining):
        matched = next(((match, name) for pattern, name in _COLUMNS if (match := pattern.match(remaining))), None)
        match = matched[0] if matched else _ANY.match(remaining)
        if match is None:
            return None
        column = _column(match, matched[1]) if matched else BenchmarkColumn(UNKNOWN, match[0])
        if column.name in names:
            return None
        names |= {column.name} - {UNKNOWN}
        columns.append(column)
        remaining = remaining[match.end() :].lstrip()
    is_heading = names - {VALIDATION} and (sized or all(column.name != UNKNOWN for column in columns))
    return (Heading(tuple(columns), datatype), remaining) if is_heading else None


def _column(match: "re.Match[str]", name: str) -> BenchmarkColumn:
    groups = match.groupdict()
    if groups.get("unit") is None:
        return BenchmarkColumn(name, match[0])
    kind = {"overlap": "%"}.get(name, "B/s" if name.startswith("bytes") else "s")
    unit, scale = groups["unit"], UNITS.get(groups["unit"])
    if scale is None or not unit.endswith(kind) or (kind == "s" and unit.endswith("B/s")):
        return BenchmarkColumn(UNKNOWN, match[0])
    percentile = groups.get("percentile")
    return BenchmarkColumn(f"{name}_p{percentile}" if percentile else name, match[0], scale)


def widened(head: Heading, rows: list[tuple[list[str], int]]) -> Heading | None:
    """Return a wider heading for rows with more words than columns, or None if no known heading fits.

    The latency must be the only value column of the original heading. In every row, the latency must lie between the
    minimum and maximum that follow it.
    """
    width = len(rows[0][0])
    bare = [column for column in head.columns if column.name != SIZE]
    if [column.name for column in bare] != ["seconds"] or width - len(head.columns) not in (3, 6):
        return None
    added = (BenchmarkColumn(name, name, 1.0 if name == "iterations" else bare[0].scale) for name in _FULL)
    full = Heading((*head.columns, *added)[:width], head.datatype)
    sizes = [full.read(cells, line) for cells, line in rows]
    return full if all(size and _is_ordered(size) for size in sizes) else None


def _is_ordered(size: TableRow) -> bool:
    values = size.values
    slack = 0.01e-6  # each figure is rounded
    return (
        values["seconds_min"] - slack <= values["seconds"] <= values["seconds_max"] + slack
        and values["iterations"] >= 1
        and values["iterations"].is_integer()
    )

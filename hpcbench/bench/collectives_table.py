"""Measured collectives as tables for people, and as JSON and CSV for programs."""

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from hpcbench.bench.options import spelled
from hpcbench.bench.schemes import Row
from hpcbench.bench.table import error, plain, significant
from hpcbench.contract.text import printable

CSV_COLUMNS = (*(field.name for field in fields(Row)), "wire_share")
_SIZE, _NATIVE, _SCHEME = 6, 18, 22
"""Columns of the terminal that the size, the library and a scheme need side by side."""


def render(rows: Sequence[Row], title: str, console: Console) -> None:
    """Print a table for each operation, with its schemes side by side, and below it the algorithm of each."""
    console.print(Text(printable(title, 400), style="bold"))
    for operation in dict.fromkeys(row.operation for row in rows):
        own = [row for row in rows if row.operation == operation]
        schemes = [name for name in dict.fromkeys(row.scheme for row in own) if name != "native"]
        abreast = max(1, (console.width - _SIZE - _NATIVE) // _SCHEME)
        for first in range(0, len(schemes), abreast):
            console.print(Text())
            console.print(_abreast(operation, own, schemes[first : first + abreast]))
        console.print(Text())
        console.print(_details(own))


def time(seconds: float) -> str:
    """Microseconds with three significant digits."""
    return significant(seconds * 1e6)


def rate(bytes_per_s: float) -> str:
    """A rate in GB/s. Slow links have small numbers with many digits."""
    return f"{bytes_per_s / 1e9:.3g}" if bytes_per_s < 1e9 else significant(bytes_per_s / 1e9)


def _table(first: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column(first)
    return table


def _abreast(operation: str, rows: Sequence[Row], schemes: Sequence[str]) -> Table:
    """A table of microseconds, with the speed relative to the library in brackets."""
    table = _table(operation)
    for heading in ("native us", *schemes):
        table.add_column(Text(printable(heading, 60)), justify="right", overflow="fold", min_width=9)
    for nbytes in dict.fromkeys(row.bytes for row in rows):
        found = {row.scheme: row for row in rows if row.bytes == nbytes}
        cells = [_cell(found[scheme]) if scheme in found else Text("-") for scheme in schemes]
        table.add_row(spelled(nbytes), time(found["native"].seconds), *cells)
    return table


def _cell(row: Row) -> Text:
    style = "green" if row.speedup > 1 else "yellow"
    return Text.assemble(time(row.seconds), (f" ({significant(row.speedup)}x)", style))


def _details(rows: Sequence[Row]) -> Table:
    table = _table("size")
    for heading, justify in (("scheme", "left"), ("carried out by", "left"), *((name, "right") for name in _FIGURES)):
        table.add_column(heading, justify=justify, overflow="fold")  # type: ignore[arg-type]
    last = None
    for row in rows:
        figures = [
            rate(row.algorithm_bandwidth),
            rate(row.bus_bandwidth),
            f"{row.speedup:.2f}",
            error(row.relative_error),
            f"{row.wire_share:.3f}",
        ]
        size = "" if row.bytes == last else spelled(row.bytes)
        table.add_row(size, Text(printable(row.scheme, 60)), row.how, *figures)
        last = row.bytes
    return table


_FIGURES = ("alg GB/s", "bus GB/s", "x native", "rel. error", "wire/message")


def as_json(rows: Iterable[Row], about: Mapping[str, Any], left_out: Sequence[str]) -> str:
    """All figures, not rounded."""
    document = {
        "schema": 1,
        **about,
        "left_out": list(left_out),
        "rows": [{**asdict(row), "wire_share": row.wire_share} for row in rows],
    }
    return json.dumps(plain(document), indent=2, allow_nan=False) + "\n"


def as_csv(rows: Iterable[Row]) -> str:
    """A row for each scheme and size, not rounded."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for row in rows:
        writer.writerow([getattr(row, name) for name in CSV_COLUMNS])
    return out.getvalue()

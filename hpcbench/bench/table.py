"""The measurements as a table for people, and as JSON and CSV for programs."""

import csv
import io
import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from hpcbench.bench.codecs import OPERATIONS, Result, Row, Speed
from hpcbench.contract.text import printable

WIDE = 150
"""Number of columns that the whole table needs. On narrower terminals, speeds and errors stand below each other."""
_NARROW = 100
"""Number of columns below which medians have no room, and headings break."""
_SIZE = ("ratio", "bits/value")
_SPEED = ("encode", "decode", "decode+add", "dec+add+enc", "encode/copy", "decode/copy")
_ERROR = ("rel. RMSE", "max error", "bound", "NaN, Inf")
CSV_COLUMNS = (
    "codec",
    "lossless",
    "wire_bytes",
    "ratio",
    "bits_per_value",
    *(f"{operation}_{which}_gb_per_s" for operation in OPERATIONS for which in ("best", "median")),
    "memcpy_best_gb_per_s",
    "relative_rmse",
    "max_error",
    "error_bound",
    "non_finite",
)


def render(result: Result, title: str, console: Console) -> None:
    """Print the title, the table, and a sentence for each codec that breaks its promise."""
    console.print(Text(printable(title, 400), style="bold"))
    console.print(_tables(result, console.width))
    for row in result.rows:
        if row.broken:
            console.print(Text(printable(broken(row)), style="red"))


def broken(row: Row) -> str:
    """A sentence about a codec whose error is larger than its bound."""
    return f"{row.codec}: its error {row.max_error:.3g} is above its bound {row.error_bound:.3g}: a defect of the codec"


def significant(value: float) -> str:
    """GB/s or a share with three significant digits; two below 1."""
    return f"{value:.{0 if value >= 99.5 else 1 if value >= 9.95 else 2}f}"


def error(value: float | None) -> str:
    """An error; ``0`` if there is none, ``-`` if it is not known."""
    return "-" if value is None else "0" if value == 0 else f"{value:.1e}"


def as_json(result: Result, machine: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    """All figures, not rounded; null for missing and infinite ones."""
    document = {
        "schema": 1,
        "machine": dict(machine),
        "settings": dict(settings),
        "memcpy": asdict(result.memcpy),
        "rows": [{**asdict(row), "broken": row.broken} for row in result.rows],
    }
    return json.dumps(plain(document), indent=2, allow_nan=False) + "\n"


def as_csv(result: Result) -> str:
    """A row for each codec, not rounded. A missing figure is an empty field."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for row in result.rows:
        speeds = [getattr(row.speeds[operation], which) for operation in OPERATIONS for which in ("best", "median")]
        writer.writerow(
            [
                row.codec,
                row.lossless,
                row.wire_bytes,
                row.ratio,
                row.bits_per_value,
                *speeds,
                result.memcpy.best,
                row.relative_rmse,
                row.max_error,
                row.error_bound,
                row.non_finite,
            ]
        )
    return out.getvalue()


def plain(value: Any) -> Any:
    """A value that JSON can hold: null for infinity and NaN."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _tables(result: Result, width: int) -> RenderableType:
    medians, copy = width >= _NARROW, result.memcpy
    if width >= WIDE:
        table = _table((*_SIZE, *_SPEED, *_ERROR))
        table.add_row("memcpy", "1.000", "", *_copies(copy, medians), *[""] * len(_ERROR))
        for row in result.rows:
            table.add_row(_name(row), *_size(row), *_speeds(row, copy, medians), *_errors(row))
        return table
    first, second = _table(_SPEED, breaks=not medians), _table((*_SIZE, *_ERROR), breaks=not medians)
    first.add_row("memcpy", *_copies(copy, medians))
    for row in result.rows:
        first.add_row(_name(row), *_speeds(row, copy, medians))
        second.add_row(_name(row), *_size(row), *_errors(row))
    return Group(first, Text(), second)


def _table(figures: tuple[str, ...], breaks: bool = False) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("codec", overflow="fold", min_width=9)
    for heading in figures:
        table.add_column(heading.replace("/", " /").replace("+", " +") if breaks else heading, justify="right")
    return table


def _name(row: Row) -> Text:
    return Text(printable(row.codec, 60))


def _copies(copy: Speed, medians: bool) -> list[str]:
    return [_speed(copy, medians), "", "", "", "1.00", ""]


def _size(row: Row) -> list[str]:
    return [f"{row.ratio:.3f}", f"{row.bits_per_value:.2f}"]


def _speeds(row: Row, copy: Speed, medians: bool) -> list[str]:
    shares = [significant(row.speeds[operation].best / copy.best) for operation in ("encode", "decode")]
    return [*(_speed(row.speeds[operation], medians) for operation in OPERATIONS), *shares]


def _speed(value: Speed, medians: bool) -> str:
    return f"{significant(value.best)} ({significant(value.median)})" if medians else significant(value.best)


def _errors(row: Row) -> list[Text]:
    figures = [error(row.relative_rmse), error(row.max_error), error(row.error_bound)]
    styles = ["", "red" if row.broken else "", ""]
    survival = Text(row.non_finite, style="yellow" if row.non_finite == "lost" else "")
    return [*(Text(figure, style=style) for figure, style in zip(figures, styles, strict=True)), survival]

"""Files of ``--export FILE``. The suffix selects the file type, and the name selects the table.

Files are written atomically. A missing value is an empty field in CSV, a missing key in JSON Lines, and null in Parquet
and SQLite. NaN and infinity are valid values in all file types.
"""

import csv
import errno
import json
import math
import os
import sqlite3
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

from hpcbench import __version__
from hpcbench.bench.progress import Show, progress
from hpcbench.collect.submission import Submission
from hpcbench.contract.text import make_printable
from hpcbench.errors import UserError
from hpcbench.present.results import check_output
from hpcbench.report.export import RECORDS, TABLES, VERSION, ExportTable, Row, Type, Value
from hpcbench.report.export.rows import rows

_FORMULA = tuple("=+-@'")


def write_csv(path: Path, table: ExportTable, rows: Iterable[Row]) -> None:
    """Write a table as CSV (RFC 4180, UTF-8) with a header row. ``nan`` and ``inf`` are values."""
    texts = [column.type == "text" for column in table.columns]
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(table.names)
        for row in rows:
            writer.writerow([_tame(value) if text else value for value, text in zip(row, texts, strict=True)])


def _tame(value: Value) -> Value:
    """Escape text that a spreadsheet would evaluate as a formula.

    An apostrophe is prepended to text that looks like a formula or starts with an apostrophe.
    """
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def write_json_lines(path: Path, table: ExportTable, rows: Iterable[Row]) -> None:
    """Write one object per row, with nested JSON columns. NaN and infinity are ``"NaN"`` and ``"Infinity"``."""
    # Most texts of a row equal those of the previous row.
    say: Mapping[Type, Callable[[Any], str]] = {
        "text": lru_cache(256)(json.dumps),
        "json": str,
        "integer": str,
        "real": _real,
    }
    keys = [(f"{json.dumps(column.name)}: ", say[column.type]) for column in table.columns]
    with path.open("w", encoding="utf-8") as stream:
        for row in rows:
            parts = [key + write(value) for (key, write), value in zip(keys, row, strict=True) if value is not None]
            stream.write(f"{{{', '.join(parts)}}}\n")


def _real(value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    return '"NaN"' if math.isnan(value) else '"Infinity"' if value > 0 else '"-Infinity"'


_ROWS = 1 << 14
"""Number of rows per row group. A row group is held in memory."""


def write_parquet(path: Path, table: ExportTable, rows: Iterable[Row]) -> None:
    """Write a table in row groups. Field metadata contains units and meanings."""
    import pyarrow as pa  # optional and slow to import
    from pyarrow.parquet import ParquetWriter

    types = {"text": pa.string(), "json": pa.string(), "integer": pa.int64(), "real": pa.float64()}
    fields = [
        pa.field(column.name, types[column.type], metadata={"unit": column.unit, "meaning": column.meaning})
        for column in table.columns
    ]
    about = {"hpcbench": __version__, "schema_version": str(VERSION), "table": table.name}
    schema = pa.schema(fields, metadata=about)
    left = iter(rows)
    with ParquetWriter(path, schema) as writer:
        while group := list(islice(left, _ROWS)):
            columns = zip(*group, strict=True)
            arrays = [pa.array(values, field.type) for values, field in zip(columns, fields, strict=True)]
            writer.write_batch(pa.record_batch(arrays, schema=schema))


_TYPES: Mapping[Type, str] = {"text": "TEXT", "json": "TEXT", "integer": "INTEGER", "real": "REAL"}
_META = (("schema_version", str(VERSION)), ("hpcbench", __version__))


def write_sqlite(path: Path, contents: Mapping[ExportTable, Iterable[Row]]) -> None:
    """Write the tables, and additional tables ``meta`` (schema version) and ``columns`` (units and meanings).

    Infinity is stored as a number. NaN, which SQLite does not support, is stored as the text ``NaN``.
    """
    try:
        # No journal is needed, because the file is renamed only when it is complete.
        with closing(sqlite3.connect(path, isolation_level=None)) as base:
            base.execute("PRAGMA journal_mode = OFF")
            base.execute(f"PRAGMA user_version = {VERSION}")
            base.execute("BEGIN")
            _describe(base, contents)
            for table, rows in contents.items():
                columns = ", ".join(f'"{column.name}" {_TYPES[column.type]}' for column in table.columns)
                base.execute(f'CREATE TABLE "{table.name}" ({columns})')
                marks = ", ".join("?" * len(table.columns))
                base.executemany(
                    f'INSERT INTO "{table.name}" VALUES ({marks})', (tuple(map(_convert_nan, row)) for row in rows)
                )
                base.execute(f'CREATE INDEX "{table.name}_by_file" ON "{table.name}" (file)')
                base.execute(f'CREATE INDEX "{table.name}_by_scheme" ON "{table.name}" (study, site, scheme)')
            base.execute("COMMIT")
    except sqlite3.Error as error:
        raise OSError(errno.EIO, str(error)) from None


def _describe(base: sqlite3.Connection, tables: Iterable[ExportTable]) -> None:
    base.execute("CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT)")
    base.executemany("INSERT INTO meta VALUES (?, ?)", _META)
    base.execute('CREATE TABLE columns ("table" TEXT, name TEXT, type TEXT, unit TEXT, meaning TEXT)')
    about = [
        (table.name, column.name, column.type, column.unit, column.meaning)
        for table in tables
        for column in table.columns
    ]
    base.executemany("INSERT INTO columns VALUES (?, ?, ?, ?, ?)", about)


def _convert_nan(value: Value) -> Value:
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


_ONE: Mapping[str, Callable[[Path, ExportTable, Iterable[Row]], None]] = {
    ".csv": write_csv,
    ".jsonl": write_json_lines,
    ".parquet": write_parquet,
}
"""Functions that write a single table, by suffix."""
_ALL: Mapping[str, Callable[[Path, Mapping[ExportTable, Iterable[Row]]], None]] = {
    ".sqlite": write_sqlite,
    ".db": write_sqlite,
}
"""Functions that write all tables, by suffix."""


@dataclass(frozen=True)
class ExportTarget:
    """Output file of an export."""

    path: Path
    tables: tuple[ExportTable, ...]

    @classmethod
    def of(cls, path: Path) -> "ExportTarget":
        """Return the export target for a path."""
        name, suffix = f"--export {make_printable(str(path))}", path.suffix.lower()
        if suffix not in _ONE and suffix not in _ALL:
            raise UserError(f"{name}: the suffix selects the file format: use one of {', '.join((*_ONE, *_ALL))}")
        if suffix == ".parquet" and find_spec("pyarrow") is None:
            raise UserError(f"{name}: Parquet needs pyarrow: pip install pyarrow, or use .sqlite or .csv")
        check_output("--export", path)
        return cls(path, tuple(TABLES.values()) if suffix in _ALL else (TABLES.get(path.stem, RECORDS),))

    def write(self, submissions: Sequence[Submission]) -> None:
        """Write all rows, and report the result on standard error."""
        temporary = self.path.with_name(f"hpcbench.{os.getpid()}.{os.urandom(4).hex()}.tmp")
        runs = [(submission, run) for submission in submissions for run in submission.runs]
        written = dict.fromkeys(self.tables, 0)

        def all_of(table: ExportTable, show: Show) -> Iterator[Row]:
            before = list(self.tables).index(table) * len(runs)
            for i, (submission, run) in enumerate(runs):
                show(before + i, len(self.tables) * len(runs), make_printable(run.id, 60))
                for row in rows(table, submission, run):
                    written[table] += 1
                    yield row

        try:
            with progress(unit="runs") as show:
                self._write(temporary, {table: all_of(table, show) for table in self.tables})
            temporary.replace(self.path)
        except OSError as error:
            reason = error.strerror or str(error)
            raise UserError(
                f"--export {make_printable(str(self.path))}: cannot be written: {make_printable(reason)}"
            ) from None
        finally:
            temporary.unlink(missing_ok=True)
        counts = ", ".join(f"{table.name} {count}" for table, count in written.items())
        print(f"hpcbench: {make_printable(str(self.path))}: rows written: {counts}", file=sys.stderr)

    def _write(self, path: Path, contents: Mapping[ExportTable, Iterable[Row]]) -> None:
        suffix = self.path.suffix.lower()
        if suffix in _ALL:
            _ALL[suffix](path, contents)
            return
        for table, rows_of_table in contents.items():
            _ONE[suffix](path, table, rows_of_table)

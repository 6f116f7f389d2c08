"""A table as a file: CSV, JSON Lines, Parquet; or all tables in one SQLite file.

What is absent is an empty field in CSV, no key in JSON Lines, null in Parquet and SQLite. NaN and infinity are values
in all of them.
"""

import csv
import errno
import json
import math
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

from hpcbench import __version__
from hpcbench.report.export.schema import VERSION, Row, Table, Type, Value

_FORMULA = tuple("=+-@'")


def write_csv(path: Path, table: Table, rows: Iterable[Row]) -> None:
    """Write a table as CSV (RFC 4180, UTF-8) with its head; ``nan`` and ``inf`` are values."""
    texts = [one.type == "text" for one in table.columns]
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(table.names)
        for row in rows:
            writer.writerow([_tame(value) if text else value for value, text in zip(row, texts, strict=True)])


def _tame(value: Value) -> Value:
    """A log may hold words that a spreadsheet takes for a formula: they, and the apostrophe itself, get one before."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def write_json_lines(path: Path, table: Table, rows: Iterable[Row]) -> None:
    """Write an object a row; columns of JSON are nested in it, ``"NaN"`` and ``"Infinity"`` are values."""
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


_ROWS = 1 << 14
"""Of a row group: what is held in memory."""


def write_parquet(path: Path, table: Table, rows: Iterable[Row]) -> None:
    """Write a table, a row group at a time; units and meanings are the fields' metadata."""
    import pyarrow as pa  # it may not be there, and takes its time
    from pyarrow.parquet import ParquetWriter

    types = {"text": pa.string(), "json": pa.string(), "integer": pa.int64(), "real": pa.float64()}
    fields = [
        pa.field(one.name, types[one.type], metadata={"unit": one.unit, "meaning": one.meaning})
        for one in table.columns
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


def write_sqlite(path: Path, contents: Mapping[Table, Iterable[Row]]) -> None:
    """Write tables, and beside them ``meta`` (the schema's version) and ``columns`` (units and meanings).

    Infinity is a number; NaN, which SQLite lacks, is the text ``NaN``.

    Raises
    ------
    OSError
        SQLite cannot write.
    """
    try:
        # nobody sees the file before it is whole, so that it needs no journal
        with closing(sqlite3.connect(path, isolation_level=None)) as base:
            base.execute("PRAGMA journal_mode = OFF")
            base.execute(f"PRAGMA user_version = {VERSION}")
            base.execute("BEGIN")
            _describe(base, contents)
            for table, rows in contents.items():
                columns = ", ".join(f'"{one.name}" {_TYPES[one.type]}' for one in table.columns)
                base.execute(f'CREATE TABLE "{table.name}" ({columns})')
                marks = ", ".join("?" * len(table.columns))
                base.executemany(
                    f'INSERT INTO "{table.name}" VALUES ({marks})', (tuple(map(_kept, row)) for row in rows)
                )
                base.execute(f'CREATE INDEX "{table.name}_by_file" ON "{table.name}" (file)')
                base.execute(f'CREATE INDEX "{table.name}_by_scheme" ON "{table.name}" (study, site, scheme)')
            base.execute("COMMIT")
    except sqlite3.Error as error:
        raise OSError(errno.EIO, str(error)) from None


def _describe(base: sqlite3.Connection, tables: Iterable[Table]) -> None:
    base.execute("CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT)")
    base.executemany("INSERT INTO meta VALUES (?, ?)", _META)
    base.execute('CREATE TABLE columns ("table" TEXT, name TEXT, type TEXT, unit TEXT, meaning TEXT)')
    about = [(table.name, one.name, one.type, one.unit, one.meaning) for table in tables for one in table.columns]
    base.executemany("INSERT INTO columns VALUES (?, ?, ?, ?, ?)", about)


def _kept(value: Value) -> Value:
    return "NaN" if isinstance(value, float) and math.isnan(value) else value

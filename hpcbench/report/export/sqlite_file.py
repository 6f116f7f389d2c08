"""All tables in one SQLite file: NULL is absent, infinity a number, and NaN, which SQLite lacks, the text ``NaN``."""

import errno
import math
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path

from hpcbench import __version__
from hpcbench.report.export.schema import VERSION, Row, Table, Type, Value

_TYPES: Mapping[Type, str] = {"text": "TEXT", "json": "TEXT", "integer": "INTEGER", "real": "REAL"}
_META = (("schema_version", str(VERSION)), ("hpcbench", __version__))


def write(path: Path, contents: Mapping[Table, Iterable[Row]]) -> None:
    """Write tables, and beside them ``meta`` (the schema's version) and ``columns`` (units and meanings).

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

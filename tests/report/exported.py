"""Exported files, read with other tools: the csv, json and sqlite3 modules, and pyarrow."""

import csv
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.parquet

from hpcbench.report.export import TABLES

Rows = list[dict[str, Any]]
"""A row without missing values. JSON columns are parsed."""


def _csv(path: Path, table: str) -> Rows:
    # text that a spreadsheet would take for a formula is prefixed with an apostrophe
    read = {"text": lambda message: message.removeprefix("'"), "json": json.loads, "integer": int, "real": float}
    types = {column.name: read[column.type] for column in TABLES[table].columns}
    with path.open(encoding="utf-8", newline="") as stream:
        return [
            {name: types[name](message) for name, message in row.items() if message != ""}
            for row in csv.DictReader(stream)
        ]


def _json_lines(path: Path, table: str) -> Rows:
    real = {column.name for column in TABLES[table].columns if column.type == "real"}
    document = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n")[:-1]]
    assert not any(value is None for row in document for value in row.values())
    return [{name: float(value) if name in real else value for name, value in row.items()} for row in document]


def _sqlite(path: Path, table: str) -> Rows:
    types = {column.name: column.type for column in TABLES[table].columns}
    with closing(sqlite3.connect(path)) as base:
        cursor = base.execute(f'SELECT * FROM "{table}" ORDER BY rowid')
        names = [column[0] for column in cursor.description]
        rows = [{name: value for name, value in zip(names, row, strict=True) if value is not None} for row in cursor]
    for row in rows:
        for name, value in row.items():
            wanted = {"text": str, "json": str, "integer": int, "real": float}[types[name]]
            assert isinstance(value, wanted) or (types[name], value) == ("real", "NaN")
            row[name] = {"json": json.loads, "real": float}.get(types[name], wanted)(value)
    return rows


def _parquet(path: Path, table: str) -> Rows:
    result = pyarrow.parquet.read_table(path)
    types = {"text": "string", "json": "string", "integer": "int64", "real": "double"}
    assert [(field.name, str(field.type)) for field in result.schema] == [
        (column.name, types[column.type]) for column in TABLES[table].columns
    ]
    nested = {column.name for column in TABLES[table].columns if column.type == "json"}
    return [
        {name: json.loads(value) if name in nested else value for name, value in row.items() if value is not None}
        for row in result.to_pylist()
    ]


READ: dict[str, Callable[[Path, str], Rows]] = {
    ".csv": _csv,
    ".jsonl": _json_lines,
    ".sqlite": _sqlite,
    ".parquet": _parquet,
}


def exact(rows: Rows) -> list[list[tuple[str, str]]]:
    """Return rows in a form that compares exactly: NaN equals NaN, and 1 differs from 1.0."""
    return [sorted((name, json.dumps(value, sort_keys=True)) for name, value in row.items()) for row in rows]

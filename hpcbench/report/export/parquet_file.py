"""A table as Parquet: null is absent, NaN and infinity are values; units and meanings are the fields' metadata."""

from collections.abc import Iterable
from itertools import islice
from pathlib import Path

import pyarrow as pa
from pyarrow.parquet import ParquetWriter

from hpcbench import __version__
from hpcbench.report.export.schema import VERSION, Row, Table

_ROWS = 1 << 14
"""Of a row group: what is held in memory."""


def write(path: Path, table: Table, rows: Iterable[Row]) -> None:
    """Write a table, a row group at a time."""
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

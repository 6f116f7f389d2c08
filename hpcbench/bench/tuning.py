"""Adds measured times of plans to a file of links, so that later plans are chosen by them."""

import json
from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

from hpcbench.bench.schemes import Row
from hpcbench.comm.links import load
from hpcbench.comm.plan import Operation

_PLANNED = {operation.value for operation in Operation}


def tuned(path: Path, rows: Sequence[Row]) -> str:
    """The file's text with new rows in place of old rows for the same case.

    Parameters
    ----------
    path
        File that ``hpcbench bench network`` wrote.
    rows
        Rows measured on the file's machine. Rows of operations that have no choice of plans are left out, and rows in
        which the library replaced a codec.
    """
    load(path)
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    planned = [row for row in rows if row.operation in _PLANNED]
    native = [[row.operation, row.bytes, row.seconds] for row in planned if row.scheme == "native"]
    measured = [
        [row.operation, row.codec, row.bytes, row.algorithm, row.slices, row.seconds]
        for row in planned
        if row.scheme != "native" and row.algorithm != "native"
    ]
    calls = {(row.operation, row.bytes): row.algorithm for row in planned if row.scheme == "native"}
    kept = [list(row) for row in document.get("blocking", ()) if tuple(row) not in calls]
    document["blocking"] = sorted(kept + [list(case) for case, call in calls.items() if call == "blocking"])
    document["native"] = _merged(document["native"], native)
    # of two schemes that came to the same plan the slower one stays: a choice does not rest on luck
    document["measured"] = _merged(document["measured"], sorted(measured, key=itemgetter(-1)))
    return json.dumps(document, indent=1, allow_nan=False) + "\n"


def _merged(old: list[list[Any]], new: list[list[Any]]) -> list[list[Any]]:
    """The rows of both lists. The last element of a row is the time, and all before it names the measured case."""
    rows = {tuple(row[:-1]): row for row in (*old, *new)}
    return [rows[key] for key in sorted(rows)]

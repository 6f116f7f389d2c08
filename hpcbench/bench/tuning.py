"""Adds what plans were measured to take to a file of links, so that later plans are chosen by it."""

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
    """The file's words with new rows in the place of those that say the same thing.

    Parameters
    ----------
    path
        What ``hpcbench bench network`` wrote.
    rows
        Of the machine that it was written on. Operations that nothing is chosen for say nothing, nor does the library
        in the place of a codec.
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
    """The last element is the time, all before it what was measured."""
    rows = {tuple(row[:-1]): row for row in (*old, *new)}
    return [rows[key] for key in sorted(rows)]

"""Measured plan times in a link file, used to choose plans later."""

import json
from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

from hpcbench.bench.schemes import CollectiveRow
from hpcbench.comm.links import load
from hpcbench.comm.plan import Operation

_PLANNED = {operation.value for operation in Operation}


def merge_times(path: Path, rows: Sequence[CollectiveRow]) -> str:
    """Return the new text of the file, in which these rows replace old rows of the same cases.

    Parameters
    ----------
    path
        File of ``hpcbench bench network``.
    rows
        Rows measured on the same machine. Rows are ignored if only one plan exists for the operation, or if a call that
        requested a codec was run by the library.
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
    unchanged = [list(row) for row in document.get("blocking", ()) if tuple(row) not in calls]
    document["blocking"] = sorted(unchanged + [list(case) for case, call in calls.items() if call == "blocking"])
    document["native"] = _merge(document["native"], native)
    # If two schemes share a plan, the slower time is stored, so that choices do not depend on chance.
    document["measured"] = _merge(document["measured"], sorted(measured, key=itemgetter(-1)))
    return json.dumps(document, indent=1, allow_nan=False) + "\n"


def _merge(old: list[list[Any]], new: list[list[Any]]) -> list[list[Any]]:
    """Merge two lists of rows. The last element of a row is the time. The other elements identify the case."""
    rows = {tuple(row[:-1]): row for row in (*old, *new)}
    return [rows[key] for key in sorted(rows)]

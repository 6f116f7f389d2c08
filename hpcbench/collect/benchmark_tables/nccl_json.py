"""Reader of JSON files of nccl-tests (``-J FILE``), which contain unrounded table rows."""

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hpcbench.collect.benchmark_tables.columns import NO_LABEL
from hpcbench.collect.benchmark_tables.nccl import IN_PLACE
from hpcbench.collect.benchmark_tables.table import Microbenchmark, TableRow, sum_wrong
from hpcbench.contract.text import make_printable

LARGEST = 256 << 20
"""Maximum size in bytes of a file that is read."""
_QUANTITIES = {
    "time": ("seconds", 1e-6),
    "cpu_time": ("cpu_seconds", 1e-6),
    "alg_bw": ("algorithm_bytes_per_s", 1e9),
    "bus_bw": ("bus_bytes_per_s", 1e9),
}
_PER_ITERATION = {
    "min_us": ("seconds_min", 1e-6),
    "max_us": ("seconds_max", 1e-6),
    "p50_us": ("seconds_p50", 1e-6),
    "p95_us": ("seconds_p95", 1e-6),
    "p99_us": ("seconds_p99", 1e-6),
    "cv_pct": ("variation", 1e-2),
}
_PLACES = {"out_of_place": "", "in_place": IN_PLACE}
_LABELS = {"datatype": "type", "operation": "redop", "root": "root"}
_BETWEEN = re.compile(r"[,\s]*")
_RESULTS = '"results":'


def read_json(text: str, path: Path) -> Microbenchmark | None:
    """Return the table of a file, or None if the file was not written by nccl-tests.

    The program writes the file row by row, so a truncated file yields its complete rows.
    """
    remarks: list[str] = []
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        content = _beginning(text)
        remarks.append("the file is truncated: check whether the benchmark was stopped")
    results = content.get("results") if isinstance(content, dict) else None
    if not isinstance(results, list) or "nccl_version" not in content:
        return None
    sizes = [size for row in results if isinstance(row, dict) and (size := _size(row))]
    if len(sizes) < len(results):
        remarks.append(f"damaged rows that were skipped: {len(results) - len(sizes)}")
    names = (name + place for place in _PLACES.values() for name, _ in (_QUANTITIES | _PER_ITERATION).values())
    quantities = tuple(name for name in names if any(name in size.values for size in sizes))
    checks = (content.get("out_of_bounds"), content.get("average_bus_bandwidth"))
    failed = any(isinstance(check, dict) and check.get("okay") in ("false", False) for check in checks)
    return Microbenchmark(path, "nccl-tests", _name(content), "", 1, quantities, sizes, remarks, failed)


def _name(content: dict[str, Any]) -> str:
    """Extract the name of the program from its command line."""
    arguments = content.get("args")
    program = arguments[0] if isinstance(arguments, list) and arguments else ""
    return make_printable(Path(program).name, 60) if isinstance(program, str) else ""


def _beginning(text: str) -> dict[str, Any]:
    """Return the complete rows of a truncated file, and the fields before them."""
    before, separator, rows = text.partition(_RESULTS)
    try:
        content = json.loads(before.rstrip().rstrip(",") + "}") if separator else {}
    except (ValueError, RecursionError):
        return {}
    return {**content, "results": list(_rows(rows.lstrip().removeprefix("[")))} if isinstance(content, dict) else {}


def _rows(text: str) -> Iterator[Any]:
    decoder = json.JSONDecoder()
    at = 0
    while gap := _BETWEEN.match(text, at):
        try:
            row, at = decoder.raw_decode(text, gap.end())
        except (ValueError, RecursionError):
            return
        yield row


def _size(row: dict[str, Any]) -> TableRow | None:
    size = row.get("size")
    if not isinstance(size, int) or isinstance(size, bool) or size < 0:
        return None
    values: dict[str, float] = {}
    wrong: list[int | None] = []
    for key, place in _PLACES.items():
        parts = ((row.get(key), _QUANTITIES), (row.get(f"{key}_per_iter"), _PER_ITERATION))
        for part, quantities in parts:
            for word, (name, scale) in quantities.items():
                value = _number(part.get(word)) if isinstance(part, dict) else None
                if value is not None:
                    values[name + place] = value * scale
        measured = row.get(key)
        if isinstance(measured, dict):
            count = _number(measured.get("nwrong"))
            wrong.append(None if count is None else math.ceil(count))
    labels = {name: _label(row.get(key)) for name, key in _LABELS.items()}
    return TableRow(1, size, values, sum_wrong(wrong), **labels) if values else None


def _number(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and math.isfinite(value) and value >= 0 else None


def _label(value: Any) -> str:
    label = str(value).strip() if isinstance(value, str | int) else ""
    return "" if label in NO_LABEL else make_printable(label, 40)

"""Machine-readable output in JSON and CSV, with unrounded numbers."""

import csv
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hpcbench import __version__
from hpcbench.contract.text import make_printable

_DEEPEST = 64
_FORMULA = ("=", "+", "-", "@")


def encode(document: Mapping[str, Any]) -> str:
    """Return a document as JSON. Numbers that JSON cannot represent become null."""
    return json.dumps(_plain({"version": __version__, **document}), indent=1, allow_nan=False) + "\n"


def _plain(value: Any, depth: int = 0) -> Any:
    """Return a JSON-compatible value, without data that is nested more deeply than hpcbench's own data."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict | list | tuple) and depth > _DEEPEST:
        return None
    if isinstance(value, dict):
        return {str(key): _plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, depth + 1) for item in value]
    return value


def flatten(rows: Sequence[Mapping[str, Any]]) -> Iterable[Sequence[Any]]:
    """Yield the header of a table, then its rows. Nested keys are joined with dots."""
    flat = [dict(_leaves(row)) for row in rows]
    heads = list(dict.fromkeys(key for row in flat for key in row))
    yield heads
    yield from ([row.get(head) for head in heads] for row in flat)


def _leaves(value: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    for key, item in value.items():
        if isinstance(item, Mapping):
            yield from _leaves(item, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", item


def write_csv(rows: Iterable[Iterable[Any]]) -> str:
    """Return rows as CSV, including the header row. Missing values are empty fields."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerows([_field(value) for value in row] for row in rows)
    return out.getvalue()


def _field(value: Any) -> Any:
    """Return a CSV field. Text that a spreadsheet would evaluate as a formula is prefixed with an apostrophe."""
    if not isinstance(value, str):
        return "" if value is None else value
    text = make_printable(value)
    return f"'{text}" if text.startswith(_FORMULA) else text

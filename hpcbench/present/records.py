"""Machine-readable output in JSON and CSV. Figures are not rounded."""

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
    """Return a document as JSON. Figures that JSON cannot write are null."""
    return json.dumps(_plain({"version": __version__, **document}), indent=1, allow_nan=False) + "\n"


def _plain(value: Any, depth: int = 0) -> Any:
    """Return a value that JSON can write, without data that a log nests deeper than hpcbench ever does."""
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
    """Yield the heads of a table, and each row below them. Nested keys are joined by dots."""
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
    """Return rows as CSV, the heads first. A missing figure is an empty field."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerows([_field(value) for value in row] for row in rows)
    return out.getvalue()


def _field(value: Any) -> Any:
    """Return a figure unchanged. Words that a spreadsheet would compute get an apostrophe before them."""
    if not isinstance(value, str):
        return "" if value is None else value
    text = make_printable(value)
    return f"'{text}" if text.startswith(_FORMULA) else text

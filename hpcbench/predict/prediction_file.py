"""Reader for the ``prediction.json`` file of a submission."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcbench.contract.values import get_number, get_text
from hpcbench.files import read_json

NAME = "prediction.json"
SCHEMA = 1


def format_cell(cell: Mapping[str, Any]) -> str:
    """Format a cell name as in predictions."""
    return ", ".join(f"{key}={value}" for key, value in cell.items())


@dataclass(frozen=True)
class StoredStep:
    """Predicted step time of one cell and scheme, in seconds."""

    value: float
    low: float
    high: float
    basis: str


def read_predictions(root: Path) -> dict[tuple[str, str], StoredStep]:
    """Return a submission's predictions, keyed by (cell, scheme). Empty if the file is missing or unusable."""
    raw = read_json(root / NAME) or {}
    runs = raw.get("predictions") if raw.get("schema") == SCHEMA else None
    predictions = {}
    for run in runs if isinstance(runs, list) else []:
        cell, scheme, basis = (get_text(run, *path) for path in (("cell",), ("scheme",), ("step_seconds", "basis")))
        figures = [get_number(run, "step_seconds", name) for name in ("value", "low", "high")]
        if cell is None or scheme is None or None in figures:
            continue
        value, low, high = (float(figure or 0.0) for figure in figures)
        if math.isfinite(value) and value > 0:
            predictions[cell, scheme] = StoredStep(value, low, high, basis or "")
    return predictions

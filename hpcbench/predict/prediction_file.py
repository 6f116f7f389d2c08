"""Name and schema of the ``prediction.json`` file of a submission."""

from collections.abc import Mapping
from typing import Any

NAME = "prediction.json"
SCHEMA = 1


def format_cell(cell: Mapping[str, Any]) -> str:
    """Format a cell name as in predictions."""
    return ", ".join(f"{key}={value}" for key, value in cell.items())

"""In which settings two submissions differ: what a change may come from, beside what was to be compared."""

from collections.abc import Sequence
from typing import Any

from hpcbench.report.compare import Cell

_COMPARED = ("model", "data", "train", "layout", "ranks", "threads", "device")


def differing_settings(new: Sequence[Cell], old: Sequence[Cell]) -> list[str]:
    """Settings of the runs in which the two submissions differ, such as ``train.steps 50, was 100``.

    What varies within either of them is none.
    """
    after, before = _settings(new), _settings(old)
    return [
        f"{key} {_shown(after.get(key))}, was {_shown(before.get(key))}"
        for key in dict.fromkeys((*before, *after))
        if after.get(key) != before.get(key)
    ]


def _settings(cells: Sequence[Cell]) -> dict[str, Any]:
    """Settings that all runs have in common, flat."""
    common: dict[str, Any] | None = None
    for cell in cells:
        for run in cell.runs:
            if run.run.settings:
                flat = dict(_flat({key: run.run.settings.get(key) for key in _COMPARED}))
                flat.pop("train.seed", None)
                common = flat if common is None else {k: v for k, v in common.items() if k in flat and flat[k] == v}
    return common or {}


def _flat(value: Any, path: str = "") -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        return [item for key, inner in value.items() for item in _flat(inner, f"{path}.{key}" if path else str(key))]
    return [(path, value)]


def _shown(value: Any) -> str:
    # Twelve digits: a product of what the study says is not 0.00030000000000000003 to anybody.
    return "not set" if value is None else f"{value:.12g}" if isinstance(value, float) else str(value)

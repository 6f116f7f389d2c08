"""A prediction that stays with a submission, for the report to be held against what was measured."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hpcbench.batch.files import read_json, write_json
from hpcbench.errors import UserError
from hpcbench.predict.command import document, predict_study

NAME = "prediction.json"


def keep(root: Path, study: Path, *, site: str | None, sets: Sequence[str], only: str | None = None) -> None:
    """Write ``prediction.json`` beside the submission; where nothing can be predicted, the file says why."""
    path = root / NAME
    if path.exists():
        return
    try:
        found = document(*predict_study(study, site=site, measured=None, ranks=(), sets=sets, only=only))
    except UserError as error:
        found = {"schema": 1, "predictions": [], "why_none": str(error)}
    write_json(path, json.loads(json.dumps(found)))


def beside_measured(root: Path, measured: Sequence[tuple[str, str, float]]) -> list[dict[str, Any]]:
    """Predicted and measured seconds of a step, and the relative error.

    Parameters
    ----------
    root
        The submission.
    measured
        Cell as ``key=value, ...``, scheme, and seconds of a step.
    """
    kept = read_json(root / NAME) or {}
    rows = []
    for cell, scheme, seconds in measured:
        for one in kept.get("predictions", []):
            if (one["cell"], one["scheme"]) == (cell, scheme) and seconds > 0:
                figure = one["step_seconds"]
                rows.append(
                    {
                        "cell": cell,
                        "scheme": scheme,
                        "predicted": figure["value"],
                        "low": figure["low"],
                        "high": figure["high"],
                        "measured": seconds,
                        "error": figure["value"] / seconds - 1,
                    }
                )
    return rows

"""A prediction that stays with a submission, for the report to be held against what was measured."""

import json
from collections.abc import Sequence
from pathlib import Path

from hpcbench.batch.files import write_json
from hpcbench.errors import UserError
from hpcbench.predict.command import document, predict_study
from hpcbench.predict.document import NAME, SCHEMA


def keep(root: Path, study: Path, *, site: str | None, sets: Sequence[str], only: str | None = None) -> None:
    """Write ``prediction.json`` beside the submission; what cannot be predicted is left out, and the file says why."""
    path = root / NAME
    if path.exists():
        return
    try:
        found = document(*predict_study(study, site=site, measured=None, ranks=(), sets=sets, only=only, skip=True))
    except UserError as error:
        found = {"schema": SCHEMA, "predictions": [], "why_none": str(error)}
    write_json(path, json.loads(json.dumps(found)))

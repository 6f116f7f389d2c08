"""A prediction that stays with a submission, for the report to be held against what was measured."""

import json
from collections.abc import Sequence
from pathlib import Path

from hpcbench.batch.files import write_json
from hpcbench.batch.sites.site import Site
from hpcbench.errors import UserError
from hpcbench.predict.command import make_document, predict_runs
from hpcbench.predict.prediction_file import NAME, SCHEMA
from hpcbench.study.expand import Run


def store_prediction(root: Path, runs: Sequence[Run], site: Site, base: Path) -> None:
    """Write ``prediction.json`` next to a new submission. It says why it leaves out what cannot be predicted.

    Parameters
    ----------
    root
        Directory of the submission.
    runs, site
        Its runs, and the site.
    base
        Directory that relative paths of the study start from.
    """
    path = root / NAME
    if path.exists():
        return
    try:
        found = make_document(*predict_runs(runs, site, base, skip=True))
    except UserError as error:
        found = {"schema": SCHEMA, "predictions": [], "why_none": str(error)}
    write_json(path, json.loads(json.dumps(found)))

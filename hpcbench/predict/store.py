"""Prediction stored with a submission, for comparison with measurements in the report."""

import json
from collections.abc import Sequence
from pathlib import Path

from hpcbench.batch.files import write_json
from hpcbench.batch.sites.site import Site
from hpcbench.errors import UserError
from hpcbench.predict.command import make_document, predict_runs
from hpcbench.predict.prediction_file import NAME, SCHEMA
from hpcbench.study.expand import ExpandedRun


def store_prediction(root: Path, runs: Sequence[ExpandedRun], site: Site, base: Path) -> None:
    """Write ``prediction.json`` into a new submission. The file contains the reason if a run cannot be predicted.

    Parameters
    ----------
    root
        Directory of the submission.
    runs, site
        Runs and site of the submission.
    base
        Base directory of relative paths in the study.
    """
    path = root / NAME
    if path.exists():
        return
    try:
        document = make_document(*predict_runs(runs, site, base, skip=True))
    except UserError as error:
        document = {"schema": SCHEMA, "predictions": [], "why_none": str(error)}
    write_json(path, json.loads(json.dumps(document)))

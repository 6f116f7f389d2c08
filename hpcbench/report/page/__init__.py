"""The page of a report: its document, with provenance and the log lines that values were read from."""

from collections.abc import Sequence
from pathlib import Path

from hpcbench.collect.submission import Submission
from hpcbench.present import page
from hpcbench.present.document import Document
from hpcbench.report.page.sources import Citations, list_files
from hpcbench.report.provenance import gather_provenance, list_some


def write(document: Document, submissions: Sequence[Submission], directory: Path | None = None) -> str:
    """Write a report as HTML, with the provenance of the submissions and the cited lines.

    Files below `directory`, the directory of the page, are linked. It is None if it is not known.
    """
    origins = [gather_provenance(submission) for submission in submissions]
    citations = Citations(submissions, directory)
    return page.write(
        document,
        Path(__file__).parent / "report.html.j2",
        citations=citations,
        linked=citations.linked,
        origins=[
            (submission, origin, list_files(submission))
            for submission, origin in zip(submissions, origins, strict=True)
        ],
        some=list_some,
    )

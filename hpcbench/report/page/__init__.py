"""HTML page of a report: the document, provenance, and the log lines that values were read from."""

from collections.abc import Sequence
from pathlib import Path

from hpcbench.collect.submission import Submission
from hpcbench.present import page
from hpcbench.present.document import Document
from hpcbench.report.page.sources import Citations, list_files
from hpcbench.report.provenance import gather_provenance, list_some


def write(document: Document, submissions: Sequence[Submission], directory: Path | None = None) -> str:
    """Return a report as HTML, including provenance of the submissions and cited lines.

    The page links to files below `directory`, the directory of the page (None if unknown).
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
